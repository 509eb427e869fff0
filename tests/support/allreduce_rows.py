"""Rows of an allreduce sweep, and a context that records the printed lines."""

from types import SimpleNamespace

from spbench_workers.benchmarks.allreduce.findings import SweepRow
from support.typed_params import TypedParams


class RecordingSweepContext(TypedParams):
    """A context that records the lines that a sweep prints."""

    def __init__(self, first=True, last=True):
        self.lines = []
        self.first = first
        self.last = last
        self.params = {"collective": "allreduce", "mode": "blocking", "in_place": True}
        self.world = SimpleNamespace(size=2)

    def say(self, line):
        self.lines.append(line)


def make_sweep_row(busbw, wrong=0, native=None, in_place=True):
    return SweepRow(
        size=1048576,
        count=262144,
        dtype="fp32",
        op="sum",
        algorithm="bidirectional_ring",
        time=112.4e-6,
        algbw=9.33,
        busbw=busbw,
        wrong=wrong,
        p99=130e-6,
        skew=1.02,
        predicted=100e-6,
        native=native,
        in_place=in_place,
    )
