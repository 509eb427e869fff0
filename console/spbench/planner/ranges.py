"""The ranges of the planner's numbers, in which sums neither overflow nor vanish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from a minimum to a maximum in a unit, and 0 if ``allows_zero`` is set."""

    minimum: float
    maximum: float
    unit: str = ""
    allows_zero: bool = False

    def contains(self, value: float) -> bool:
        """Return whether a number is in the range."""
        return self.minimum <= value <= self.maximum or (self.allows_zero and value == 0)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a number in the range."""
        ends = {"type": "number", "minimum": self.minimum, "maximum": self.maximum}
        return {"anyOf": [ends, {"const": 0}]} if self.allows_zero else ends

    def __str__(self) -> str:
        minimum = _format_short(self.minimum)
        maximum = _format_short(self.maximum)
        ends = f"from {minimum} to {maximum} {self.unit}".rstrip()
        return f"0 or {ends}" if self.allows_zero else ends


def _format_short(value: float) -> str:
    return f"{value:g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


TIMES_MS = Range(1e-9, 1e12, "ms", allows_zero=True)
"""Times of a layer."""
SIZES = Range(1e-3, 1e18, "bytes", allows_zero=True)
"""Sizes of a layer."""
MEMORIES = Range(1.0, 1e18, "bytes")
"""Memories of a device, and peaks of a sample."""
SPEEDS = Range(1e-6, 1e6)
"""Speeds of a device relative to that of the profile."""
BANDWIDTHS = Range(1.0, 1e18, "bytes a second")
"""Bandwidths of a link."""
DELAYS_S = Range(0.0, 1e6, "s")
"""Latencies and overheads of a link."""
SCALINGS = Range(1.0, 1e4)
"""Bytes kept per byte of parameters."""
MAX_DEVICES = 1 << 16
"""The most devices of a cluster."""
MAX_BATCH = 1 << 18
"""The most samples of a batch, since a step is simulated micro-batch by micro-batch."""
