"""The lines that a standalone sweep prints: nccl-tests' columns, and a few more after them."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from spbench_workers.benchmarks.allreduce.entry import SweepParams
from spbench_workers.context import Context

_HEAD = (
    f"# {'size':>11} {'count':>12} {'type':>6} {'redop':>6} {'algorithm':>18} {'time':>10} "
    f"{'algbw':>8} {'busbw':>8} {'#wrong':>7} {'p99':>10} {'skew':>6} {'predicted':>10} "
    f"{'native':>10}",
    f"# {'(B)':>11} {'(elements)':>12} {'':>6} {'':>6} {'':>18} {'(us)':>10} {'(GB/s)':>8} "
    f"{'(GB/s)':>8} {'':>7} {'(us)':>10} {'':>6} {'(us)':>10} {'(us)':>10}",
)


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One row of a sweep: times in seconds, None for what was not measured.

    Attributes:
        time: The median over iterations, each as long as its slowest rank's.
        p99: The 99th percentile of the same.
        skew: The slowest rank's median time over the typical rank's.
        in_place: Whether the result replaced the source.
    """

    size: int
    count: int
    dtype: str
    op: str
    algorithm: str
    time: float
    algbw: float
    busbw: float
    wrong: int
    p99: float
    skew: float
    predicted: float
    native: float | None
    in_place: bool = False

    @property
    def line(self) -> str:
        """The row as it is printed."""
        native = "" if self.native is None else f"{1e6 * self.native:.2f}"
        return (
            f"  {self.size:>11} {self.count:>12} {self.dtype:>6} {self.op:>6} "
            f"{self.algorithm:>18} {1e6 * self.time:>10.2f} {self.algbw:>8.3f} {self.busbw:>8.3f} "
            f"{self.wrong:>7} {1e6 * self.p99:>10.2f} {self.skew:>6.2f} "
            f"{1e6 * self.predicted:>10.2f} {native:>10}"
        ).rstrip()


_shown: list[SweepRow] = []
"""The rows of the sweep that is being printed."""


def print_row(context: Context, row: SweepRow) -> None:
    """Print a row: with the heading above the first of a sweep, the average below the last."""
    params = context.read_params(SweepParams)
    if context.first:
        _shown.clear()
        what = f"{params.collective}, {params.mode}"
        where = _place(params.in_place)
        context.say(f"# {what}, {where}, {context.world.size} ranks")
        context.say("# time: median over iterations, each as long as its slowest rank's")
        for line in _HEAD:
            context.say(line)
    elif _shown and _shown[-1].in_place != row.in_place:
        context.say(f"# from here on {_place(row.in_place)}")
    _shown.append(row)
    context.say(row.line)
    if context.last:
        wrong = sum(one.wrong for one in _shown)
        context.say(f"# Wrong elements       : {wrong} {'OK' if not wrong else 'FAILED'}")
        context.say(f"# Avg bus bandwidth    : {fmean(one.busbw for one in _shown):.6g} GB/s")


def _place(in_place: bool) -> str:
    return "in place" if in_place else "out of place"
