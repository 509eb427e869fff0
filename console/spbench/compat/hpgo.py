"""HPGO's Python interface to spbench's planner, with the same calls and tuples.

import spbench.compat.hpgo as HPGO

conductor = HPGO.conductor_from_torch_graph_and_seps("vgg19.txt", 32, 2048, [8, 16])
speedup, stages = conductor.py_orchestrate()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spbench.planner.cluster.machines import Cluster, make_cluster_from_ends
from spbench.planner.planning import plan
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.layers import Profile

HpgoStage = tuple[int, int, int, list[int]]
"""A stage: its first state, end state, replicas within a pipeline, and devices.

The end state is the one after the last state; in the last stage it is the last state itself.
"""


@dataclass(frozen=True, slots=True)
class Conductor:
    """A planning problem: a profile on devices, with a global batch size."""

    profile: Profile
    cluster: Cluster
    global_batch_size: int

    def py_orchestrate(self) -> tuple[float, list[HpgoStage]]:
        """Return the speedup of HPGO's plan over one device, and its stages.

        Raises:
            PlannerError: The profile has too many states, or the batch size is invalid.
        """
        hpgo_plan = plan(self.profile, self.cluster, self.global_batch_size, mode="hpgo")
        return hpgo_plan.speedup, hpgo_plan.list_hpgo_stages()


def conductor_from_torch_graph_and_seps(
    profile_filename: str, profile_batch_size: int, global_batch_size: int, seps: Sequence[int]
) -> Conductor:
    """Return the problem of a torchgraph file on machines.

    Args:
        profile_filename: The profile, torchgraph text or spbench's JSON.
        profile_batch_size: The batch size at which the profile was measured.
        global_batch_size: Samples of a step over all devices.
        seps: The end of each machine's devices: ``[8, 16]`` means two machines with 8 devices.

    Raises:
        PlannerError: The file cannot be read or has errors, or `seps` is invalid.
    """
    profile = load_profile(Path(profile_filename), profile_batch_size)
    return Conductor(profile, make_cluster_from_ends(list(seps)), global_batch_size)
