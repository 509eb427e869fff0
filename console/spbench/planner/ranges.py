"""The ranges of the planner's numbers; far beyond them sums overflow, or round to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``least`` to ``most`` in a unit, and 0 where ``zero`` is set."""

    minimum: float
    maximum: float
    unit: str = ""
    allows_zero: bool = False

    def contains(self, value: float) -> bool:
        """Return whether a number is in it."""
        return self.minimum <= value <= self.maximum or (self.allows_zero and value == 0)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a number in it."""
        ends = {"type": "number", "minimum": self.minimum, "maximum": self.maximum}
        return {"anyOf": [ends, {"const": 0}]} if self.allows_zero else ends

    def __str__(self) -> str:
        ends = f"from {_short(self.minimum)} to {_short(self.maximum)} {self.unit}".rstrip()
        return f"0 or {ends}" if self.allows_zero else ends


def _short(value: float) -> str:
    return f"{value:g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


TIMES_MS = Range(1e-9, 1e12, "ms", allows_zero=True)
"""Times of a layer."""
SIZES = Range(1e-3, 1e18, "bytes", allows_zero=True)
"""Sizes of a layer."""
MEMORIES = Range(1.0, 1e18, "bytes")
"""Memories of a device, and peaks of a sample."""
SPEEDS = Range(1e-6, 1e6)
"""Speeds of a device against that of the profile."""
BANDWIDTHS = Range(1.0, 1e18, "bytes a second")
"""Bandwidths of a link."""
DELAYS_S = Range(0.0, 1e6, "s")
"""Latencies and overheads of a link."""
SCALINGS = Range(1.0, 1e4)
"""Bytes kept for each byte of parameters."""
MAX_DEVICES = 1 << 16
"""Devices of a cluster, in all."""
MAX_BATCH = 1 << 18
"""Samples of a batch; a step is simulated one micro-batch after another."""
