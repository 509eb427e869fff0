"""Merge devices, which sum keys (comm.h of MXNet), and the balance of their load."""

from __future__ import annotations

from collections.abc import Sequence


def assign_largest_first(sizes: Sequence[int], bins: int) -> list[int]:
    """Assign sizes to bins, the largest first, each to the least loaded bin.

    Equal sizes keep their order, and the first of equally loaded bins is taken, so that every rank
    computes the same assignment. The fullest bin has at most 4/3 - 1/(3 bins) of its optimal load
    (Graham, 1969).
    """
    loads = [0] * bins
    chosen = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        bin_ = loads.index(min(loads))
        chosen[index] = bin_
        loads[bin_] += sizes[index]
    return chosen


def sum_loads(sizes: Sequence[int], chosen: Sequence[int], bins: int) -> list[int]:
    """Return the load of each bin: the sum of the sizes assigned to it."""
    loads = [0] * bins
    for size, bin_ in zip(sizes, chosen, strict=True):
        loads[bin_] += size
    return loads


def max_over_mean(loads: Sequence[int]) -> float:
    """Return the fullest bin's load over the mean; 1.0 if the loads are equal or 0."""
    total = sum(loads)
    return max(loads) * len(loads) / total if total else 1.0


def assign_merge_devices(elements: Sequence[int], devices: int) -> list[int]:
    """Return each key's merge device of a worker, like MXNet's ``device`` store.

    Keys are assigned by size, the largest first, each to the least loaded device. Keys are not
    split, so one large array may keep its merge device busy while the others wait.

    Args:
        elements: Elements of each key, in key order.
        devices: Devices of the worker.
    """
    return assign_largest_first(elements, devices)


def compute_imbalance(chosen: Sequence[int], elements: Sequence[int], devices: int) -> float:
    """Return the fullest merge device's load over the mean; 1.0 is even."""
    return max_over_mean(sum_loads(elements, chosen, devices))
