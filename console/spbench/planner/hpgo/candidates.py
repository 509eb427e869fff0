"""The plans that HPGO scores.

HPGO deals the devices to ``n`` workers for every ``n``, with as many pipelines side by side as
that allows, and looks for the least block; it then scores each of these plans, two straight ones
(a worker a stage, with 2 workers or one a device), and every split in two.

Only some of that search can yield a plan. With ``n`` workers the model need not be split at all,
and its block is then the whole batch shared by all: no split can be below that mean, and it can be
as low only where the cuts share the work exactly. So the search over several workers a stage looks
at such cuts alone, beside the unsplit model. Where ``n`` does not divide the devices, HPGO sees
the unsplit model alone as well.

Source: HPGO, src/layerwise/orchestration/orchestrate_async.rs (``orchestrate``).
"""

from __future__ import annotations

from collections.abc import Iterator

from spbench.planner.cluster.placement import Counts, DeviceGroup, Placements
from spbench.planner.hpgo.cells import SLACK, SearchLimits
from spbench.planner.hpgo.costs import HpgoCandidate, HpgoLinks, HpgoWork
from spbench.planner.hpgo.straight import build_unsplit
from spbench.planner.hpgo.table import Table

_KEEP = 8
"""Placements that are followed among splits that share the work exactly."""


def generate_candidates(
    work: HpgoWork, wires: HpgoLinks, straight: HpgoCandidate | None
) -> Iterator[HpgoCandidate]:
    """Yield the plans that HPGO scores, in its order.

    Args:
        work: The model.
        wires: The cluster.
        straight: The straight pipeline in the devices' order, None where there is none.
    """
    placements = Placements(wires.sizes)
    devices = sum(wires.sizes)
    if devices == 1:
        yield build_unsplit(work, placements, 1, 1)
    for workers in range(2, devices + 1):
        pipelines = devices // workers
        yield build_unsplit(work, placements, workers, pipelines)
        if workers * pipelines == devices:
            draft = _even(work, wires, placements, workers, pipelines)
            if draft is not None:
                yield draft
    if devices > 2 and devices % 2 == 0:
        yield from _halves(work, wires, placements)
    if straight is not None:
        yield _straight(work, wires, placements, straight.block) or straight
    yield from _splits_in_two(work, wires, placements)


def _even(
    work: HpgoWork, wires: HpgoLinks, placements: Placements, workers: int, pipelines: int
) -> HpgoCandidate | None:
    """Return the best split that shares the work exactly, if there is any."""
    import numpy as np

    share = work.compute * (workers / work.total)
    whole = np.abs(share - np.rint(share)) <= workers * (SLACK - 1.0)
    inner = whole & (np.rint(share) >= 1) & (np.rint(share) < workers)
    inner[-1] = True
    states = np.flatnonzero(inner)
    if len(states) == 1 or not work.micro_batches(pipelines):
        return None
    bound = work.total / (workers * pipelines)
    shape = SearchLimits(workers, pipelines, bound, keep=_KEEP)

    def following(used: Counts, need: int) -> tuple[Counts, ...]:
        return placements.place_groups(used, need, pipelines)

    return Table(work, wires, shape, states, following).search(placements.place_first)


def _halves(work: HpgoWork, wires: HpgoLinks, placements: Placements) -> Iterator[HpgoCandidate]:
    """Yield the pipelines of one device on either half of the cluster."""
    import numpy as np

    half = sum(wires.sizes) // 2
    used = placements.place_first(half)
    groups = DeviceGroup(placements.empty, used), DeviceGroup(used, placements.full)
    head = work.compute[:-1]
    rate = 2.0 * wires.transfer(*groups)
    block = np.maximum(np.maximum(head, work.total - head) / half, rate * work.crossing[:-1])
    block[~work.before[-1, :-1]] = np.inf
    for cut in np.flatnonzero(block <= block.min(initial=np.inf) * SLACK):  # HPGO takes any
        if np.isfinite(block[cut]):
            yield HpgoCandidate((int(cut), work.last), groups, half, float(block[cut]))


def _straight(
    work: HpgoWork, wires: HpgoLinks, placements: Placements, bound: float
) -> HpgoCandidate | None:
    """Return the pipeline of one device a stage, in any order that the placements make."""
    import numpy as np

    everything = np.arange(work.last + 1)

    def least(bound: float, floor: float) -> HpgoCandidate | None:
        shape = SearchLimits(sum(wires.sizes), 1, bound, single=True, floor=floor)
        return Table(work, wires, shape, everything, placements.place_by_each_policy).search(
            placements.place_first
        )

    found = least(bound, 0.0)
    # Again, for the least messages: below the least block of all no block makes a difference.
    return found and least(found.block, found.block)


def _splits_in_two(
    work: HpgoWork, wires: HpgoLinks, placements: Placements
) -> Iterator[HpgoCandidate]:
    """Yield, for each pair of groups that take all devices, the split with the best estimate."""
    if work.last == 0 or not work.micro_batches(1):
        return
    devices = sum(wires.sizes)
    for first in range(1, devices):
        for used in placements.place_by_each_policy(placements.empty, first):
            groups = DeviceGroup(placements.empty, used), DeviceGroup(used, placements.full)
            cut, block = _best_cut(work, wires, groups, first, devices - first)
            yield HpgoCandidate((cut, work.last), groups, 1, block)


def _best_cut(
    work: HpgoWork,
    wires: HpgoLinks,
    groups: tuple[DeviceGroup, DeviceGroup],
    first: int,
    second: int,
) -> tuple[int, float]:
    """Return the cut of a split in two with the least step, and its block."""
    import numpy as np

    count = work.micro_batches(1)
    head = work.compute[:-1]
    sent = work.crossing[:-1] * wires.transfer(*groups)
    block = np.maximum(np.maximum(head / first, (work.total - head) / second), sent)
    whole = work.parameters[-1]
    tail = np.maximum(
        wires.all_reduce(groups[0]) * work.parameters[1:],
        wires.all_reduce(groups[1]) * (whole - work.parameters[:-1]) - block / count,
    )
    step = block / count * (count - 1) + sent / count + np.maximum(tail, 0.0)
    cut = len(step) - 1 - int(step[::-1].argmin())  # of equals the last one, as HPGO has it
    return cut, float(block[cut])
