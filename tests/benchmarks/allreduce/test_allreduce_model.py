"""The model of an allreduce's time, the fit of its numbers, and sizes of sweeps."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_workers.benchmarks.allreduce.model.cost_model import (
    Crossover,
    LinkCosts,
    describe_deviation,
    find_crossovers,
    find_fastest,
    predict_seconds,
)
from spbench_workers.benchmarks.allreduce.model.link_fit import fit_line, fit_link, student_t
from spbench_workers.benchmarks.allreduce.sweep_sizes import (
    bus_factor,
    compute_algorithm_bandwidth,
    compute_bus_bandwidth,
    sweep_sizes,
)
from spbench_workers.collectives.plan import ALGORITHMS, build_schedule, explain_unsupported

LINK = LinkCosts(alpha=2e-6, beta=1e-10, gamma=3e-11)
BITS = {"rel": 1e-12}


def predict(algorithm, ranks, nbytes, link=LINK, **options):
    return predict_seconds(algorithm, ranks, nbytes, 4, link, **options)


def sum_rounds(algorithm, ranks, count, link, **options):
    """Return the time of schedules by rounds, each with its busiest port and adder."""
    plans = [build_schedule(algorithm, ranks, rank, count, **options) for rank in range(ranks)]
    ports = {}
    adders = {}
    for step in (step for steps in plans for step in steps):
        for side in (step.sends, step.receives):
            port = sum(link.alpha + 4 * transfer.count * link.beta for transfer in side)
            ports[step.round] = max(port, ports.get(step.round, 0.0))
        added = sum(4 * transfer.count * link.gamma for transfer in step.receives if transfer.add)
        adders[step.round] = max(added, adders.get(step.round, 0.0))
    return math.fsum([*ports.values(), *adders.values()])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", range(1, 13))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_model_is_the_longest_path_of_schedules(algorithm, ranks, messages):
    if explain_unsupported(algorithm, ranks):
        with messages.raises(ValueError):
            predict(algorithm, ranks, 4)
        return
    # Divisible by all numbers of ranks, halves and chunks, so that chunks are equal.
    count = 2 * 27720
    options = [{"chunks": chunks} for chunks in (1, 2, 3, 4, 10)] if algorithm == "chain" else [{}]
    if algorithm == "two_level":
        options = [{}, {"group": 1}, {"group": 3}, {"group": 20}]
    for link in (
        LINK,
        LinkCosts(1.0, 0.0, 0.0),
        LinkCosts(0.0, 1.0, 0.0),
        LinkCosts(0.0, 0.0, 1.0),
    ):
        for option in options:
            expected = sum_rounds(algorithm, ranks, count, link, **option)
            assert predict(algorithm, ranks, 4 * count, link, **option) == pytest.approx(
                expected, **BITS
            )


def test_zero_bytes_take_no_time():
    assert predict("ring", 5, 0) == 0.0


def test_the_itemsize_determines_the_chunks_of_a_chain():
    link = LinkCosts(1e-6, 0.0)
    nbytes = 1 << 20
    times = [predict_seconds("chain", 4, nbytes, size, link) for size in (8, 4, 2)]
    assert times == sorted(set(times))


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_the_crossover_to_the_ring_follows_the_closed_form(ranks):
    link = LinkCosts(1e-6, 2e-10)
    depth = math.log2(ranks)
    ratio = (2 * (ranks - 1) - depth) / (depth - 2 * (ranks - 1) / ranks)
    (crossover,) = find_crossovers(ranks, link, ["ring", "recursive_doubling"], 1 << 30)
    assert crossover.nbytes == pytest.approx(ratio * link.alpha / link.beta, abs=2)
    assert (crossover.before, crossover.after) == ("recursive_doubling", "ring")


def test_rabenseifner_is_faster_above_2_4_latencies():
    link = LinkCosts(1e-6, 1e-10)
    algorithms = ["recursive_doubling", "ring", "rabenseifner"]
    crossovers = find_crossovers(8, link, algorithms, 1 << 30)
    assert crossovers == [Crossover(crossovers[0].nbytes, "recursive_doubling", "rabenseifner")]
    assert crossovers[0].nbytes == pytest.approx(2.4 * 1e4, abs=2)


def test_a_crossover_is_exact_to_the_byte():
    for crossover in find_crossovers(6, LINK, list(ALGORITHMS), 1 << 28):
        nbytes = crossover.nbytes
        below = crossover.nbytes - 1
        assert predict(crossover.after, 6, nbytes) < predict(crossover.before, 6, nbytes)
        assert find_fastest(6, below, 4, LINK, ALGORITHMS) == crossover.before
        assert find_fastest(6, nbytes, 4, LINK, ALGORITHMS) == crossover.after


def test_one_fastest_algorithm_has_no_crossover():
    assert (
        find_crossovers(2, LinkCosts(1e-6, 1e-10), ["recursive_doubling", "binomial"], 1 << 30)
        == []
    )
    assert find_crossovers(8, LINK, ["recursive_doubling", "ring"], 1000) == []


def test_chooses_the_fastest_and_the_first_of_equals(messages):
    assert (
        find_fastest(8, 8, 4, LINK, ["ring", "recursive_doubling", "flat"]) == "recursive_doubling"
    )
    assert find_fastest(8, 1 << 26, 4, LINK, ["flat", "binomial", "ring"]) == "ring"
    assert find_fastest(8, 1 << 20, 4, LINK, ["muji_8", "binomial"]) == "muji_8"
    assert find_fastest(8, 1 << 20, 4, LINK, ["binomial", "muji_8"]) == "binomial"
    assert find_fastest(6, 1 << 20, 4, LINK, ["muji_8", "flat"]) == "flat"
    with messages.raises(ValueError):
        find_fastest(6, 1 << 20, 4, LINK, ["muji_8"])


def test_a_time_near_the_prediction_does_not_deviate():
    interval = (0.9e-3, 1.1e-3)
    for measured in (0.61e-3, 1e-3, 1.64e-3):
        assert describe_deviation(measured, 1e-3, interval) is None
    assert describe_deviation(5.0, 0.0, (0.0, 0.0)) is None


def test_describes_a_deviation(messages):
    interval = (0.9e-3, 1.1e-3)
    messages.check(describe_deviation(2.5e-3, 1e-3, interval))
    messages.check(describe_deviation(0.5e-3, 1e-3, interval))


def draw_line(sizes, start, slope, noise=0.0, seed=1):
    generator = random.Random(seed)
    return [(size, (start + slope * size) * (1 + noise * generator.gauss(0, 1))) for size in sizes]


SIZES = [8 << (2 * step) for step in range(12)]


@given(st.floats(1e-8, 1e-3), st.floats(1e-12, 1e-8), st.floats(1e-12, 1e-8))
def test_exact_times_fit_to_their_numbers(alpha, beta, gamma):
    link = fit_link(draw_line(SIZES, alpha, beta), draw_line(SIZES, 1e-7, gamma)).link
    assert link.alpha == pytest.approx(alpha, rel=1e-6)
    assert link.beta == pytest.approx(beta, rel=1e-6)
    assert link.gamma == pytest.approx(gamma, rel=1e-6)


def test_95_percent_of_intervals_include_the_true_value():
    lines = [fit_line(draw_line(SIZES, 1e-6, 1e-10, 0.1, seed)) for seed in range(3000)]
    for truth, estimates in (
        (1e-6, [line.start for line in lines]),
        (1e-10, [line.slope for line in lines]),
    ):
        included = sum(estimate.low <= truth <= estimate.high for estimate in estimates)
        assert 0.94 <= included / len(estimates) <= 0.96


def test_small_sizes_have_the_weight_of_large_ones():
    noisy = draw_line(SIZES, 1e-6, 1e-10, 0.03)
    # With absolute errors, an error of 3 ms at the largest size would hide a start of 1 us.
    assert fit_line(noisy).start.value == pytest.approx(1e-6, rel=0.1)
    assert fit_line(noisy).relative_residual == pytest.approx(0.03, rel=0.5)


def test_fits_no_negative_values():
    falling = fit_line([(1000, 3e-6), (2000, 2.0e-6), (3000, 1e-6)])
    assert falling.slope.value == falling.slope.low == 0.0
    assert 1e-6 < falling.start.value < 3e-6
    early = fit_line([(1000, 1e-6), (2000, 3.0e-6), (3000, 5e-6)])
    assert early.start.value == early.start.low == 0.0
    assert 1e-9 < early.slope.value < 5e-9 / 3
    assert early.slope.low <= early.slope.value <= early.slope.high


@given(st.lists(st.floats(1e-6, 1e-2), min_size=4, max_size=4))
def test_no_times_fit_to_a_negative_line(times):
    # 4 ranks that share an H200: copies of 1 MiB took longer than the line through the others.
    line = fit_line(list(zip((4096, 65536, 1 << 20, 16 << 20), times, strict=True)))
    for estimate in (line.start, line.slope):
        assert 0.0 <= estimate.low <= estimate.value <= estimate.high


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        ([], "three sizes"),
        ([(1, 1.0), (1, 1.1), (2, 2.0)], "three sizes"),
        ([(1, 1.0), (2, 0.0), (3, 3.0)], "above 0"),
        ([(1, 1.0), (2, math.nan), (3, 3.0)], "above 0"),
    ],
)
def test_a_line_needs_three_sizes_and_positive_times(points, reason):
    with pytest.raises(ValueError, match=reason):
        fit_line(points)


def test_a_prediction_is_in_its_interval():
    link_fit = fit_link(draw_line(SIZES, 1e-6, 1e-10, 0.05), draw_line(SIZES, 1e-7, 3e-11, 0.05))

    def predict_ring(link):
        return predict("ring", 4, 1 << 20, link)

    low, high = link_fit.interval(predict_ring)
    assert low < predict_ring(link_fit.link) < high
    assert low < predict_ring(LinkCosts(1e-6, 1e-10, 3e-11)) < high


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 6, 7, 30, 100])
def test_students_t_excludes_five_percent(freedom):
    scale = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    steps = 20_000
    end = student_t(freedom)
    middles = ((step + 0.5) * end / steps for step in range(steps))
    density = (scale * (1 + x * x / freedom) ** (-(freedom + 1) / 2) for x in middles)
    assert 2 * math.fsum(density) * end / steps == pytest.approx(0.95, abs=1e-4)


def test_sweep_sizes_include_both_ends():
    assert sweep_sizes(8, 128, 2) == [8, 16, 32, 64, 128]
    assert sweep_sizes(8, 100, 2) == [8, 16, 32, 64, 100]
    assert sweep_sizes(8, 40, 1.5) == [8, 12, 18, 27, 40]
    assert sweep_sizes(5, 5, 2) == [5]
    assert sweep_sizes(0, 0, 2) == [0]
    assert sweep_sizes(0, 4, 2) == [0, 1, 2, 4]
    assert sweep_sizes(1, 4, 1.1) == [1, 2, 3, 4]


@given(st.integers(0, 10**6), st.integers(0, 10**12), st.floats(1.01, 100))
def test_sizes_increase_from_end_to_end(first, more, factor):
    sizes = sweep_sizes(first, first + more, factor)
    assert (sizes[0], sizes[-1]) == (first, first + more)
    assert sizes == sorted(set(sizes))
    for before, after in itertools.pairwise(sizes):
        assert after <= before * factor + factor + 1


@pytest.mark.parametrize(
    ("smallest", "largest", "factor"),
    [(-1, 5, 2), (6, 5, 2), (1, 5, 1), (1, 5, 0.5), (1, 5, math.nan), (1, 5, math.inf)],
)
def test_rejects_invalid_sizes(smallest, largest, factor, messages):
    with messages.raises(ValueError):
        sweep_sizes(smallest, largest, factor)


def test_bus_factors_agree_with_nccl_tests(messages):
    assert bus_factor("allreduce", 8) == 1.75
    for collective in ("allgather", "reduce_scatter", "alltoall"):
        assert bus_factor(collective, 8) == 0.875
    assert bus_factor("broadcast", 8) == 1.0
    with messages.raises(ValueError):
        bus_factor("gossip", 8)


def test_bandwidths_are_in_gigabytes_per_second():
    assert compute_algorithm_bandwidth(275_000_000, 1e-3) == pytest.approx(275)
    # The published pair of an 8 GPU machine: 275 GB/s of the algorithm are 480 on the bus.
    assert compute_bus_bandwidth("allreduce", 8, 275_000_000, 1e-3) == pytest.approx(481.25)
