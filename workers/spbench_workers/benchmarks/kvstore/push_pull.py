"""Benchmark ``kvstore.push_pull``: pushes and pulls of a network's gradients."""

from __future__ import annotations

from functools import partial

from spbench_parallel.progress import PhaseProgress
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.kvstore import report
from spbench_workers.benchmarks.kvstore.arrays import TIMED_DRAW, Gradients
from spbench_workers.benchmarks.kvstore.case import StoreCase, build_case
from spbench_workers.benchmarks.kvstore.params import PushPullParams
from spbench_workers.benchmarks.kvstore.rounds import RoundGroup, measure_rounds
from spbench_workers.benchmarks.kvstore.store import fault_injection
from spbench_workers.benchmarks.kvstore.store.opening import (
    StorePart,
    open_communicators,
    open_part,
)
from spbench_workers.benchmarks.kvstore.verification.comparison import Errors, StoreComparison
from spbench_workers.benchmarks.kvstore.verification.residual_check import ResidualCheck
from spbench_workers.context import Context

_CLOSING_DRAWS = (1, 2)
"""Draws of the last two rounds, which differ to reveal a value that is one round late."""


class PushPull:
    """The rounds of one rank, and the results of its checks.

    Args:
        context: The case.
        case: Its arrays, roles and placement of keys.
        part: This rank's part in the store.

    Attributes:
        result: The worst difference in the timed rounds.
        protocol: The worst difference in the closing rounds, or a violation of the protocol.
        identical: The difference in bits from rank 0.
        errors: The devices' errors in the last comparison of timed rounds.
    """

    def __init__(self, context: Context, case: StoreCase, part: StorePart) -> None:
        self._context = context
        self._case = case
        self._part = part
        self._gradients = Gradients(context.seed_for, case.elements)
        values = part.memory.values
        shards = part.shards
        self._comparison = StoreComparison(
            context.world.comm, case, self._gradients, values, shards
        )
        self._round = part.store.round
        if not part.is_server:
            self._round = fault_injection.corrupt_round(context, part.store.round, part.memory)
        self._uncompared_rounds = 0
        self.result = WorstError()
        self.protocol = WorstError()
        self.identical = self._comparison.identical
        self.errors = Errors(0.0, 0.0)

    def run_timed_rounds(self) -> list[float]:
        """Run and compare the timed rounds; return their times in ms."""
        self._fill_gradients(TIMED_DRAW)
        times_ms = measure_rounds(self._context, self._round, self._after_group)
        if self._uncompared_rounds:
            self._compare_timed(self._context.read_params(PushPullParams).num_batches)
        return list(times_ms)

    def run_closing_rounds(self) -> None:
        """Run the closing rounds and compare after the last one."""
        part = self._part
        context = self._context
        residuals = ResidualCheck(
            self._case, context.world.rank, part.store.pushes, self._gradients
        )
        for draw in _CLOSING_DRAWS:
            self._fill_gradients(draw)
            context.world.comm.Barrier()
            self._round()
            context.world.comm.Barrier()
            residuals.add_round(draw)
            if draw != _CLOSING_DRAWS[-1]:
                self._comparison.advance(draw, 1)
        self._compare(_CLOSING_DRAWS[-1], 1, self.protocol, "the closing rounds")
        residuals.check(self.protocol)
        violations = [shard.violation for shard in part.shards if shard.violation]
        if violations:
            # The violation explains more than the wrong value that it causes.
            self.protocol = WorstError.single(float(len(violations)), 0.0, violations[0])

    def _fill_gradients(self, draw: int) -> None:
        """Write this device's gradients; the weights are unchanged."""
        views = self._part.memory.gradients.views
        if not self._part.is_server:
            for key, view in enumerate(views):
                self._gradients.fill(self._context.world.rank, key, draw, view)
            fault_injection.corrupt_gradients(self._context, views)
            self._part.memory.upload_gradients()

    def _after_group(self, group: RoundGroup) -> None:
        """Compare the values if the case requests it, and print measure.py's line."""
        self._uncompared_rounds += group.rounds
        tested = self._context.read_params(PushPullParams).test_results
        if tested:
            self._compare_timed(group.batch)
        if group.batch and self._context.world.rank == 0:
            report.print_group(self._context, self._case, group, self.errors if tested else None)

    def _compare_timed(self, batch: int) -> None:
        rounds, self._uncompared_rounds = self._uncompared_rounds, 0
        self.errors = self._compare(TIMED_DRAW, rounds, self.result, f"batch {batch}")

    def _compare(self, draw: int, rounds: int, worst: WorstError, phase: str) -> Errors:
        progress = PhaseProgress(partial(self._context.progress, "check"), 1)
        self._context.world.comm.Barrier()
        self._part.store.settle()
        self._part.memory.download_values()
        errors = self._comparison.compare(draw, rounds, worst, phase, progress)
        progress.finish()
        return errors


def run(context: Context) -> None:
    """Run the case."""
    case = build_case(context.read_params(PushPullParams))
    ranks = open_communicators(context, case)
    part = open_part(context, case, ranks)
    if context.world.rank == 0:
        report.print_size(context, case)
    push_pull = PushPull(context, case, part)
    times_ms = push_pull.run_timed_rounds()
    push_pull.run_closing_rounds()
    context.check_worst("result", push_pull.result)
    context.check_worst("identical", push_pull.identical)
    context.check_worst("protocol", push_pull.protocol)
    report.report_figures(context, case, times_ms, push_pull.errors)
    report.report_traffic(context, part.store, times_ms)
    report.report_compression(context, case, part.store)
    report.report_limits(context, case, part.memory)
    part.free()
    ranks.free()
