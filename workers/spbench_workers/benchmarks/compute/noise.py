"""Benchmark ``compute.noise``: repeated equal work, and the time lost in it.

The work is a fixed quantum, like FWQ of the Sequoia benchmarks. A quantum slower than the fastest
was interrupted by the kernel, a daemon or another job, or ran at a lower clock rate.
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
"""Bytes of the data, which stay in the L1 cache."""
_TRIES = 7
_POLYNOMIAL = 0xEDB88320
_SLOWEST = 0.999


class Quantum:
    """A fixed amount of work: the CRC-32 of repeated data, checked each time.

    Args:
        data: The bytes.
        passes: The number of repetitions of the data.
        expected: The expected CRC.
        corrupt: Whether a fault changes the result.

    Attributes:
        wrong_count: The number of wrong results.
        last_wrong: The last wrong result.
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
        checksum = 0
        for _ in self._passes:
            checksum = crc(data, checksum)
        checksum ^= self._change
        if checksum != self._expected:
            self.wrong_count += 1
            self.last_wrong = checksum


def run(context: Context) -> None:
    """Run the case."""
    context.device("cpu", "it is the cores that are looked at", speaks=context.world.rank == 0)
    data = random.Random(context.seed_for("noise", context.world.rank)).randbytes(_BLOCK)
    passes = _count_passes(context, data)
    context.progress("check", 0, 1)
    quantum = Quantum(
        data, passes, compute_reference(data, passes), corrupt=context.planted("corrupt-result")
    )
    times_ms = sorted(measure(context, quantum.work))
    detail = ""
    if quantum.wrong_count:
        detail = f"{quantum.wrong_count} results are wrong, the last {quantum.last_wrong:#010x}"
    context.check("work", float(quantum.wrong_count), 0.0, detail)
    fastest_ms = times_ms[0]
    context.metric("lost_share", 1.0 - fastest_ms / fmean(times_ms))
    context.metric("slowest_ratio", times_ms[int(_SLOWEST * (len(times_ms) - 1))] / fastest_ms)
    fastest_of_all_ms = -context.largest(-fastest_ms)
    if context.world.rank == 0:
        context.limit("time_ms", fastest_of_all_ms, "the fastest quantum of all ranks")


def _count_passes(context: Context, data: bytes) -> int:
    """Return rank 0's passes in the time of a quantum; all ranks do the same work."""
    seconds = []
    for _ in range(_TRIES):
        start = perf_counter()
        zlib.crc32(data)
        seconds.append(perf_counter() - start)
    passes = round(context.read_params(NoiseParams).quantum_us * 1e-6 / max(min(seconds), 1e-9))
    agreed_passes: int = context.world.comm.bcast(max(1, passes))
    return agreed_passes


def compute_reference(data: bytes, passes: int) -> int:
    """Return the CRC-32 of repeated data by the linearity of the code.

    The register after a pass is a linear map of the register before it, plus a constant. Both are
    computed for one pass by a table of the polynomial, without zlib. Then the map is applied.
    """
    table = [_compute_table_entry(value) for value in range(256)]
    constant = _update_register(table, data, 0)
    columns = [_update_register(table, data, 1 << bit) ^ constant for bit in range(32)]
    register = 0xFFFFFFFF
    for _ in range(passes):
        next_register = constant
        for bit, column in enumerate(columns):
            if register >> bit & 1:
                next_register ^= column
        register = next_register
    return register ^ 0xFFFFFFFF


def _compute_table_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


def _update_register(table: list[int], data: bytes, register: int) -> int:
    for byte in data:
        register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register
