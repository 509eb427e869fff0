"""The device that a rank takes in a case; it is recorded, with what is known of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from spbench_core.host_facts import driver_version
from spbench_workers.binding.driver import driver
from spbench_workers.binding.local_rank import told_local_rank
from spbench_workers.binding.nearness import place_of
from spbench_workers.context import Context
from spbench_workers.device.formats import multiply_fp32
from spbench_workers.errors import CannotRunError

VISIBLE = "CUDA_VISIBLE_DEVICES"
_TOLD: set[str] = set()
"""Addresses of GPUs of which this process has said that they are far."""


class NoDeviceError(CannotRunError):
    """A device that was asked for is not there."""

    missing = True


@dataclass(frozen=True, slots=True)
class Gpu:
    """A rank's GPU.

    Attributes:
        index: Its number in this process.
        name: Of its kind.
        address: On the PCI bus of its host.
        capability: Of its instructions.
    """

    index: int
    name: str
    address: str
    capability: tuple[int, int]

    @classmethod
    def of(cls, device: torch.device) -> Gpu:
        """Return what torch and the driver say of a GPU."""
        return cls(
            device.index or 0,
            torch.cuda.get_device_name(device),
            address_of(device),
            torch.cuda.get_device_capability(device),
        )


def device_of(
    context: Context, *, preference: str | None = None, index: int | None = None, tf32: bool = False
) -> torch.device:
    """Return the device of this rank in a case, made ready for it. All ranks must call it.

    GPUs are dealt out by local rank. fp32 is multiplied as fp32 from then on, or as TF32.

    Args:
        context: The case; its parameter ``device`` is ``auto`` (a GPU where there is one),
            ``cpu`` or ``cuda``.
        preference: In place of the parameter: of a rank that needs none, ``cpu``.
        index: The GPU's number, in place of that by local rank.
        tf32: Whether fp32 is multiplied as TF32.

    Raises:
        NoDeviceError: On all ranks, where for one of them ``cuda`` was asked for and torch sees
            no GPU, or not so many; or launcher and host names do not agree which rank of the host
            it is.
        CannotRunError: The device cannot multiply as asked for.
    """
    asked = preference or context.params["device"]
    gpu, problem = _tried(context, asked, index)
    sharing, speaker = _agreed(context, gpu, problem)
    device = torch.device("cpu") if gpu is None else torch.device("cuda", gpu.index)
    multiply_fp32(device, tf32=tf32)
    if gpu is not None:
        value = f"{device} {gpu.name}"
        reason = _described(context, gpu, sharing, "asked for" if asked == "cuda" else "auto")
    elif preference is not None:
        value, reason = "cpu", "this rank needs no GPU"
    else:
        value, reason = "cpu", "asked for" if asked == "cpu" else f"auto: {refusal()}"
    context.device(value, reason, speaks=context.world.rank == speaker)
    return device


def _tried(context: Context, asked: str, index: int | None) -> tuple[Gpu | None, str]:
    """Return this rank's GPU, None for the host, or what is in its way."""
    why_none = "" if asked == "cpu" else refusal()
    if asked == "cuda" and why_none:
        return None, f"device cuda: {why_none}; use device cpu or auto"
    if asked == "cpu" or why_none:
        return None, ""
    try:
        device = torch.device("cuda", _index(context, index))
    except CannotRunError as error:
        return None, str(error)
    torch.cuda.set_device(device)
    return Gpu.of(device), ""


def _agreed(context: Context, gpu: Gpu | None, problem: str) -> tuple[int, int]:
    """Return how many ranks have this rank's GPU, itself among them, and who speaks for the case.

    That is the first rank with a GPU; without any, rank 0.

    Raises:
        NoDeviceError: On all ranks, so that none waits for another: this rank's own problem, or the
            first rank's that has one.
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


def same_kind(context: Context, device: torch.device | None) -> None:
    """Refuse a case that some ranks are to compute on GPUs and others on the host.

    ``auto`` decides on each rank by itself. All ranks must call it.

    Args:
        context: The case.
        device: This rank's; None of a rank that needs none like the others'.

    Raises:
        CannotRunError: On every rank, naming one of either kind.
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


def refusal() -> str:
    """Return why torch sees no GPU, as a clause; nothing where it sees one."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    shown = os.environ.get(VISIBLE)
    if shown is not None and shown.strip() in ("", "-1", "NoDevFiles"):
        return f"{VISIBLE} is {shown!r}, which hides every GPU"
    if torch.cuda.is_available() and torch.cuda.device_count():
        return ""
    count = torch.cuda.device_count()
    hidden = f" with {VISIBLE}={shown}" if shown is not None else ""
    return (
        f"torch {torch.__version__} for CUDA {torch.version.cuda} counts {count} usable GPUs"
        f"{hidden}: no driver, one too old for it, or no GPU"
    )


def address_of(device: torch.device) -> str:
    """Return where a GPU is on the PCI bus of its host, ``0000:81:00.0``: no other there is.

    A launcher may show each rank another GPU under the same number. Instances of MIG have uuids of
    their own and one address, as NCCL sees them. The driver tells it; where it does not, torch.
    """
    known = driver()
    address = known.address(device.index or 0) if known is not None else None
    if address is not None:
        return address
    told: Any = torch.cuda.get_device_properties(device)
    return f"{told.pci_domain_id:04x}:{told.pci_bus_id:02x}:{told.pci_device_id:02x}.0"


def _index(context: Context, asked: int | None) -> int:
    """Return the number of this rank's GPU among those that the process sees."""
    count = torch.cuda.device_count()
    if asked is not None:
        if asked >= count:
            raise NoDeviceError(
                f"GPU {asked} is asked for on {context.world.host}, and this rank sees {count}; "
                f"name those that are there"
            )
        return asked
    told = told_local_rank(os.environ)
    if told is not None and told[0] != context.world.local_rank:
        raise CannotRunError(
            f"rank {context.world.rank} is local rank {told[0]} by {told[1]} and "
            f"{context.world.local_rank} by the host names of the ranks, {context.world.host} "
            "here: give each host one name of its own, so that ranks take GPUs of their own"
        )
    return context.world.local_rank % count


def _described(context: Context, gpu: Gpu, sharing: int, asked: str) -> str:
    near, phrase = place_of(gpu.address, context.world.cpus)
    if near is False and (address := gpu.address) not in _TOLD:
        _TOLD.add(address)
        context.log(f"GPU {gpu.index} of rank {context.world.rank} is {phrase}", level="warning")
    shared = f"shared by {sharing} ranks" if sharing > 1 else "this rank's alone"
    return (
        f"{asked}; PCI {gpu.address}, {phrase}, {shared}, "
        f"capability {gpu.capability[0]}.{gpu.capability[1]}, CUDA {torch.version.cuda}, "
        f"driver {driver_version() or 'not known'}"
    )
