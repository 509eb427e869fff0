"""A request for a plan as text, and the plan with all details to show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spbench.planner.cluster.lookup import find_cluster
from spbench.planner.cluster.machines import Cluster
from spbench.planner.errors import PlannerError
from spbench.planner.planning import plan
from spbench.planner.plans import Mode, Plan
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.layers import Profile
from spbench.planner.simulation.stage_memory import StageMemory, compute_stage_memories
from spbench.planner.simulation.step import Simulation, simulate
from spbench.planner.simulation.step_shares import StepShares, compute_step_shares
from spbench.suites.pipe_files import expand_user_path


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for a plan, in the terms of the command line.

    Attributes:
        profile: The absolute path of the profile.
        cluster: The cluster as text; see `find_cluster`.
        global_batch_size: Samples of a step.
        profile_batch_size: Batch size of the profile; None if the file contains it.
        micro_batch_size: Samples of a micro-batch; None lets the search choose.
        mode: The search.
        home: The folder of runs.
        folder: The folder of relative paths.
    """

    profile: Path
    cluster: str
    global_batch_size: int
    profile_batch_size: int | None
    micro_batch_size: int | None
    mode: Mode
    home: Path
    folder: Path


@dataclass(frozen=True, slots=True)
class PlanDetails:
    """A plan with its input, a simulated step and the memory of its stages."""

    profile: Profile
    cluster: Cluster
    plan: Plan
    simulation: Simulation
    shares: StepShares
    memory: tuple[StageMemory, ...]


def parse_plan_request(
    *,
    profile: str,
    cluster: str,
    global_batch_size: str,
    profile_batch_size: str,
    micro_batch_size: str,
    mode: Mode,
    home: Path,
    folder: Path,
) -> PlanRequest:
    """Return the request from typed texts; the last two sizes may be empty.

    Raises:
        PlannerError: A text is missing, or a size is not a whole number above 0.
        UsageError: The home directory of the profile is unknown.
    """
    if not profile.strip():
        raise PlannerError("choose a profile: a file of spbench profile, or torchgraph text")
    if not global_batch_size.strip():
        raise PlannerError("give a global batch size: the samples of a step over all devices")
    return PlanRequest(
        expand_user_path(folder, profile.strip()),
        cluster,
        _parse_number("the global batch size", global_batch_size),
        _parse_optional_number("the profile's batch size", profile_batch_size),
        _parse_optional_number("the micro-batch size", micro_batch_size),
        mode,
        home,
        folder,
    )


def compute_plan(request: PlanRequest) -> PlanDetails:
    """Return the requested plan.

    Raises:
        UsageError: The profile or the cluster cannot be read, or there is no plan.
    """
    profile = load_profile(request.profile, request.profile_batch_size)
    cluster = find_cluster(request.cluster, request.home, request.folder)
    new_plan = plan(
        profile,
        cluster,
        request.global_batch_size,
        micro_batch_size=request.micro_batch_size,
        mode=request.mode,
    )
    simulation = simulate(new_plan)
    return PlanDetails(
        profile,
        cluster,
        new_plan,
        simulation,
        compute_step_shares(new_plan, simulation),
        compute_stage_memories(new_plan, simulation, cluster),
    )


def _parse_optional_number(name: str, text: str) -> int | None:
    return _parse_number(name, text) if text.strip() else None


def _parse_number(name: str, text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise PlannerError(f"{name} is {text}; write a whole number above 0")
    return int(text)
