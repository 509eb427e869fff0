"""The GPUs of a run's hosts over time, from the heartbeats of ranks."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spbench.record.machine.host_loads import HISTORY_LENGTH
from spbench_core.events.gpu_readings import GpuReading, ThrottleReason

GpuKey = tuple[str, int]
"""A host, and the number of one of its GPUs."""


@dataclass(slots=True)
class ReadingSummary:
    """The mean and the extremes of one quantity; None without readings."""

    count: int = 0
    total: float = 0.0
    lowest: float | None = None
    highest: float | None = None

    def add(self, value: float | None) -> None:
        """Add a reading, unless it is unknown."""
        if value is None:
            return
        self.lowest = value if self.lowest is None else min(self.lowest, value)
        self.highest = value if self.highest is None else max(self.highest, value)
        self.count += 1
        self.total += value

    @property
    def mean(self) -> float | None:
        """The mean of all readings; None without any."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class GpuFigures:
    """The figures of a GPU over a run, or over the timed part of a case.

    Attributes:
        num_readings: The number of readings, including those of a lost GPU.
        num_throttle_readings: The number of readings with known throttle reasons.
        throttled: The number of readings with each throttle reason.
        lost: Whether the driver has lost the GPU.
    """

    num_readings: int = 0
    num_throttle_readings: int = 0
    throttled: Counter[ThrottleReason] = field(default_factory=Counter)
    utilization: ReadingSummary = field(default_factory=ReadingSummary)
    memory_used_bytes: ReadingSummary = field(default_factory=ReadingSummary)
    power_w: ReadingSummary = field(default_factory=ReadingSummary)
    sm_clock_mhz: ReadingSummary = field(default_factory=ReadingSummary)
    temperature_c: ReadingSummary = field(default_factory=ReadingSummary)
    lost: bool = False

    def add(self, reading: GpuReading) -> None:
        """Add a reading."""
        self.num_readings += 1
        self.lost = self.lost or bool(reading.lost)
        self.utilization.add(reading.utilization)
        self.memory_used_bytes.add(reading.memory_used_bytes)
        self.power_w.add(reading.power_w)
        self.sm_clock_mhz.add(reading.sm_clock_mhz)
        self.temperature_c.add(reading.temperature_c)
        if reading.throttle_reasons is not None:
            self.num_throttle_readings += 1
            self.throttled.update(reading.throttle_reasons)

    @property
    def throttle_shares(self) -> dict[ThrottleReason, float] | None:
        """The share of the time with each reason; None if the GPU does not report reasons."""
        if not self.num_throttle_readings:
            return None
        return {
            reason: self.throttled[reason] / self.num_throttle_readings
            for reason in ThrottleReason
            if self.throttled[reason]
        }


@dataclass(slots=True)
class GpuState:
    """A GPU of a run.

    Attributes:
        facts: The values that do not change.
        newest: The newest reading.
        history: The newest utilizations, for drawing.
    """

    host: str
    facts: GpuReading
    newest: GpuReading
    history: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    figures: GpuFigures = field(default_factory=GpuFigures)

    def add(self, reading: GpuReading) -> None:
        """Add a reading; facts of earlier readings are kept."""
        known_facts = {
            name: value for name in _FACTS if (value := getattr(reading, name)) is not None
        }
        if known_facts:
            self.facts = replace(self.facts, **known_facts)
        self.newest = reading
        self.figures.add(reading)
        if reading.utilization is not None:
            self.history.append(reading.utilization)


_FACTS = (
    "address",
    "name",
    "memory_total_bytes",
    "power_limit_w",
    "max_sm_clock_mhz",
    "max_memory_clock_mhz",
)


class GpuLoads:
    """The GPUs of a run's hosts. Their size does not grow with time."""

    def __init__(self) -> None:
        self._gpus: dict[GpuKey, GpuState] = {}
        self._by_address: dict[tuple[str, str], GpuKey] = {}
        self._address_by_rank: dict[int, tuple[str, str]] = {}
        self._ranks: dict[tuple[str, str], set[int]] = defaultdict(set)

    def __bool__(self) -> bool:
        return bool(self._gpus)

    def add(self, host: str, readings: Iterable[Mapping[str, Any]]) -> list[GpuState]:
        """Add the readings of a host, which one of its ranks sends, and return their GPUs."""
        gpus = []
        for reading in map(GpuReading.from_fields, readings):
            key = host, reading.index
            gpu = self._gpus.get(key)
            if gpu is None:
                gpu = self._gpus[key] = GpuState(host, GpuReading(reading.index), reading)
            gpu.add(reading)
            gpus.append(gpu)
            if reading.address is not None:
                self._by_address[host, reading.address] = key
        return gpus

    def keys(self) -> list[GpuKey]:
        """Return the GPUs in the order of their first reading."""
        return list(self._gpus)

    def get(self, key: GpuKey) -> GpuState:
        """Return one of ``keys()``."""
        return self._gpus[key]

    def values(self) -> Iterable[GpuState]:
        """Return the GPUs in the same order."""
        return self._gpus.values()

    def find(self, host: str, address: str | None) -> GpuState | None:
        """Return the GPU at a PCI address of a host; None if there are no readings of it."""
        key = self._by_address.get((host, address)) if address is not None else None
        return None if key is None else self._gpus[key]

    def assign(self, rank: int, host: str, address: str | None) -> None:
        """Note the GPU that a rank uses from now on; None for the CPU."""
        previous = self._address_by_rank.pop(rank, None)
        if previous is not None:
            self._ranks[previous].discard(rank)
        if address is not None:
            self._address_by_rank[rank] = host, address
            self._ranks[host, address].add(rank)

    def forget_ranks(self) -> None:
        """Forget which rank uses which GPU, because other ranks start."""
        self._address_by_rank.clear()
        self._ranks.clear()

    def ranks(self, gpu: GpuState) -> Sequence[int]:
        """Return the ranks that use a GPU."""
        if gpu.facts.address is None:
            return ()
        return sorted(self._ranks.get((gpu.host, gpu.facts.address), ()))


def compute_mean_utilization(gpus: Iterable[GpuState]) -> float | None:
    """Return the newest mean utilization of GPUs; None if none reports it."""
    shares = [share for gpu in gpus if (share := gpu.newest.utilization) is not None]
    return sum(shares) / len(shares) if shares else None
