"""The shapes that mode ``hpgo`` scores, as starts for mode ``best``: it is then never worse."""

from __future__ import annotations

from spbench.planner.cluster import Cluster
from spbench.planner.drafts import Shape
from spbench.planner.errors import PlannerError
from spbench.planner.hpgo_costs import wires_of, work_of
from spbench.planner.hpgo_drafts import drafts
from spbench.planner.states import States
from spbench.planner.straight import straight_pipeline
from spbench.planner.training import Training

_MOST_DEVICES = 32
"""On more devices that search takes longer than the one it would start."""


def hpgo_shapes(states: States, cluster: Cluster, training: Training) -> list[Shape]:
    """Return HPGO's shapes; none for clusters that it cannot tell apart or that are large."""
    if cluster.device_count > _MOST_DEVICES:
        return []
    try:
        wires = wires_of(cluster)
    except PlannerError:
        return []  # several kinds of devices or links
    work = work_of(states, training)
    found = drafts(work, wires, straight_pipeline(work, wires))
    shapes = (Shape(tuple(cut + 1 for cut in each.cuts), each.groups) for each in found)
    return list(dict.fromkeys(shapes))
