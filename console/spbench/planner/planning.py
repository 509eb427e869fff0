"""Planning in one call, for the command line, the TUI and programs."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, TypeVar

from spbench.planner.cluster.machines import Cluster
from spbench.planner.errors import PlannerError
from spbench.planner.hpgo.mode import plan_hpgo
from spbench.planner.plans import Mode, Plan, Training
from spbench.planner.profile.layers import Profile
from spbench.planner.search.best import plan_best

PARAMETERS_AND_GRADIENTS = 2.0
THREADS = "RAYON_NUM_THREADS"

Output = TypeVar("Output")


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
    """Return the best plan to train a model on a cluster.

    Args:
        profile: The model.
        cluster: The cluster.
        global_batch_size: Samples of a step over all devices.
        micro_batch_size: Samples that go through a pipeline at once; None lets mode ``best``
            choose it, and is 1 in mode ``hpgo``.
        mode: ``best`` for the shortest step within the devices' memory, ``hpgo`` for the plan
            of DAPPLE's planner.
        optimizer_memory_scaling: Bytes kept per byte of parameters, including them: 2 with
            gradients, 3 with momentum, 4 with Adam's two moments.
        peak_activation_bytes: Memory of one sample when the whole model is on one device; None
            for the bytes that the profile's layers keep.

    Raises:
        NoPlanError: No plan fits the devices' memory.
        PlannerError: A number is invalid, or the cluster has several kinds of devices or links,
            which mode ``hpgo`` does not support.
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
    """Return the plans of several global batch sizes; see `plan`.

    Args:
        profile: The model.
        cluster: The cluster.
        batch_sizes: The global batch sizes.
        jobs: Number of processes; 1 plans in this process.
        micro_batch_size: As in `plan`.
        mode: As in `plan`.
        optimizer_memory_scaling: As in `plan`.
        peak_activation_bytes: As in `plan`.

    Returns:
        By batch size, the plan or the error why there is none.

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


def find_default_jobs(environ: Mapping[str, str]) -> int:
    """Return the default number of processes: ``RAYON_NUM_THREADS``, or all cores.

    The variable is HPGO's. Like in HPGO, 0 and invalid numbers mean all cores.
    """
    text = environ.get(THREADS, "")
    jobs = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    return jobs or len(os.sched_getaffinity(0))


def call_in_processes(
    function: Callable[..., Output],
    calls: Sequence[tuple[Any, ...]],
    options: Mapping[str, Any],
    jobs: int,
) -> list[Output | PlannerError]:
    """Return the output of a function for each call, or its `PlannerError`.

    Args:
        function: A function of a module, so that another process can import it.
        calls: The positional arguments of each call.
        options: Keyword arguments of all calls.
        jobs: Number of processes; 1 runs all calls in this process.
    """
    call_function = partial(_call_or_return_error, function, dict(options))
    jobs = min(jobs, len(calls))
    if jobs <= 1:
        return [call_function(arguments) for arguments in calls]
    # Forking a process with threads can block it, and the TUI has threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        return list(pool.map(call_function, calls))


def _call_or_return_error(
    function: Callable[..., Output], options: dict[str, Any], arguments: tuple[Any, ...]
) -> Output | PlannerError:
    try:
        return function(*arguments, **options)
    except PlannerError as error:
        return error
