"""Choice of the device on which a rank runs a case, and the report of it."""

from __future__ import annotations

import torch

from spbench_core.events.statuses import LogLevel
from spbench_core.host_facts import read_driver_version
from spbench_parallel.device.formats import set_fp32_precision
from spbench_parallel.device.gpus import Gpu, NoDeviceError, explain_missing_gpu
from spbench_parallel.errors import CannotRunError
from spbench_workers.binding.numa import describe_nearness
from spbench_workers.context import Context

# Addresses of distant GPUs for which this process has already logged a warning, since it chooses a
# device for each case.
_WARNED: set[str] = set()


def choose_device(
    context: Context, *, preference: str | None = None, index: int | None = None, tf32: bool = False
) -> torch.device:
    """Return the device of this rank in a case, ready for use. All ranks must call it.

    GPUs are assigned by local rank, among those in ``device_ids`` if it is set. From then on, fp32
    is multiplied as fp32, or as TF32.

    Args:
        context: The case; its parameter ``device`` is ``auto`` (a GPU if there is one), ``cpu`` or
            ``cuda``.
        preference: The device instead of the parameter: ``cpu`` for a rank that needs no GPU.
        index: The GPU's number, instead of the one by local rank.
        tf32: Whether fp32 is multiplied as TF32.

    Raises:
        NoDeviceError: A rank requests ``cuda``, and torch sees no GPU or not enough; or launcher
            and machines disagree on local ranks. All ranks raise it.
        CannotRunError: The device cannot multiply in the requested format.
    """
    requested = preference or context.params["device"]
    gpu, problem = _select_gpu(context, requested, index)
    rank_count_on_gpu, speaker = _check_all_ranks(context, gpu, problem)
    device = torch.device("cpu") if gpu is None else torch.device("cuda", gpu.index)
    set_fp32_precision(device, tf32=tf32)
    is_near = None
    if gpu is not None:
        name = f"{device} {gpu.name}"
        is_near, _ = describe_nearness(gpu.address, context.world.cpus)
        reason = _describe_gpu(
            context, gpu, rank_count_on_gpu, "asked for" if requested == "cuda" else "auto"
        )
    elif preference is not None:
        name = "cpu"
        reason = "this rank needs no GPU"
    else:
        name = "cpu"
        reason = "asked for" if requested == "cpu" else f"auto: {explain_missing_gpu()}"
    address = None if gpu is None else gpu.address
    context.device(
        name, reason, speaks=context.world.rank == speaker, near=is_near, address=address
    )
    return device


def _select_gpu(context: Context, requested: str, index: int | None) -> tuple[Gpu | None, str]:
    """Return this rank's GPU, and the problem that prevents its use.

    The GPU is None for the host. The problem is empty if there is none.
    """
    reason = "" if requested == "cpu" else explain_missing_gpu()
    if requested == "cuda" and reason:
        return None, f"device cuda: {reason}; use device cpu or auto"
    if requested == "cpu" or reason:
        return None, ""
    try:
        device = torch.device("cuda", _choose_gpu_index(context, index))
    except CannotRunError as error:
        return None, str(error)
    torch.cuda.set_device(device)
    return Gpu.from_device(device), ""


def _check_all_ranks(context: Context, gpu: Gpu | None, problem: str) -> tuple[int, int]:
    """Return the number of ranks on this rank's GPU, and the recording rank.

    The latter is the first rank with a GPU, or rank 0.

    Raises:
        NoDeviceError: A rank has a problem. All ranks raise it, so that none waits for another. The
            message is that of this rank, or of the first rank with a problem.
    """
    host = context.world.host
    own_entry = problem, host, None if gpu is None else gpu.address
    by_rank: list[tuple[str, str, str | None]] = context.world.comm.allgather(own_entry)
    if problem:
        raise NoDeviceError(problem)
    for rank, (other_problem, other_host, _) in enumerate(by_rank):
        if other_problem:
            raise NoDeviceError(f"rank {rank} on {other_host}: {other_problem}")
    speaker = next((rank for rank, (_, _, address) in enumerate(by_rank) if address is not None), 0)
    return by_rank.count(own_entry) if gpu is not None else 0, speaker


def check_same_kind(context: Context, device: torch.device | None) -> None:
    """Check that all ranks of a case compute on GPUs, or all on the host.

    ``auto`` decides on each rank separately. All ranks must call it.

    Args:
        context: The case.
        device: This rank's device; None for a rank that may differ, such as a server.

    Raises:
        CannotRunError: Some ranks have GPUs and others the host. All ranks raise it, and it names
            one rank of each kind.
    """
    own_device = None if device is None else (device.type, context.world.host)
    by_rank = context.world.comm.allgather(own_device)
    description_by_kind: dict[str, str] = {}
    for rank, rank_device in enumerate(by_rank):
        if rank_device is not None:
            kind, host = rank_device
            computing = "on the host" if kind == "cpu" else "on a GPU"
            description_by_kind.setdefault(kind, f"rank {rank} on {host} computes {computing}")
    if len(description_by_kind) > 1:
        descriptions = " and ".join(description_by_kind.values())
        raise CannotRunError(
            f"device {context.params['device']}: {descriptions}; take device cpu, "
            "or hosts that have a GPU for each rank"
        )


def _choose_gpu_index(context: Context, requested: int | None) -> int:
    """Return the number of this rank's GPU among those that the process sees.

    Raises:
        NoDeviceError: The requested GPU does not exist.
        CannotRunError: Launcher and machines disagree on local ranks.
    """
    count = torch.cuda.device_count()
    if requested is not None:
        if requested >= count:
            raise NoDeviceError(
                f"GPU {requested} is asked for on {context.world.host}, and this rank sees "
                f"{count}; name those that are there"
            )
        return requested
    if context.world.local_rank_conflict:
        raise CannotRunError(context.world.local_rank_conflict)
    device_ids = context.params.get("device_ids")
    if device_ids:
        return _choose_gpu_index(context, device_ids[context.world.local_rank % len(device_ids)])
    return context.world.local_rank % count


def _describe_gpu(context: Context, gpu: Gpu, rank_count_on_gpu: int, request: str) -> str:
    is_near, phrase = describe_nearness(gpu.address, context.world.cpus)
    if is_near is False and (address := gpu.address) not in _WARNED:
        _WARNED.add(address)
        context.log(
            f"GPU {gpu.index} of rank {context.world.rank} is {phrase}", level=LogLevel.WARNING
        )
    shared = (
        f"shared by {rank_count_on_gpu} ranks" if rank_count_on_gpu > 1 else "this rank's alone"
    )
    return (
        f"{request}; PCI {gpu.address}, {phrase}, {shared}, "
        f"capability {gpu.capability[0]}.{gpu.capability[1]}, CUDA {torch.version.cuda}, "
        f"driver {read_driver_version() or 'not known'}"
    )
