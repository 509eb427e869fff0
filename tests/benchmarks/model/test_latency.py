"""Latency under an open load: arrivals, waits that count, and the check that they do."""

from statistics import fmean, pstdev

import pytest

from spbench_parallel.errors import FaultWithoutEffectError
from spbench_workers.benchmarks.model.inference.latency import (
    Requests,
    draw_arrivals,
    find_too_short,
    report_latency,
    report_open_latency,
    serve,
)
from unit.recorded import context_of, said, value_of

PARAMS = {"scheme": "sequential", "version": 1, "depth": 8, "enable_evaluation": True}
# The second waits for the first, the third for the second; the fourth for nobody.
QUEUED = Requests((1.0, 1.5, 2.0, 9.0), (1.0, 3.0, 4.0, 9.0), (3.0, 4.0, 4.5, 9.5))
ALONE = Requests((1.0, 9.0), (1.0, 9.0), (3.0, 9.5))


def opened(inject=None):
    return context_of("model.resnet", inject, **PARAMS, arrival="poisson", arrival_rate=0.5)


def test_gaps_are_exponential_and_of_a_seed():
    found = draw_arrivals(20_000, 50.0, seed=3)
    gaps = [after - before for before, after in zip([0.0, *found], found, strict=False)]
    assert fmean(gaps) == pytest.approx(1 / 50, rel=0.05)
    # Of this distribution alone both are as large as the mean, and 1/e of the gaps are above it.
    assert pstdev(gaps) == pytest.approx(1 / 50, rel=0.05)
    assert fmean(gap > 1 / 50 for gap in gaps) == pytest.approx(0.368, abs=0.02)
    assert found == draw_arrivals(20_000, 50.0, seed=3)
    assert found[:9] != draw_arrivals(9, 50.0, seed=4)


def test_a_wait_counts():
    assert QUEUED.latencies() == [2.0, 2.5, 2.5, 0.5]
    assert list(QUEUED.lower_bounds()) == QUEUED.latencies()
    assert find_too_short(QUEUED.latencies(), QUEUED).error == 0


def test_the_check_passes_what_is_measured_and_the_load_is_told():
    context = opened()
    report_open_latency(context, QUEUED)
    assert said(context, "check", name="latency", passed=True)
    assert said(context, "samples", metric="latency_ms")[0]["values"] == [2000, 2500, 2500, 500]
    assert value_of(context, "offered_load") == 0.5


def test_the_check_finds_waits_that_are_not_counted():
    context = opened("uncounted-wait")
    report_open_latency(context, QUEUED)
    (check,) = said(context, "check", name="latency")
    assert not check["passed"]
    assert check["max_abs_error"] == 2000
    assert check["detail"] == "request 2: 500 ms, and not below 2500 ms"


def test_where_nothing_waits_the_fault_is_refused():
    with pytest.raises(FaultWithoutEffectError, match="take a higher arrival_rate"):
        report_open_latency(opened("uncounted-wait"), ALONE)


def test_requests_are_begun_in_their_order_and_not_before_they_arrive():
    context = opened()
    worked = []
    arrived = [0.0, 0.0, 0.01, 0.02]
    found = serve(context, lambda: worked.append(len(worked)), arrived)
    assert worked == [0, 1, 2, 3]
    times = [moment for each in zip(found.starts, found.ends, strict=True) for moment in each]
    assert times == sorted(times)
    assert all(begun >= due for begun, due in zip(found.starts, arrived, strict=True))
    assert find_too_short(found.latencies(), found).error < 1e-6


def test_percentiles_are_said_by_hand():
    context = context_of("model.resnet", **PARAMS)
    report_latency(context, [float(one) for one in range(101)])
    report_latency(context, [7.0])
    first, second = (event["message"] for event in said(context, "log"))
    assert first == "Latency (ms) p50 50 p95 95 p99 99"
    assert second == "Latency (ms) p50 7 p95 7 p99 7"
