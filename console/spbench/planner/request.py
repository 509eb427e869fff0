"""A request for a plan in words, and its answer with all that is shown of it."""

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


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for a plan, in the words of the command line.

    Attributes:
        profile: The profile's file; absolute.
        cluster: The cluster, as `find_cluster` reads it.
        global_batch_size: Samples of a step.
        profile_batch_size: Samples at which the profile was measured; None: it says so.
        micro_batch_size: Samples of a micro-batch; None: the plan's own.
        mode: The search.
        home: The folder of the runs.
        folder: Where the cluster's file is looked for.
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
    """A plan with what it was made of, one step of it, and the memory of its stages."""

    profile: Profile
    cluster: Cluster
    plan: Plan
    step: Simulation
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
    """Return the request of what was typed; the last two sizes may be empty.

    Raises:
        PlannerError: A text is missing, or no whole number above 0 where one is needed.
    """
    if not profile.strip():
        raise PlannerError("choose a profile: a file of spbench profile, or torchgraph text")
    if not global_batch_size.strip():
        raise PlannerError("give a global batch size: the samples of a step over all devices")
    return PlanRequest(
        folder / Path(profile.strip()).expanduser(),
        cluster,
        _number("the global batch size", global_batch_size),
        _number_or_none("the profile's batch size", profile_batch_size),
        _number_or_none("the micro-batch size", micro_batch_size),
        mode,
        home,
        folder,
    )


def compute_plan(request: PlanRequest) -> PlanDetails:
    """Return the plan that is asked for.

    Raises:
        UsageError: Its profile or its cluster cannot be read, or there is no plan.
    """
    profile = load_profile(request.profile, request.profile_batch_size)
    cluster = find_cluster(request.cluster, request.home, request.folder)
    made = plan(
        profile,
        cluster,
        request.global_batch_size,
        micro_batch_size=request.micro_batch_size,
        mode=request.mode,
    )
    step = simulate(made)
    return PlanDetails(profile, cluster, made, step, compute_stage_memories(made, step, cluster))


def _number_or_none(name: str, text: str) -> int | None:
    return _number(name, text) if text.strip() else None


def _number(name: str, text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise PlannerError(f"{name} is {text}; write a whole number above 0")
    return int(text)
