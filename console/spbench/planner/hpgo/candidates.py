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
from spbench.planner.hpgo.costs import HpgoCandidate, HpgoCluster, HpgoModel
from spbench.planner.hpgo.straight import build_unsplit
from spbench.planner.hpgo.table import SplitTable

_MAX_CELLS = 8
"""Cells that are extended among splits that share the work exactly."""


def generate_candidates(
    model: HpgoModel, hpgo_cluster: HpgoCluster, straight: HpgoCandidate | None
) -> Iterator[HpgoCandidate]:
    """Yield the plans that HPGO scores, in HPGO's order.

    Args:
        model: The model.
        hpgo_cluster: The cluster.
        straight: The straight pipeline in the order of the devices; None if there is none.
    """
    placements = Placements(hpgo_cluster.sizes)
    devices = sum(hpgo_cluster.sizes)
    if devices == 1:
        yield build_unsplit(model, placements, 1, 1)
    for workers in range(2, devices + 1):
        pipelines = devices // workers
        yield build_unsplit(model, placements, workers, pipelines)
        if workers * pipelines == devices:
            candidate = _find_even_split(model, hpgo_cluster, placements, workers, pipelines)
            if candidate is not None:
                yield candidate
    if devices > 2 and devices % 2 == 0:
        yield from _generate_on_halves(model, hpgo_cluster, placements)
    if straight is not None:
        yield _find_straight(model, hpgo_cluster, placements, straight.block_s) or straight
    yield from _generate_splits_in_two(model, hpgo_cluster, placements)


def _find_even_split(
    model: HpgoModel,
    hpgo_cluster: HpgoCluster,
    placements: Placements,
    workers: int,
    pipelines: int,
) -> HpgoCandidate | None:
    """Return the best split that shares the work exactly; None if there is none."""
    import numpy as np

    work_in_workers = model.compute_s * (workers / model.total_s)
    is_whole = np.abs(work_in_workers - np.rint(work_in_workers)) <= workers * (SLACK - 1.0)
    is_cut = is_whole & (np.rint(work_in_workers) >= 1) & (np.rint(work_in_workers) < workers)
    is_cut[-1] = True
    cut_states = np.flatnonzero(is_cut)
    if len(cut_states) == 1 or not model.count_micro_batches(pipelines):
        return None
    bound_s = model.total_s / (workers * pipelines)
    limits = SearchLimits(workers, pipelines, bound_s, max_cells=_MAX_CELLS)

    def place_next(used: Counts, workers_in_stage: int) -> tuple[Counts, ...]:
        return placements.place_groups(used, workers_in_stage, pipelines)

    return SplitTable(model, hpgo_cluster, limits, cut_states, place_next).search(
        placements.place_first
    )


def _generate_on_halves(
    model: HpgoModel, hpgo_cluster: HpgoCluster, placements: Placements
) -> Iterator[HpgoCandidate]:
    """Yield pipelines with one stage on each half of the cluster.

    A pipeline has one device of each half; the number of pipelines is that of a half's devices.
    """
    import numpy as np

    half_devices = sum(hpgo_cluster.sizes) // 2
    first_half = placements.place_first(half_devices)
    groups = DeviceGroup(placements.empty, first_half), DeviceGroup(first_half, placements.full)
    work_before_s = model.compute_s[:-1]
    round_trip_s_per_byte = 2.0 * hpgo_cluster.compute_transfer_s_per_byte(*groups)
    block_s = np.maximum(
        np.maximum(work_before_s, model.total_s - work_before_s) / half_devices,
        round_trip_s_per_byte * model.crossing_bytes[:-1],
    )
    block_s[~model.can_precede[-1, :-1]] = np.inf
    # HPGO takes any of the equally good cuts.
    for cut in np.flatnonzero(block_s <= block_s.min(initial=np.inf) * SLACK):
        if np.isfinite(block_s[cut]):
            yield HpgoCandidate((int(cut), model.last), groups, half_devices, float(block_s[cut]))


def _find_straight(
    model: HpgoModel, hpgo_cluster: HpgoCluster, placements: Placements, bound_s: float
) -> HpgoCandidate | None:
    """Return the pipeline of one device per stage, in any order of the placements."""
    import numpy as np

    all_states = np.arange(model.last + 1)

    def search(bound_s: float, min_block_s: float) -> HpgoCandidate | None:
        limits = SearchLimits(
            sum(hpgo_cluster.sizes),
            1,
            bound_s,
            is_one_worker_per_stage=True,
            min_block_s=min_block_s,
        )
        return SplitTable(
            model, hpgo_cluster, limits, all_states, placements.place_by_each_policy
        ).search(placements.place_first)

    candidate = search(bound_s, 0.0)
    # The second search takes blocks up to the least one as equal, so it finds the least messages.
    return candidate and search(candidate.block_s, candidate.block_s)


def _generate_splits_in_two(
    model: HpgoModel, hpgo_cluster: HpgoCluster, placements: Placements
) -> Iterator[HpgoCandidate]:
    """Yield the best split in two for each pair of groups that use all devices."""
    if model.last == 0 or not model.count_micro_batches(1):
        return
    devices = sum(hpgo_cluster.sizes)
    for first_devices in range(1, devices):
        for used in placements.place_by_each_policy(placements.empty, first_devices):
            groups = DeviceGroup(placements.empty, used), DeviceGroup(used, placements.full)
            cut, block_s = _find_best_cut_and_block_s(
                model, hpgo_cluster, groups, first_devices, devices - first_devices
            )
            yield HpgoCandidate((cut, model.last), groups, 1, block_s)


def _find_best_cut_and_block_s(
    model: HpgoModel,
    hpgo_cluster: HpgoCluster,
    groups: tuple[DeviceGroup, DeviceGroup],
    first_devices: int,
    second_devices: int,
) -> tuple[int, float]:
    """Return the cut of a split in two with the least step, and its block."""
    import numpy as np

    micro_batches = model.count_micro_batches(1)
    work_before_s = model.compute_s[:-1]
    send_s = model.crossing_bytes[:-1] * hpgo_cluster.compute_transfer_s_per_byte(*groups)
    block_s = np.maximum(
        np.maximum(work_before_s / first_devices, (model.total_s - work_before_s) / second_devices),
        send_s,
    )
    total_bytes = model.parameters_so_far[-1]
    exposed_s = np.maximum(
        hpgo_cluster.compute_all_reduce_s_per_byte(groups[0]) * model.parameters_so_far[1:],
        hpgo_cluster.compute_all_reduce_s_per_byte(groups[1])
        * (total_bytes - model.parameters_so_far[:-1])
        - block_s / micro_batches,
    )
    step_s = (
        block_s / micro_batches * (micro_batches - 1)
        + send_s / micro_batches
        + np.maximum(exposed_s, 0.0)
    )
    cut = len(step_s) - 1 - int(step_s[::-1].argmin())  # HPGO takes the last of equals
    return cut, float(block_s[cut])
