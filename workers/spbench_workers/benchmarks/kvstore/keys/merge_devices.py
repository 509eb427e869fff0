"""Merge devices of keys (MXNet's comm.h): the device on which a key is summed; load balance."""

from __future__ import annotations

from collections.abc import Sequence


def assign_largest_first(sizes: Sequence[int], places: int) -> list[int]:
    """Return a place for each size: the largest first, each to the least loaded place.

    Equal sizes keep their order, and of equally loaded places the first is taken, so that every
    rank comes to the same answer. The fullest place holds at most 4/3 - 1/(3 places) of what it
    must at best (Graham, 1969).
    """
    loads = [0] * places
    chosen = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        place = loads.index(min(loads))
        chosen[index] = place
        loads[place] += sizes[index]
    return chosen


def sum_loads(sizes: Sequence[int], chosen: Sequence[int], places: int) -> list[int]:
    """Return the load of each place: the sum of the sizes that are assigned to it."""
    loads = [0] * places
    for size, place in zip(sizes, chosen, strict=True):
        loads[place] += size
    return loads


def max_over_mean(loads: Sequence[int]) -> float:
    """Return the fullest place's load over the mean: 1.0 is even, also where there is nothing."""
    total = sum(loads)
    return max(loads) * len(loads) / total if total else 1.0


def assign_merge_devices(elements: Sequence[int], devices: int) -> list[int]:
    """Return each key's merge device among a worker's, as MXNet's ``device`` store has it.

    Keys go by size, largest first, each to the least loaded device. None is ever split, so that
    one large array may keep its merge device busy while the others wait.

    Args:
        elements: Elements of each key, in key order.
        devices: Devices of the worker.
    """
    return assign_largest_first(elements, devices)


def compute_imbalance(chosen: Sequence[int], elements: Sequence[int], devices: int) -> float:
    """Return the load of the fullest merge device over the mean of all devices; 1.0 is even."""
    return max_over_mean(sum_loads(elements, chosen, devices))
