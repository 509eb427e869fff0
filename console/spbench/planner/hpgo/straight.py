"""PipeDream's straight pipeline, one device a stage in the devices' order, and no split."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.placement import DeviceGroup, Placements
from spbench.planner.hpgo.cells import TableSearch
from spbench.planner.hpgo.costs import HpgoCandidate, HpgoWork, Wires, wires_of, work_of
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
    wires: Wires
    straight: HpgoCandidate | None


def problem_of(states: States, cluster: Cluster, training: Training) -> HpgoProblem:
    """Return the problem of planning these states on a cluster.

    Raises:
        PlannerError: The cluster has several kinds of devices or links.
    """
    work = work_of(states, training)
    wires = wires_of(cluster)
    return HpgoProblem(work, wires, straight_pipeline(work, wires))


def straight_pipeline(work: HpgoWork, wires: Wires) -> HpgoCandidate | None:
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
        return unsplit(work, placements, 1, 1)
    everything = np.arange(work.last + 1)
    chain = _any_chain(work)
    found = None
    bound = _loosest(work, wires)
    # A search over some states bounds the search over all of them, which is then a short one.
    for states in [chain, everything] if len(chain) < len(everything) else [everything]:
        shape = TableSearch(count, 1, bound, single=True)
        table = Table(work, wires, shape, states, placements.in_order)
        found = table.search(placements.fresh) or found
        bound = found.block if found else bound
    return found


def too_few_states(work: HpgoWork, wires: Wires) -> str:
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


def _loosest(work: HpgoWork, wires: Wires) -> float:
    """Return a block that no pipeline is above."""
    slowest = min(wires.within, wires.between, wires.collective)
    return max(work.total, 2.0 * float(work.crossing.max()) / slowest)


def unsplit(work: HpgoWork, placements: Placements, workers: int, pipelines: int) -> HpgoCandidate:
    """Return the whole model on the first devices, as so many pipelines of so many workers."""
    used = placements.fresh(workers * pipelines)
    group = DeviceGroup(placements.empty, used)
    return HpgoCandidate((work.last,), (group,), pipelines, work.total / (workers * pipelines))
