"""Planning in one call: what the command line, the console and programs use."""

from __future__ import annotations

from collections.abc import Sequence

from spbench.planner.cluster.machines import Cluster
from spbench.planner.errors import PlannerError
from spbench.planner.hpgo.mode import plan_hpgo
from spbench.planner.plans import Mode, Plan
from spbench.planner.process_pool import call_in_processes
from spbench.planner.profile.layers import Profile
from spbench.planner.search.best import plan_best
from spbench.planner.training import Training

PARAMETERS_AND_GRADIENTS = 2.0


def plan(
    profile: Profile,
    cluster: Cluster,
    global_batch_size: int,
    *,
    micro_batch_size: int | None = None,
    mode: Mode = "best",
    optimizer_memory_scaling: float = PARAMETERS_AND_GRADIENTS,
    peak_activation_bytes: float | None = None,
) -> Plan:
    """Return how best to train a model on a cluster.

    Args:
        profile: The model.
        cluster: The cluster.
        global_batch_size: Samples of a step over all devices.
        micro_batch_size: Samples that go through a pipeline at once; None lets mode ``best``
            choose it, and is 1 in mode ``hpgo``.
        mode: ``best`` for the least step time within the devices' memory, ``hpgo`` for the plan
            of DAPPLE's planner.
        optimizer_memory_scaling: Bytes kept for each byte of parameters, those included: 2 with
            gradients, 3 with momentum, 4 with Adam's two moments.
        peak_activation_bytes: Memory of one sample when the whole model is on one device; None
            for what the profile's layers keep.

    Raises:
        NoPlanError: No plan fits the devices' memory.
        PlannerError: A number cannot be, or mode ``hpgo`` cannot tell the cluster's devices or
            links apart.
    """
    if mode not in ("best", "hpgo"):
        raise PlannerError(f"the mode {mode} is neither best nor hpgo")
    training = Training(
        global_batch_size,
        1 if micro_batch_size is None else micro_batch_size,
        optimizer_memory_scaling,
        peak_activation_bytes,
    )
    if mode == "hpgo":
        return plan_hpgo(profile, cluster, training)
    return plan_best(profile, cluster, training, choose_micro_batch=micro_batch_size is None)


def plan_many(
    profile: Profile,
    cluster: Cluster,
    batch_sizes: Sequence[int],
    *,
    jobs: int = 1,
    micro_batch_size: int | None = None,
    mode: Mode = "best",
    optimizer_memory_scaling: float = PARAMETERS_AND_GRADIENTS,
    peak_activation_bytes: float | None = None,
) -> list[Plan | PlannerError]:
    """Return a plan for each of several global batch sizes, as `plan` makes them.

    Args:
        profile: The model.
        cluster: The cluster.
        batch_sizes: The global batch sizes.
        jobs: Processes that plan at the same time; 1 plans in this process.
        micro_batch_size: As in `plan`.
        mode: As in `plan`.
        optimizer_memory_scaling: As in `plan`.
        peak_activation_bytes: As in `plan`.

    Returns:
        In the order of the batch sizes; the error in place of a plan that cannot be made.

    Raises:
        PlannerError: ``jobs`` is below 1.
    """
    if jobs < 1:
        raise PlannerError(f"{jobs} jobs plan nothing; give 1 or more")
    options = {
        "micro_batch_size": micro_batch_size,
        "mode": mode,
        "optimizer_memory_scaling": optimizer_memory_scaling,
        "peak_activation_bytes": peak_activation_bytes,
    }
    calls = [(profile, cluster, size) for size in batch_sizes]
    return call_in_processes(plan, calls, options, jobs)
