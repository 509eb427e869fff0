"""The GPUs that this process sees: their facts, and why there is none."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from spbench_core.host_facts import VISIBLE_DEVICES
from spbench_parallel.device.driver import load_driver
from spbench_parallel.errors import CannotRunError


class NoDeviceError(CannotRunError):
    """A device was asked for that is not there."""

    missing = True


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU of a rank, with its facts.

    Attributes:
        index: Its number in this process.
        name: The name of its model.
        address: Its address on the PCI bus of the host.
        capability: Its compute capability.
    """

    index: int
    name: str
    address: str
    capability: tuple[int, int]

    @classmethod
    def from_device(cls, device: torch.device) -> Gpu:
        """Return the facts about a GPU from torch and the driver."""
        return cls(
            device.index or 0,
            torch.cuda.get_device_name(device),
            read_pci_address(device),
            torch.cuda.get_device_capability(device),
        )


def explain_missing_gpu() -> str:
    """Return why torch sees no GPU, as a clause; empty where it sees one."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    shown = os.environ.get(VISIBLE_DEVICES)
    if shown is not None and shown.strip() in ("", "-1", "NoDevFiles"):
        return f"{VISIBLE_DEVICES} is {shown!r}, which hides every GPU"
    if torch.cuda.is_available() and torch.cuda.device_count():
        return ""
    count = torch.cuda.device_count()
    hidden = f" with {VISIBLE_DEVICES}={shown}" if shown is not None else ""
    return (
        f"torch {torch.__version__} for CUDA {torch.version.cuda} counts {count} usable GPUs"
        f"{hidden}: no driver, one too old for it, or no GPU"
    )


def read_pci_address(device: torch.device) -> str:
    """Return the address of a GPU on the PCI bus of its host, ``0000:81:00.0``, unique there.

    A launcher may show each rank another GPU under the same number. Instances of MIG have uuids of
    their own and one address, as NCCL sees them. The driver tells it; otherwise torch does.
    """
    known = load_driver()
    address = known.read_pci_address(device.index or 0) if known is not None else None
    if address is not None:
        return address
    gpu: Any = torch.cuda.get_device_properties(device)
    return f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
