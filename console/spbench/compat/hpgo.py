"""HPGO's Python interface over spbench's planner: the same calls, the same tuples.

import spbench.compat.hpgo as HPGO

conductor = HPGO.conductor_from_torch_graph_and_seps("vgg19.txt", 32, 2048, [8, 16])
speedup, stages = conductor.py_orchestrate()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spbench.planner.cluster.machines import Cluster, cluster_from_ends
from spbench.planner.planning import plan
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.layers import Profile

HpgoStage = tuple[int, int, int, list[int]]
"""First state, the state after the last one (in the last stage that one itself), replicas within a
pipeline, and devices."""


@dataclass(frozen=True, slots=True)
class Conductor:
    """A planning problem: a profile on devices, with a global batch size."""

    profile: Profile
    cluster: Cluster
    global_batch_size: int

    def py_orchestrate(self) -> tuple[float, list[HpgoStage]]:
        """Return the speedup of HPGO's plan over one device, and its stages.

        Raises:
            PlannerError: The profile has too many states, or the batch cannot be.
        """
        made = plan(self.profile, self.cluster, self.global_batch_size, mode="hpgo")
        return made.speedup, made.hpgo_stages()


def conductor_from_torch_graph_and_seps(
    profile_filename: str, profile_batch_size: int, global_batch_size: int, seps: Sequence[int]
) -> Conductor:
    """Return the problem of a torchgraph file on machines.

    Args:
        profile_filename: The profile, torchgraph text or spbench's JSON.
        profile_batch_size: The batch size at which it was measured.
        global_batch_size: Samples of a step over all devices.
        seps: Where each machine's devices end: ``[8, 16]`` is two of 8.

    Raises:
        PlannerError: The file cannot be read or has errors, or the machines cannot be.
    """
    profile = load_profile(Path(profile_filename), profile_batch_size)
    return Conductor(profile, cluster_from_ends(list(seps)), global_batch_size)
