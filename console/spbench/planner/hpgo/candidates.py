"""The plans that HPGO scores.

HPGO divides the devices among ``n`` workers for every ``n``, with as many pipelines side by side as
possible, and searches the least block. It then scores each of these plans, two straight ones (one
worker per stage, with 2 workers or one per device), and every split in two.

Only some of that search can yield a plan. Without a split, ``n`` workers share the whole batch. No
split has a smaller block, and a split has the same block only if its cuts share the work exactly.
So the search over several workers per stage only tries such cuts, in addition to the unsplit model.
If ``n`` does not divide the devices, HPGO only sees the unsplit model as well.

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
"""Cells that are extended among splits that share the work exactly."""


def generate_candidates(
    work: HpgoWork, links: HpgoLinks, straight: HpgoCandidate | None
) -> Iterator[HpgoCandidate]:
    """Yield the plans that HPGO scores, in HPGO's order.

    Args:
        work: The model.
        links: The cluster.
        straight: The straight pipeline in the order of the devices; None if there is none.
    """
    placements = Placements(links.sizes)
    devices = sum(links.sizes)
    if devices == 1:
        yield build_unsplit(work, placements, 1, 1)
    for workers in range(2, devices + 1):
        pipelines = devices // workers
        yield build_unsplit(work, placements, workers, pipelines)
        if workers * pipelines == devices:
            candidate = _find_even_split(work, links, placements, workers, pipelines)
            if candidate is not None:
                yield candidate
    if devices > 2 and devices % 2 == 0:
        yield from _generate_on_halves(work, links, placements)
    if straight is not None:
        yield _find_straight(work, links, placements, straight.block) or straight
    yield from _generate_splits_in_two(work, links, placements)


def _find_even_split(
    work: HpgoWork, links: HpgoLinks, placements: Placements, workers: int, pipelines: int
) -> HpgoCandidate | None:
    """Return the best split that shares the work exactly; None if there is none."""
    import numpy as np

    share = work.compute * (workers / work.total)
    is_whole = np.abs(share - np.rint(share)) <= workers * (SLACK - 1.0)
    is_cut = is_whole & (np.rint(share) >= 1) & (np.rint(share) < workers)
    is_cut[-1] = True
    states = np.flatnonzero(is_cut)
    if len(states) == 1 or not work.micro_batches(pipelines):
        return None
    bound = work.total / (workers * pipelines)
    limits = SearchLimits(workers, pipelines, bound, keep=_KEEP)

    def following(used: Counts, need: int) -> tuple[Counts, ...]:
        return placements.place_groups(used, need, pipelines)

    return Table(work, links, limits, states, following).search(placements.place_first)


def _generate_on_halves(
    work: HpgoWork, links: HpgoLinks, placements: Placements
) -> Iterator[HpgoCandidate]:
    """Yield pipelines with one stage on each half of the cluster.

    A pipeline has one device of each half; the number of pipelines is that of a half's devices.
    """
    import numpy as np

    half = sum(links.sizes) // 2
    used = placements.place_first(half)
    groups = DeviceGroup(placements.empty, used), DeviceGroup(used, placements.full)
    head = work.compute[:-1]
    rate = 2.0 * links.transfer(*groups)
    block = np.maximum(np.maximum(head, work.total - head) / half, rate * work.crossing[:-1])
    block[~work.before[-1, :-1]] = np.inf
    for cut in np.flatnonzero(block <= block.min(initial=np.inf) * SLACK):  # HPGO takes any of them
        if np.isfinite(block[cut]):
            yield HpgoCandidate((int(cut), work.last), groups, half, float(block[cut]))


def _find_straight(
    work: HpgoWork, links: HpgoLinks, placements: Placements, bound: float
) -> HpgoCandidate | None:
    """Return the pipeline of one device per stage, in any order of the placements."""
    import numpy as np

    all_states = np.arange(work.last + 1)

    def search(bound: float, min_block: float) -> HpgoCandidate | None:
        limits = SearchLimits(sum(links.sizes), 1, bound, single=True, floor=min_block)
        return Table(work, links, limits, all_states, placements.place_by_each_policy).search(
            placements.place_first
        )

    candidate = search(bound, 0.0)
    # The second search takes blocks up to the least one as equal, so it finds the least messages.
    return candidate and search(candidate.block, candidate.block)


def _generate_splits_in_two(
    work: HpgoWork, links: HpgoLinks, placements: Placements
) -> Iterator[HpgoCandidate]:
    """Yield the best split in two for each pair of groups that use all devices."""
    if work.last == 0 or not work.micro_batches(1):
        return
    devices = sum(links.sizes)
    for first in range(1, devices):
        for used in placements.place_by_each_policy(placements.empty, first):
            groups = DeviceGroup(placements.empty, used), DeviceGroup(used, placements.full)
            cut, block = _find_best_cut(work, links, groups, first, devices - first)
            yield HpgoCandidate((cut, work.last), groups, 1, block)


def _find_best_cut(
    work: HpgoWork,
    links: HpgoLinks,
    groups: tuple[DeviceGroup, DeviceGroup],
    first: int,
    second: int,
) -> tuple[int, float]:
    """Return the cut of a split in two with the least step, and its block."""
    import numpy as np

    count = work.micro_batches(1)
    head = work.compute[:-1]
    send_s = work.crossing[:-1] * links.transfer(*groups)
    block = np.maximum(np.maximum(head / first, (work.total - head) / second), send_s)
    total_bytes = work.parameters[-1]
    tail_s = np.maximum(
        links.all_reduce(groups[0]) * work.parameters[1:],
        links.all_reduce(groups[1]) * (total_bytes - work.parameters[:-1]) - block / count,
    )
    step_s = block / count * (count - 1) + send_s / count + np.maximum(tail_s, 0.0)
    cut = len(step_s) - 1 - int(step_s[::-1].argmin())  # HPGO takes the last of equals
    return cut, float(block[cut])
