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
from support.allreduce_rows import RecordingSweepContext, make_sweep_row
from support.typed_params import fill_params


def draw_times(mean, spread=0.05, count=24, seed=0):
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
def test_describes_the_agreement_with_the_model(seconds, text):
    assert describe_agreement(seconds, (3e-6, 10e-6)) == text


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        (draw_times(1.0), draw_times(2.0, seed=1), "faster"),
        (draw_times(2.0), draw_times(1.0, seed=1), "slower"),
        (draw_times(1.0), draw_times(1.0, seed=1), "no significant difference"),
        # The noise is wider than the difference.
        (draw_times(1.0, 0.8), draw_times(1.05, 0.8, seed=1), "no significant difference"),
        # Only the first half is faster: something else has changed.
        (
            [*draw_times(1.0)[:14], *draw_times(2.0)[14:]],
            draw_times(1.5, seed=1),
            "no significant difference",
        ),
    ],
)
def test_a_difference_must_be_significant_in_both_halves(first, second, outcome):
    comparison = compare_times(first, second)
    assert comparison.outcome == outcome
    low, high = comparison.interval
    assert low <= comparison.ratio <= high
    assert comparison.pairs == 24
    assert min(second) <= comparison.other_seconds <= max(second)


@pytest.mark.parametrize("pairs", [1, 2, 7])
def test_few_pairs_are_never_significant(pairs):
    comparison = compare_times([1.0] * pairs, [2.0] * pairs)
    assert comparison.outcome == "no significant difference"
    assert (comparison.ratio, comparison.pairs) == (0.5, pairs)
    assert compare_times([1.0] * 8, [2.0] * 8).outcome == "faster"


@pytest.mark.slow
def test_equal_times_rarely_differ_significantly():
    outcomes = [
        compare_times(
            draw_times(1.0, 0.3, seed=2 * seed), draw_times(1.0, 0.3, seed=2 * seed + 1)
        ).outcome
        for seed in range(200)
    ]
    assert outcomes.count("no significant difference") >= 194


def make_link(alpha=1e-6, beta=1e-10, gamma=1e-10, copy=2e-10):
    sizes = (8, 1 << 10, 1 << 16, 1 << 20)
    messages = [(size, alpha + beta * size) for size in sizes]
    sums = [(size, 1e-7 + gamma * size) for size in sizes]
    return JobLink(
        fit_link(messages, sums), fit_line([(size, 1e-7 + copy * size) for size in sizes])
    )


def complete_params(**params):
    return BENCHMARKS["allreduce.sweep"].complete({"size": 1 << 20, **params})


def sweep_params(**params):
    return fill_params(SweepParams, complete_params(**params))


def test_predictions_out_of_place_include_a_copy():
    size = 1 << 20
    link = make_link()
    predicted = predict(sweep_params(algorithm="ring", in_place=True), 4, size, link)
    ring = 6 * 1e-6 + 1.5 * size * 1e-10 + 0.75 * size * 1e-10
    assert predicted.seconds == pytest.approx(ring, rel=1e-6)
    assert predicted.basis == "ring"
    low, high = predicted.interval
    assert low <= predicted.seconds <= high
    copied = predict(sweep_params(algorithm="ring"), 4, size, link)
    assert copied.seconds == pytest.approx(ring + 2e-10 * size, rel=1e-6)


def test_libraries_are_predicted_by_the_best_algorithm():
    link = make_link()
    predicted = predict(sweep_params(in_place=True), 4, 1 << 20, link)
    assert predicted.basis == find_fastest_algorithm(4, 1 << 20, 4, link) == "rabenseifner"
    assert predict(sweep_params(size=8), 4, 8, link).basis == "recursive_doubling"
    ring = predict(sweep_params(algorithm="ring", in_place=True), 4, 1 << 20, link)
    assert predicted.seconds < ring.seconds


@pytest.mark.parametrize(
    ("collective", "messages", "sent_share", "added_share"),
    [
        ("allgather", 3, 0.75, 0.0),
        ("alltoall", 3, 0.75, 0.0),
        ("reduce_scatter", 3, 0.75, 0.75),
        ("broadcast", 2, 2.0, 0.0),
    ],
)
def test_other_collectives_are_predicted_by_messages(collective, messages, sent_share, added_share):
    size = 1 << 20
    predicted = predict(sweep_params(collective=collective), 4, size, make_link())
    expected = messages * 1e-6 + (sent_share + added_share) * size * 1e-10
    assert predicted.seconds == pytest.approx(expected, rel=1e-6)


def test_describes_crossovers(messages):
    description = describe_crossovers(4, 4, make_link())
    assert description.startswith("recursive_doubling, from ")
    assert description.endswith(" B rabenseifner, up to the 1048576 B that were measured")
    single_rank = JobLink(None, make_link().copy)
    messages.check(describe_crossovers(1, 4, single_rank))
    assert predict(sweep_params(in_place=True), 1, 1 << 20, single_rank).seconds == 0.0
    assert LinkCosts(0.0, 0.0).gamma == 0.0


def test_prints_the_columns_of_nccl_tests():
    first = RecordingSweepContext(last=False)
    second = RecordingSweepContext(first=False)
    print_row(first, make_sweep_row(2.0, native=90e-6))
    print_row(second, make_sweep_row(4.0, wrong=3))
    heading, _, names, units, line = first.lines
    assert heading == "# allreduce, blocking, in place, 2 ranks"
    columns = "size count type redop algorithm time algbw busbw #wrong p99 skew predicted native"
    assert names.split()[1:] == columns.split()
    figures = line.split()
    assert figures[:5] == ["1048576", "262144", "fp32", "sum", "bidirectional_ring"]
    assert figures[5:] == ["112.40", "9.330", "2.000", "0", "130.00", "1.02", "100.00", "90.00"]
    # Numbers are below their names.
    assert names.index("time") + 4 == units.index("(us)") + 4 == line.index("112.40") + 6
    bare, wrong, average = second.lines
    assert bare.split()[-1] == "100.00"
    assert wrong == "# Wrong elements       : 3 FAILED"
    assert average == "# Avg bus bandwidth    : 3 GB/s"
