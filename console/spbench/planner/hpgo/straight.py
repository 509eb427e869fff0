"""PipeDream's straight pipeline, one device a stage in the devices' order, and no split."""

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
from spbench.planner.profile.states import States
from spbench.planner.training import Training
from spbench_core.quantities import format_quantity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]


class HpgoProblem(NamedTuple):
    """The start of HPGO's search: costs of the model and of the links, and a first candidate."""

    work: HpgoWork
    wires: HpgoLinks
    straight: HpgoCandidate | None


def build_problem(states: States, cluster: Cluster, training: Training) -> HpgoProblem:
    """Return the problem of planning these states on a cluster.

    Raises:
        PlannerError: The cluster has several kinds of devices or links.
    """
    work = build_hpgo_work(states, training)
    wires = build_hpgo_links(cluster)
    return HpgoProblem(work, wires, find_straight_pipeline(work, wires))


def find_straight_pipeline(work: HpgoWork, wires: HpgoLinks) -> HpgoCandidate | None:
    """Return the pipeline of one device a stage, in the devices' order, with the least block.

    Returns:
        None where there are too few states for the devices.
    """
    import numpy as np

    placements = Placements(wires.sizes)
    count = sum(wires.sizes)
    if count > work.last + 1:
        return None
    if count == 1:
        return build_unsplit(work, placements, 1, 1)
    everything = np.arange(work.last + 1)
    chain = _any_chain(work)
    found = None
    bound = _loosest(work, wires)
    # A search over some states bounds the search over all of them, which is then a short one.
    for states in [chain, everything] if len(chain) < len(everything) else [everything]:
        shape = SearchLimits(count, 1, bound, single=True)
        table = Table(work, wires, shape, states, placements.place_in_order)
        found = table.search(placements.place_first) or found
        bound = found.block if found else bound
    return found


def explain_too_few_states(work: HpgoWork, wires: HpgoLinks) -> str:
    """Return why there is no pipeline of one device a stage for these devices."""
    stages = format_quantity(work.last + 1, "stage")
    return f"it needs {sum(wires.sizes)} stages; the model has at most {stages}"


def _any_chain(work: HpgoWork) -> Indices:
    """Return states each of which can follow all before it, up to the model's last one."""
    import numpy as np

    chain = [0]
    for state in range(1, work.last + 1):
        if work.before[state, chain[-1]]:
            chain.append(state)
    return np.array(chain)


def _loosest(work: HpgoWork, wires: HpgoLinks) -> float:
    """Return a block that no pipeline is above."""
    slowest = min(wires.within, wires.between, wires.collective)
    return max(work.total, 2.0 * float(work.crossing.max()) / slowest)


def build_unsplit(
    work: HpgoWork, placements: Placements, workers: int, pipelines: int
) -> HpgoCandidate:
    """Return the whole model on the first devices, as so many pipelines of so many workers."""
    used = placements.place_first(workers * pipelines)
    group = DeviceGroup(placements.empty, used)
    return HpgoCandidate((work.last,), (group,), pipelines, work.total / (workers * pipelines))
