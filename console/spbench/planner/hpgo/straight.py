"""PipeDream's straight pipeline: one device per stage, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.placement import DeviceGroup, Placements
from spbench.planner.hpgo.cells import SearchLimits
from spbench.planner.hpgo.costs import (
    HpgoCandidate,
    HpgoCluster,
    HpgoModel,
    build_hpgo_cluster,
    build_hpgo_model,
)
from spbench.planner.hpgo.table import SplitTable
from spbench.planner.plans import Training
from spbench.planner.profile.states import States
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]


class HpgoProblem(NamedTuple):
    """The input of HPGO's search: model, cluster and the straight pipeline."""

    model: HpgoModel
    hpgo_cluster: HpgoCluster
    straight: HpgoCandidate | None


def build_problem(states: States, cluster: Cluster, training: Training) -> HpgoProblem:
    """Return the problem of planning these states on a cluster.

    Raises:
        PlannerError: The cluster has several kinds of devices or links.
    """
    model = build_hpgo_model(states, training)
    hpgo_cluster = build_hpgo_cluster(cluster)
    return HpgoProblem(model, hpgo_cluster, find_straight_pipeline(model, hpgo_cluster))


def find_straight_pipeline(model: HpgoModel, hpgo_cluster: HpgoCluster) -> HpgoCandidate | None:
    """Return the pipeline of one device per stage with the least block.

    The stages are in the order of the devices.

    Returns:
        None if there are fewer states than devices.
    """
    import numpy as np

    placements = Placements(hpgo_cluster.sizes)
    device_count = sum(hpgo_cluster.sizes)
    if device_count > model.last + 1:
        return None
    if device_count == 1:
        return build_unsplit(model, placements, 1, 1)
    all_states = np.arange(model.last + 1)
    chain_states = _find_chain(model)
    candidate = None
    bound_s = _find_block_bound_s(model, hpgo_cluster)
    # A search over some states gives a bound, which makes the search over all states short.
    for states in (
        [chain_states, all_states] if len(chain_states) < len(all_states) else [all_states]
    ):
        limits = SearchLimits(device_count, 1, bound_s, is_one_worker_per_stage=True)
        table = SplitTable(model, hpgo_cluster, limits, states, placements.place_in_order)
        candidate = table.search(placements.place_first) or candidate
        bound_s = candidate.block_s if candidate else bound_s
    return candidate


def explain_too_few_states(model: HpgoModel, hpgo_cluster: HpgoCluster) -> str:
    """Return why there is no pipeline of one device per stage."""
    stages = format_quantity(model.last + 1, "stage")
    return f"it needs {sum(hpgo_cluster.sizes)} stages; the model has at most {stages}"


def _find_chain(model: HpgoModel) -> Indices:
    """Return states that can follow each other, up to the model's last one."""
    import numpy as np

    chain = [0]
    for state in range(1, model.last + 1):
        if model.can_precede[state, chain[-1]]:
            chain.append(state)
    return np.array(chain)


def _find_block_bound_s(model: HpgoModel, hpgo_cluster: HpgoCluster) -> float:
    """Return an upper bound on the block of any pipeline, in seconds."""
    least_bandwidth = min(hpgo_cluster.within, hpgo_cluster.between, hpgo_cluster.collective)
    return max(model.total_s, 2.0 * float(model.crossing_bytes.max()) / least_bandwidth)


def build_unsplit(
    model: HpgoModel, placements: Placements, workers: int, pipelines: int
) -> HpgoCandidate:
    """Return the whole model on the first devices, as pipelines of some workers."""
    used = placements.place_first(workers * pipelines)
    group = DeviceGroup(placements.empty, used)
    return HpgoCandidate((model.last,), (group,), pipelines, model.total_s / (workers * pipelines))
