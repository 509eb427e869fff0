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
    seconds: float = context.read_params(BurnParams).seconds
    matrices = open_matrices(context)
    planted = context.planted("corrupt-result")
    body = matrices.multiply_and_corrupt if planted else matrices.multiply
    cpus = os.sched_getaffinity(0)
    hot = read_counters().hot

    below = 0.0
    error = 0.0
    detail = ""
    rounds: list[array[float]] = []
    start = monotonic()
    spent = 0.0

    # All ranks use the slowest rank's time, so that they end after the same round.
    while not rounds or spent < seconds:
        fill_uniform(context, "burn", (matrices.left, matrices.right))
        rounds.append(measure(context, body))
        below = max(below, measure_slowdown(cpus))
        round_error, round_detail = check_product(context, body, matrices, f"round {len(rounds)}")
        if round_error and not error:
            error = round_error
            detail = f"round {len(rounds)}: {round_detail}"
        spent = context.largest(monotonic() - start)
        context.progress("burn", min(int(spent), int(seconds)), max(1, int(seconds)))

    context.check("product", error, 0.0, detail)
    context.metric("rounds", float(len(rounds)))
    context.metric("kept_share", median(rounds[0]) / median(rounds[-1]))
    context.metric("below_base", below)
    context.metric("throttled", read_counters().hot - hot)
    times = array("d", (time for round_times in rounds for time in round_times))
    report_rate_and_limit(
        context, matrices.multiply, times, rate="gflops", work_per_iteration=count_gflop(context)
    )
