"""Choice of the device on which a rank runs a case, and its record."""

from __future__ import annotations

import torch

from spbench_core.events.statuses import LogLevel
from spbench_core.host_facts import read_driver_version
from spbench_parallel.device.formats import set_fp32_precision
from spbench_parallel.device.gpus import Gpu, NoDeviceError, explain_missing_gpu
from spbench_parallel.errors import CannotRunError
from spbench_workers.binding.numa import describe_nearness
from spbench_workers.context import Context

_TOLD: set[str] = set()
"""Addresses of far GPUs of which this process has warned."""


def choose_device(
    context: Context, *, preference: str | None = None, index: int | None = None, tf32: bool = False
) -> torch.device:
    """Return the device of this rank in a case, set up for it. All ranks must call it.

    GPUs are assigned by local rank, of those that ``device_ids`` names where it does.
    fp32 is multiplied as fp32 from then on, or as TF32.

    Args:
        context: The case; its parameter ``device`` is ``auto`` (a GPU where there is one),
            ``cpu`` or ``cuda``.
        preference: The device in place of the parameter: ``cpu`` for a rank that needs no GPU.
        index: The GPU's number, in place of the one by local rank.
        tf32: Whether fp32 is multiplied as TF32.

    Raises:
        NoDeviceError: For one of the ranks ``cuda`` was asked for, and torch sees no GPU or not
            enough; or launcher and machines do not agree on local ranks. All ranks raise it.
        CannotRunError: The device cannot multiply in the format that is asked for.
    """
    asked = preference or context.params["device"]
    gpu, problem = _tried(context, asked, index)
    sharing, speaker = _agreed(context, gpu, problem)
    device = torch.device("cpu") if gpu is None else torch.device("cuda", gpu.index)
    set_fp32_precision(device, tf32=tf32)
    near = None
    if gpu is not None:
        value = f"{device} {gpu.name}"
        near, _ = describe_nearness(gpu.address, context.world.cpus)
        reason = _described(context, gpu, sharing, "asked for" if asked == "cuda" else "auto")
    elif preference is not None:
        value = "cpu"
        reason = "this rank needs no GPU"
    else:
        value = "cpu"
        reason = "asked for" if asked == "cpu" else f"auto: {explain_missing_gpu()}"
    context.device(value, reason, speaks=context.world.rank == speaker, near=near)
    return device


def _tried(context: Context, asked: str, index: int | None) -> tuple[Gpu | None, str]:
    """Return this rank's GPU, or None for the host; and what prevents it, or nothing."""
    why_none = "" if asked == "cpu" else explain_missing_gpu()
    if asked == "cuda" and why_none:
        return None, f"device cuda: {why_none}; use device cpu or auto"
    if asked == "cpu" or why_none:
        return None, ""
    try:
        device = torch.device("cuda", _index(context, index))
    except CannotRunError as error:
        return None, str(error)
    torch.cuda.set_device(device)
    return Gpu.from_device(device), ""


def _agreed(context: Context, gpu: Gpu | None, problem: str) -> tuple[int, int]:
    """Return the number of ranks on this rank's GPU, and the rank that records the choice.

    The latter is the first rank with a GPU; without any, rank 0.

    Raises:
        NoDeviceError: A rank has a problem; all ranks raise it, so that none waits for another:
            this rank's own, or that of the first rank that has one.
    """
    host = context.world.host
    mine = problem, host, None if gpu is None else gpu.address
    every: list[tuple[str, str, str | None]] = context.world.comm.allgather(mine)
    if problem:
        raise NoDeviceError(problem)
    for rank, (said, other, _) in enumerate(every):
        if said:
            raise NoDeviceError(f"rank {rank} on {other}: {said}")
    speaker = next((rank for rank, one in enumerate(every) if one[2] is not None), 0)
    return every.count(mine) if gpu is not None else 0, speaker


def check_same_kind(context: Context, device: torch.device | None) -> None:
    """Refuse a case that some ranks are to compute on GPUs and others on the host.

    ``auto`` decides on each rank by itself. All ranks must call it.

    Args:
        context: The case.
        device: This rank's device; None for a rank that may differ, such as a server.

    Raises:
        CannotRunError: Some ranks have GPUs and others the host; all ranks raise it, and it names
            one rank of either kind.
    """
    mine = None if device is None else (device.type, context.world.host)
    every = context.world.comm.allgather(mine)
    first: dict[str, str] = {}
    for rank, told in enumerate(every):
        if told is not None:
            kind, host = told
            where = "on the host" if kind == "cpu" else "on a GPU"
            first.setdefault(kind, f"rank {rank} on {host} computes {where}")
    if len(first) > 1:
        raise CannotRunError(
            f"device {context.params['device']}: {' and '.join(first.values())}; take device cpu, "
            "or hosts that have a GPU for each rank"
        )


def _index(context: Context, asked: int | None) -> int:
    """Return the number of this rank's GPU among those that the process sees.

    Raises:
        NoDeviceError: The GPU that is asked for is not there.
        CannotRunError: Launcher and machines do not agree on local ranks.
    """
    count = torch.cuda.device_count()
    if asked is not None:
        if asked >= count:
            raise NoDeviceError(
                f"GPU {asked} is asked for on {context.world.host}, and this rank sees {count}; "
                f"name those that are there"
            )
        return asked
    if context.world.local_rank_conflict:
        raise CannotRunError(context.world.local_rank_conflict)
    named = context.params.get("device_ids")
    if named:
        return _index(context, named[context.world.local_rank % len(named)])
    return context.world.local_rank % count


def _described(context: Context, gpu: Gpu, sharing: int, asked: str) -> str:
    near, phrase = describe_nearness(gpu.address, context.world.cpus)
    if near is False and (address := gpu.address) not in _TOLD:
        _TOLD.add(address)
        context.log(
            f"GPU {gpu.index} of rank {context.world.rank} is {phrase}", level=LogLevel.WARNING
        )
    shared = f"shared by {sharing} ranks" if sharing > 1 else "this rank's alone"
    return (
        f"{asked}; PCI {gpu.address}, {phrase}, {shared}, "
        f"capability {gpu.capability[0]}.{gpu.capability[1]}, CUDA {torch.version.cuda}, "
        f"driver {read_driver_version() or 'not known'}"
    )
