"""How devices of several speeds share the samples of a micro-batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

_SLACK = 1e-9


def share(speeds: Sequence[tuple[float, int]], samples: int) -> list[int]:
    """Return the largest share of each kind of device, so that the slowest is as fast as can be.

    Shares are whole samples. In the least time in which all can be done, a device does at most
    what it has the time for.

    Args:
        speeds: The speed of each kind, and how many devices there are of it.
        samples: Samples to share.
    """
    if len(speeds) == 1:
        return [math.ceil(samples / speeds[0][1])]
    times = sorted({count / speed for speed, _ in speeds for count in range(1, samples + 1)})
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        if _done(speeds, times[middle]) >= samples:
            high = middle
        else:
            low = middle + 1
    return [min(_in(times[low], speed), samples) for speed, _ in speeds]


def _in(seconds: float, speed: float) -> int:
    return math.floor(seconds * speed * (1.0 + _SLACK))


def _done(speeds: Sequence[tuple[float, int]], seconds: float) -> int:
    return sum(_in(seconds, speed) * count for speed, count in speeds)
