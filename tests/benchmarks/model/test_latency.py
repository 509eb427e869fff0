"""Latency under an open load: arrivals, queueing times, and their check."""

from statistics import fmean, pstdev

import pytest

from spbench_parallel.errors import FaultWithoutEffectError
from spbench_workers.benchmarks.model.inference.latency import (
    Requests,
    compare_with_lower_bounds,
    draw_arrivals,
    report_latency,
    report_open_latency,
    serve,
)
from support.recording_context import find_events, get_metric, make_context

PARAMS = {"scheme": "sequential", "version": 1, "depth": 8, "enable_evaluation": True}
# The second waits for the first, the third for the second, the fourth for no request.
QUEUED = Requests((1.0, 1.5, 2.0, 9.0), (1.0, 3.0, 4.0, 9.0), (3.0, 4.0, 4.5, 9.5))
UNQUEUED = Requests((1.0, 9.0), (1.0, 9.0), (3.0, 9.5))


def make_latency_context(inject=None):
    return make_context("model.resnet", inject, **PARAMS, arrival="poisson", arrival_rate=0.5)


def test_gaps_are_exponential_and_follow_the_seed():
    arrivals = draw_arrivals(20_000, 50.0, seed=3)
    gaps = [after - before for before, after in zip([0.0, *arrivals], arrivals, strict=False)]
    assert fmean(gaps) == pytest.approx(1 / 50, rel=0.05)
    # The exponential distribution has a deviation equal to its mean, and 1/e of gaps above it.
    assert pstdev(gaps) == pytest.approx(1 / 50, rel=0.05)
    assert fmean(gap > 1 / 50 for gap in gaps) == pytest.approx(0.368, abs=0.02)
    assert arrivals == draw_arrivals(20_000, 50.0, seed=3)
    assert arrivals[:9] != draw_arrivals(9, 50.0, seed=4)


def test_latency_includes_the_queueing_time():
    assert QUEUED.latencies() == [2.0, 2.5, 2.5, 0.5]
    assert list(QUEUED.lower_bounds()) == QUEUED.latencies()
    assert compare_with_lower_bounds(QUEUED.latencies(), QUEUED).error == 0


def test_reports_latency_and_offered_load():
    context = make_latency_context()
    report_open_latency(context, QUEUED)
    assert find_events(context, "check", name="latency", passed=True)
    assert find_events(context, "samples", metric="latency_ms")[0]["values"] == [
        2000,
        2500,
        2500,
        500,
    ]
    assert get_metric(context, "offered_load") == 0.5


def test_the_check_detects_uncounted_waits(messages):
    context = make_latency_context("uncounted-wait")
    report_open_latency(context, QUEUED)
    (check,) = find_events(context, "check", name="latency")
    assert not check["passed"]
    assert check["max_abs_error"] == 2000
    messages.check(check["detail"])


def test_rejects_the_fault_without_queueing(messages):
    with messages.raises(FaultWithoutEffectError):
        report_open_latency(make_latency_context("uncounted-wait"), UNQUEUED)


def test_starts_requests_in_order_after_their_arrival():
    context = make_latency_context()
    calls = []
    arrivals = [0.0, 0.0, 0.01, 0.02]
    requests = serve(context, lambda: calls.append(len(calls)), arrivals)
    assert calls == [0, 1, 2, 3]
    times = [
        moment for request in zip(requests.starts, requests.ends, strict=True) for moment in request
    ]
    assert times == sorted(times)
    assert all(start >= arrival for start, arrival in zip(requests.starts, arrivals, strict=True))
    assert compare_with_lower_bounds(requests.latencies(), requests).error < 1e-6


def test_logs_percentiles():
    context = make_context("model.resnet", **PARAMS)
    report_latency(context, [float(number) for number in range(101)])
    report_latency(context, [7.0])
    first, second = (event["message"] for event in find_events(context, "log"))
    assert first == "Latency (ms) p50 50 p95 95 p99 99"
    assert second == "Latency (ms) p50 7 p95 7 p99 7"
