"""Measured times in sentences of ranks, with three digits and a unit that fits."""

from __future__ import annotations

import math

_UNITS = ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s"))


def format_duration(seconds: float) -> str:
    """Return a time as ``28.2 us``, ``1.91 ms`` or ``27.2 s``."""
    if seconds == 0 or not math.isfinite(seconds):
        return f"{seconds:g} s"
    size = float(f"{abs(seconds):.3g}")  # 999.6 us is 1.00 ms
    scale, unit = next((each for each in reversed(_UNITS) if size >= each[0]), _UNITS[0])
    digits = max(0, 2 - math.floor(math.log10(size / scale * (1 + 1e-12))))
    return f"{seconds / scale:.{digits}f} {unit}"
