"""The shapes that mode ``hpgo`` scores, as starts for mode ``best``: it is then never worse."""

from __future__ import annotations

from spbench.planner.cluster.machines import Cluster
from spbench.planner.errors import PlannerError
from spbench.planner.hpgo.candidates import generate_candidates
from spbench.planner.hpgo.costs import (
    HpgoCandidate,
    build_hpgo_links,
    build_hpgo_work,
    estimate_hpgo_step,
)
from spbench.planner.hpgo.straight import find_straight_pipeline
from spbench.planner.profile.states import States
from spbench.planner.search.candidates import Shape
from spbench.planner.training import Training

_MOST_DEVICES = 128
"""Beyond which HPGO's search takes minutes for models of many equal layers."""
_MOST = 600
"""Shapes that are tried: of more those that HPGO takes to be the fastest."""


def find_hpgo_shapes(states: States, cluster: Cluster, training: Training) -> list[Shape]:
    """Return HPGO's shapes, the best by its own estimate first.

    None for large clusters, and for links that HPGO does not know.
    """
    if cluster.device_count > _MOST_DEVICES:
        return []
    try:
        wires = build_hpgo_links(cluster)
    except PlannerError:
        return []  # several kinds of devices or links
    work = build_hpgo_work(states, training)
    found = list(generate_candidates(work, wires, find_straight_pipeline(work, wires)))
    found.reverse()  # of equals HPGO takes the last one
    found.sort(key=lambda candidate: estimate_hpgo_step(work, wires, candidate))
    return list(dict.fromkeys(map(to_shape, found[:_MOST])))


def to_shape(candidate: HpgoCandidate) -> Shape:
    """Return the shape of a candidate. Its cuts are the last states of its stages."""
    return Shape(tuple(cut + 1 for cut in candidate.cuts), candidate.groups)
