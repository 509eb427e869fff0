"""Conclusions of a sweep from times, and the lines that it prints."""

import random

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_workers.benchmarks.allreduce.entry import SweepParams
from spbench_workers.benchmarks.allreduce.findings import describe_agreement, print_row
from spbench_workers.benchmarks.allreduce.model.cost_model import LinkCosts
from spbench_workers.benchmarks.allreduce.model.link_fit import fit_line, fit_link
from spbench_workers.benchmarks.allreduce.model.link_times import JobLink
from spbench_workers.benchmarks.allreduce.model.prediction import (
    describe_crossovers,
    find_fastest_algorithm,
    predict,
)
from spbench_workers.benchmarks.allreduce.paired_comparison import compare_times
from unit.allreduce_rows import Said, row
from unit.typed_params import typed


def times(mean, spread=0.05, count=24, seed=0):
    generator = random.Random(seed)
    return [mean * generator.uniform(1 - spread, 1 + spread) for _ in range(count)]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5e-6, "5.00 us is in the predicted 3.00 us to 10.0 us"),
        (
            12e-6,
            "12.0 us is 1.2x the upper end of the predicted 3.00 us to 10.0 us; up to 1.5x is "
            "tolerated",
        ),
        (
            2.4e-6,
            "2.40 us is 0.8x the lower end of the predicted 3.00 us to 10.0 us; up to 0.667x is "
            "tolerated",
        ),
    ],
)
def test_a_time_that_agrees_with_the_model_is_placed(seconds, text):
    assert describe_agreement(seconds, (3e-6, 10e-6)) == text


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        (times(1.0), times(2.0, seed=1), "faster"),
        (times(2.0), times(1.0, seed=1), "slower"),
        (times(1.0), times(1.0, seed=1), "no significant difference"),
        # Wider noise than the difference.
        (times(1.0, 0.8), times(1.05, 0.8, seed=1), "no significant difference"),
        # Faster in the first half alone: something else has changed.
        ([*times(1.0)[:14], *times(2.0)[14:]], times(1.5, seed=1), "no significant difference"),
    ],
)
def test_a_difference_must_be_significant_in_both_halves(one, other, verdict):
    found = compare_times(one, other)
    assert found.verdict == verdict
    low, high = found.interval
    assert low <= found.ratio <= high
    assert found.pairs == 24
    assert min(other) <= found.other_seconds <= max(other)


@pytest.mark.parametrize("pairs", [1, 2, 7])
def test_of_few_pairs_nothing_is_said(pairs):
    found = compare_times([1.0] * pairs, [2.0] * pairs)
    assert found.verdict == "no significant difference"
    assert (found.ratio, found.pairs) == (0.5, pairs)
    assert compare_times([1.0] * 8, [2.0] * 8).verdict == "faster"


@pytest.mark.slow
def test_two_equal_ways_are_hardly_ever_told_apart():
    told = [
        compare_times(times(1.0, 0.3, seed=2 * seed), times(1.0, 0.3, seed=2 * seed + 1)).verdict
        for seed in range(200)
    ]
    assert told.count("no significant difference") >= 194


def link_of(alpha=1e-6, beta=1e-10, gamma=1e-10, copy=2e-10):
    sizes = (8, 1 << 10, 1 << 16, 1 << 20)
    messages = [(size, alpha + beta * size) for size in sizes]
    sums = [(size, 1e-7 + gamma * size) for size in sizes]
    return JobLink(
        fit_link(messages, sums), fit_line([(size, 1e-7 + copy * size) for size in sizes])
    )


def params_of(**given):
    return BENCHMARKS["allreduce.sweep"].complete({"size": 1 << 20, **given})


def sweep_params(**given):
    return typed(SweepParams, params_of(**given))


def test_a_prediction_is_the_models_and_the_copy_out_of_place():
    size = 1 << 20
    link = link_of()
    predicted = predict(sweep_params(algorithm="ring", in_place=True), 4, size, link)
    ring = 6 * 1e-6 + 1.5 * size * 1e-10 + 0.75 * size * 1e-10
    assert predicted.seconds == pytest.approx(ring, rel=1e-6)
    assert predicted.basis == "ring"
    low, high = predicted.interval
    assert low <= predicted.seconds <= high
    copied = predict(sweep_params(algorithm="ring"), 4, size, link)
    assert copied.seconds == pytest.approx(ring + 2e-10 * size, rel=1e-6)


def test_a_librarys_prediction_is_that_of_the_best_algorithm():
    link = link_of()
    predicted = predict(sweep_params(in_place=True), 4, 1 << 20, link)
    assert predicted.basis == find_fastest_algorithm(4, 1 << 20, 4, link) == "rabenseifner"
    assert predict(sweep_params(size=8), 4, 8, link).basis == "recursive_doubling"
    ring = predict(sweep_params(algorithm="ring", in_place=True), 4, 1 << 20, link)
    assert predicted.seconds < ring.seconds


@pytest.mark.parametrize(
    ("collective", "messages", "sent", "added"),
    [
        ("allgather", 3, 0.75, 0.0),
        ("alltoall", 3, 0.75, 0.0),
        ("reduce_scatter", 3, 0.75, 0.75),
        ("broadcast", 2, 2.0, 0.0),
    ],
)
def test_other_collectives_are_their_messages(collective, messages, sent, added):
    size = 1 << 20
    predicted = predict(sweep_params(collective=collective), 4, size, link_of())
    expected = messages * 1e-6 + (sent + added) * size * 1e-10
    assert predicted.seconds == pytest.approx(expected, rel=1e-6)


def test_crossovers_are_named_in_words():
    words = describe_crossovers(4, 4, link_of())
    assert words.startswith("recursive_doubling, from ")
    assert words.endswith(" B rabenseifner, up to the 1048576 B that were measured")
    alone = JobLink(None, link_of().copy)
    assert describe_crossovers(1, 4, alone) == "one rank alone sends nothing"
    assert predict(sweep_params(in_place=True), 1, 1 << 20, alone).seconds == 0.0
    assert LinkCosts(0.0, 0.0).gamma == 0.0


def test_columns_are_those_of_nccl_tests_under_one_heading():
    first = Said(last=False)
    second = Said(first=False)
    print_row(first, row(2.0, native=90e-6))
    print_row(second, row(4.0, wrong=3))
    what, _, names, units, line = first.lines
    assert what == "# allreduce, blocking, in place, 2 ranks"
    words = "size count type redop algorithm time algbw busbw #wrong p99 skew predicted native"
    assert names.split()[1:] == words.split()
    figures = line.split()
    assert figures[:5] == ["1048576", "262144", "fp32", "sum", "bidirectional_ring"]
    assert figures[5:] == ["112.40", "9.330", "2.000", "0", "130.00", "1.02", "100.00", "90.00"]
    # Numbers stand below their names.
    assert names.index("time") + 4 == units.index("(us)") + 4 == line.index("112.40") + 6
    bare, wrong, average = second.lines
    assert bare.split()[-1] == "100.00"
    assert wrong == "# Wrong elements       : 3 FAILED"
    assert average == "# Avg bus bandwidth    : 3 GB/s"
