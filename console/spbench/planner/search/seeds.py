"""The shapes that mode ``hpgo`` scores, as starts for mode ``best``: it is then never worse."""

from __future__ import annotations

from spbench.planner.cluster.machines import Cluster
from spbench.planner.errors import PlannerError
from spbench.planner.hpgo.candidates import candidates
from spbench.planner.hpgo.costs import HpgoCandidate, step_seconds, wires_of, work_of
from spbench.planner.hpgo.straight import straight_pipeline
from spbench.planner.profile.states import States
from spbench.planner.search.candidates import Shape
from spbench.planner.training import Training

_MOST_DEVICES = 128
"""Beyond which HPGO's search takes minutes for models of many equal layers."""
_MOST = 600
"""Shapes that are tried: of more those that HPGO takes to be the fastest."""


def hpgo_shapes(states: States, cluster: Cluster, training: Training) -> list[Shape]:
    """Return HPGO's shapes, the best by its own estimate first.

    None for large clusters, and for links that HPGO does not know.
    """
    if cluster.device_count > _MOST_DEVICES:
        return []
    try:
        wires = wires_of(cluster)
    except PlannerError:
        return []  # several kinds of devices or links
    work = work_of(states, training)
    found = list(candidates(work, wires, straight_pipeline(work, wires)))
    found.reverse()  # of equals HPGO takes the last one
    found.sort(key=lambda candidate: step_seconds(work, wires, candidate))
    return list(dict.fromkeys(map(shape_of, found[:_MOST])))


def shape_of(candidate: HpgoCandidate) -> Shape:
    """Return the shape of a candidate. Its cuts are the last states of its stages."""
    return Shape(tuple(cut + 1 for cut in candidate.cuts), candidate.groups)
