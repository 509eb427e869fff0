"""The benchmark ``compute.noise``: the same work again and again, and the time that is lost in it.

A fixed work quantum (as FWQ of the Sequoia benchmarks): what takes longer than the fastest was
interrupted, by the kernel, by a daemon, by another job, or ran on a slower clock.
"""

from __future__ import annotations

import random
import zlib
from statistics import fmean
from time import perf_counter

from spbench_workers.benchmarks.compute.entry import NoiseParams
from spbench_workers.context import Context
from spbench_workers.timing import measure

_BLOCK = 1 << 14
"""Bytes of the data: they stay in the first cache."""
_TRIES = 7
_POLYNOMIAL = 0xEDB88320
_SLOWEST = 0.999


class Quantum:
    """A fixed amount of work: the CRC-32 of the same bytes, so many times over, checked each time.

    Args:
        data: The bytes.
        passes: How often they are read.
        expected: The CRC that must come out.
        spoilt: Whether the result is changed, as a fault.

    Attributes:
        wrong: How many results were wrong.
        got: The last wrong result.
    """

    def __init__(self, data: bytes, passes: int, expected: int, *, corrupt: bool = False) -> None:
        self._data = data
        self._passes = range(passes)
        self._expected = expected
        self._change = int(corrupt)
        self.wrong_count = 0
        self.last_wrong = 0

    def work(self) -> None:
        """Do the work once."""
        data = self._data
        crc = zlib.crc32
        found = 0
        for _ in self._passes:
            found = crc(data, found)
        found ^= self._change
        if found != self._expected:
            self.wrong_count += 1
            self.last_wrong = found


def run(context: Context) -> None:
    """Run the case."""
    context.device("cpu", "it is the cores that are looked at", speaks=context.world.rank == 0)
    data = random.Random(context.seed_for("noise", context.world.rank)).randbytes(_BLOCK)
    passes = _passes(context, data)
    context.progress("check", 0, 1)
    quantum = Quantum(
        data, passes, compute_reference(data, passes), corrupt=context.planted("corrupt-result")
    )
    times = sorted(measure(context, quantum.work))
    told = (
        f"{quantum.wrong_count} results are wrong, the last {quantum.last_wrong:#010x}"
        if quantum.wrong_count
        else ""
    )
    context.check("work", float(quantum.wrong_count), 0.0, told)
    fastest = times[0]
    context.metric("lost_share", 1.0 - fastest / fmean(times))
    context.metric("slowest_ratio", times[int(_SLOWEST * (len(times) - 1))] / fastest)
    fastest_of_all = -context.largest(-fastest)
    if context.world.rank == 0:
        context.limit("time_ms", fastest_of_all, "the fastest quantum of all ranks")


def _passes(context: Context, data: bytes) -> int:
    """Return how many passes rank 0 makes in the time of a quantum: the same work for all."""
    seconds = []
    for _ in range(_TRIES):
        start = perf_counter()
        zlib.crc32(data)
        seconds.append(perf_counter() - start)
    passes = round(context.read_params(NoiseParams).quantum_us * 1e-6 / max(min(seconds), 1e-9))
    agreed: int = context.world.comm.bcast(max(1, passes))
    return agreed


def compute_reference(data: bytes, passes: int) -> int:
    """Return the CRC-32 of data that are repeated, by the linearity of the code.

    The register after a pass is a linear map of that before, plus a constant: of one pass both are
    found by a table of the polynomial, byte by byte, without zlib; then the map is applied.
    """
    table = [_of_byte(value) for value in range(256)]
    constant = _through(table, data, 0)
    columns = [_through(table, data, 1 << bit) ^ constant for bit in range(32)]
    register = 0xFFFFFFFF
    for _ in range(passes):
        mapped = constant
        for bit, column in enumerate(columns):
            if register >> bit & 1:
                mapped ^= column
        register = mapped
    return register ^ 0xFFFFFFFF


def _of_byte(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


def _through(table: list[int], data: bytes, register: int) -> int:
    for byte in data:
        register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register
