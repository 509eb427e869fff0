"""PipeDream's straight pipeline: one device per stage, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.placement import DeviceGroup, Placements
from spbench.planner.hpgo.cells import SearchLimits
from spbench.planner.hpgo.costs import (
    HpgoCandidate,
    HpgoLinks,
    HpgoWork,
    build_hpgo_links,
    build_hpgo_work,
)
from spbench.planner.hpgo.table import Table
from spbench.planner.plans import Training
from spbench.planner.profile.states import States
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]


class HpgoProblem(NamedTuple):
    """The input of HPGO's search: model, links and the straight pipeline."""

    work: HpgoWork
    links: HpgoLinks
    straight: HpgoCandidate | None


def build_problem(states: States, cluster: Cluster, training: Training) -> HpgoProblem:
    """Return the problem of planning these states on a cluster.

    Raises:
        PlannerError: The cluster has several kinds of devices or links.
    """
    work = build_hpgo_work(states, training)
    links = build_hpgo_links(cluster)
    return HpgoProblem(work, links, find_straight_pipeline(work, links))


def find_straight_pipeline(work: HpgoWork, links: HpgoLinks) -> HpgoCandidate | None:
    """Return the pipeline of one device per stage with the least block.

    The stages are in the order of the devices.

    Returns:
        None if there are fewer states than devices.
    """
    import numpy as np

    placements = Placements(links.sizes)
    device_count = sum(links.sizes)
    if device_count > work.last + 1:
        return None
    if device_count == 1:
        return build_unsplit(work, placements, 1, 1)
    all_states = np.arange(work.last + 1)
    chain_states = _find_chain(work)
    candidate = None
    bound_s = _find_block_bound_s(work, links)
    # A search over some states gives a bound, which makes the search over all states short.
    for states in (
        [chain_states, all_states] if len(chain_states) < len(all_states) else [all_states]
    ):
        limits = SearchLimits(device_count, 1, bound_s, is_one_worker_per_stage=True)
        table = Table(work, links, limits, states, placements.place_in_order)
        candidate = table.search(placements.place_first) or candidate
        bound_s = candidate.block_s if candidate else bound_s
    return candidate


def explain_too_few_states(work: HpgoWork, links: HpgoLinks) -> str:
    """Return why there is no pipeline of one device per stage."""
    stages = format_quantity(work.last + 1, "stage")
    return f"it needs {sum(links.sizes)} stages; the model has at most {stages}"


def _find_chain(work: HpgoWork) -> Indices:
    """Return states that can follow each other, up to the model's last one."""
    import numpy as np

    chain = [0]
    for state in range(1, work.last + 1):
        if work.can_precede[state, chain[-1]]:
            chain.append(state)
    return np.array(chain)


def _find_block_bound_s(work: HpgoWork, links: HpgoLinks) -> float:
    """Return an upper bound on the block of any pipeline, in seconds."""
    least_bandwidth = min(links.within, links.between, links.collective)
    return max(work.total_s, 2.0 * float(work.crossing_bytes.max()) / least_bandwidth)


def build_unsplit(
    work: HpgoWork, placements: Placements, workers: int, pipelines: int
) -> HpgoCandidate:
    """Return the whole model on the first devices, as pipelines of some workers."""
    used = placements.place_first(workers * pipelines)
    group = DeviceGroup(placements.empty, used)
    return HpgoCandidate((work.last,), (group,), pipelines, work.total_s / (workers * pipelines))
