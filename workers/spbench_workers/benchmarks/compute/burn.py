"""Benchmark ``compute.burn``: checked matrix products for a given time.

This is a burn-in: a processor that is too hot or lacks power is fast for a minute and slow later.
"""

from __future__ import annotations

import os
from array import array
from statistics import median
from time import monotonic

from spbench_workers.benchmarks.compute.entry import BurnParams
from spbench_workers.benchmarks.compute.gemm import check_product, count_gflop, open_matrices
from spbench_workers.context import Context
from spbench_workers.disturbance import measure_slowdown, read_counters
from spbench_workers.exact_numbers import fill_uniform
from spbench_workers.single_rank_baseline import report_rate_and_limit
from spbench_workers.timing import measure


def run(context: Context) -> None:
    """Run the case."""
    min_seconds: float = context.read_params(BurnParams).seconds
    matrices = open_matrices(context)
    planted = context.planted("corrupt-result")
    body = matrices.multiply_and_corrupt if planted else matrices.multiply
    cpus = os.sched_getaffinity(0)
    throttled_before = read_counters().hot

    max_slowdown = 0.0
    error = 0.0
    detail = ""
    times_ms_by_round: list[array[float]] = []
    start = monotonic()
    spent_seconds = 0.0

    # All ranks use the slowest rank's time, so that they end after the same round.
    while not times_ms_by_round or spent_seconds < min_seconds:
        fill_uniform(context, "burn", (matrices.left, matrices.right))
        times_ms_by_round.append(measure(context, body))
        max_slowdown = max(max_slowdown, measure_slowdown(cpus))
        round_error, round_detail = check_product(
            context, body, matrices, f"round {len(times_ms_by_round)}"
        )
        if round_error and not error:
            error = round_error
            detail = f"round {len(times_ms_by_round)}: {round_detail}"
        spent_seconds = context.largest(monotonic() - start)
        context.progress(
            "burn", min(int(spent_seconds), int(min_seconds)), max(1, int(min_seconds))
        )

    context.check("product", error, 0.0, detail)
    context.metric("rounds", float(len(times_ms_by_round)))
    context.metric("kept_share", median(times_ms_by_round[0]) / median(times_ms_by_round[-1]))
    context.metric("below_base", max_slowdown)
    context.metric("throttled", read_counters().hot - throttled_before)
    times_ms = array("d", (ms for round_ms in times_ms_by_round for ms in round_ms))
    report_rate_and_limit(
        context, matrices.multiply, times_ms, rate="gflops", work_per_iteration=count_gflop(context)
    )
