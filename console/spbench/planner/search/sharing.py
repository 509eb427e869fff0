"""Load balance within a group: a micro-batch's samples by the speeds of the devices."""

from __future__ import annotations

import math
from collections.abc import Sequence

_SLACK = 1e-9


def share_samples(speeds: Sequence[tuple[float, int]], samples: int) -> list[int]:
    """Return the largest share of each kind of device, so that the slowest is as fast as can be.

    Shares are whole samples. In the least time in which all can be done, a device does at most
    what it has the time for.

    Args:
        speeds: The speed of each kind, and how many devices there are of it.
        samples: Samples to share.
    """
    if len(speeds) == 1:
        return [math.ceil(samples / speeds[0][1])]
    least = min(_least(speeds, speed, samples) for speed, _ in speeds)
    return [min(_in(least, speed), samples) for speed, _ in speeds]


def _least(speeds: Sequence[tuple[float, int]], speed: float, samples: int) -> float:
    """Return the least time of whole samples at one speed in which all devices do enough."""
    low = 1
    high = samples
    while low < high:
        middle = (low + high) // 2
        if _done(speeds, middle / speed) >= samples:
            high = middle
        else:
            low = middle + 1
    return low / speed


def _in(seconds: float, speed: float) -> int:
    return math.floor(seconds * speed * (1.0 + _SLACK))


def _done(speeds: Sequence[tuple[float, int]], seconds: float) -> int:
    return sum(_in(seconds, speed) * count for speed, count in speeds)
