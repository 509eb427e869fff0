"""The readings of a host's GPUs in a heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from spbench_core.events.fields import (
    ABSENT,
    FLAG,
    INTEGER,
    LIST,
    NUMBER,
    OBJECT,
    TEXT,
    EventError,
    Fields,
    check_fields,
    check_items,
)

MAX_GPUS = 16
"""The largest number of GPUs in a heartbeat."""


class ThrottleReason(StrEnum):
    """The reason why the clocks of a GPU are reduced, the most serious first."""

    HARDWARE_THERMAL = "hardware thermal"
    POWER_BRAKE = "power brake"
    HARDWARE_SLOWDOWN = "hardware slowdown"
    THERMAL = "thermal"
    RELIABILITY = "reliability"
    BOARD_LIMIT = "board limit"
    POWER_CAP = "power cap"
    SYNC_BOOST = "sync boost"


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One reading of a GPU; values that it does not provide are None.

    Attributes:
        index: The GPU's number by NVML, which counts all GPUs of the host.
        lost: Whether the driver has lost the GPU. All other values are None then.
        address: The PCI address, ``0000:81:00.0``.
        name: The model.
        utilization: The share of the time in which a kernel ran.
        memory_used_bytes: The used memory, including the driver's reserve.
        power_limit_w: The power limit that applies.
        throttle_reasons: Why the clocks are reduced; empty if they are not.

    The address, the name, the total memory, the power limit and the largest clock rates do not
    change. A rank sends them only in its first reading.
    """

    index: int
    lost: bool | None = None
    address: str | None = None
    name: str | None = None
    utilization: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    max_memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[ThrottleReason, ...] | None = None

    @classmethod
    def from_fields(cls, reading: Mapping[str, Any]) -> Self:
        """Return a reading of a checked heartbeat, without unknown fields and reasons."""
        values = {name: reading[name] for name in _TYPES if name in reading}
        if "throttle_reasons" in values:
            values["throttle_reasons"] = tuple(
                ThrottleReason(reason)
                for reason in values["throttle_reasons"]
                if reason in _REASONS
            )
        return cls(**values)

    def to_fields(self) -> dict[str, Any]:
        """Return the values that are known."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


_NUMBER = NUMBER | ABSENT
_TYPES: Fields = {
    "index": INTEGER,
    "lost": FLAG | ABSENT,
    "address": TEXT | ABSENT,
    "name": TEXT | ABSENT,
    "utilization": _NUMBER,
    "memory_used_bytes": _NUMBER,
    "memory_total_bytes": _NUMBER,
    "power_w": _NUMBER,
    "power_limit_w": _NUMBER,
    "sm_clock_mhz": _NUMBER,
    "max_sm_clock_mhz": _NUMBER,
    "memory_clock_mhz": _NUMBER,
    "max_memory_clock_mhz": _NUMBER,
    "temperature_c": _NUMBER,
    "throttle_reasons": LIST | ABSENT,
}
_REASONS = frozenset(ThrottleReason)


def check_gpu_readings(readings: Sequence[Any]) -> None:
    """Check the readings of a heartbeat.

    Raises:
        EventError: There are too many, or one has a field of a wrong type.
    """
    if len(readings) > MAX_GPUS:
        raise EventError(f"heartbeat: {len(readings)} GPUs (expected at most {MAX_GPUS})")
    check_items("heartbeat", "gpus", readings, OBJECT)
    for reading in readings:
        check_fields("a GPU of heartbeat", reading, _TYPES)
        check_items("heartbeat", "throttle_reasons", reading.get("throttle_reasons", ()), TEXT)
