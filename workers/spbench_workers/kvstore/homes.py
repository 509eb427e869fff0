"""Homes of keys in the store on devices: where a key is summed, and its optimizer runs."""

from __future__ import annotations

from collections.abc import Sequence

from spbench_workers.kvstore.balance import largest_first, loads_of, max_over_mean


def homes(elements: Sequence[int], devices: int) -> list[int]:
    """Return each key's home among the devices of a worker, as MXNet's ``device`` store does.

    Keys go by size, largest first, each to the least loaded device. None is ever split, so that
    one large array may keep its home busy while the others wait.

    Args:
        elements: Elements of each key, in key order.
        devices: Devices of the worker.
    """
    return largest_first(elements, devices)


def imbalance(chosen: Sequence[int], elements: Sequence[int], devices: int) -> float:
    """Return the load of the busiest home over the mean of all devices; 1.0 is even."""
    return max_over_mean(loads_of(elements, chosen, devices))
