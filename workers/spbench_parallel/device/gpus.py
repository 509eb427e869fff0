"""GPUs visible to this process: properties, start, or why there is none."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from spbench_core.host_facts import VISIBLE_DEVICES
from spbench_parallel.device.driver import load_driver
from spbench_parallel.errors import CannotRunError


class NoDeviceError(CannotRunError):
    """Error: a requested device does not exist."""

    missing = True


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU of a rank.

    Attributes:
        index: Its index in this process.
        name: The name of the model.
        address: Its PCI address on the host.
        capability: Its compute capability.
    """

    index: int
    name: str
    address: str
    capability: tuple[int, int]

    @classmethod
    def from_device(cls, device: torch.device) -> Gpu:
        """Read the properties of a GPU from torch and the driver."""
        return cls(
            device.index or 0,
            torch.cuda.get_device_name(device),
            read_pci_address(device),
            torch.cuda.get_device_capability(device),
        )


def explain_missing_gpu() -> str:
    """Return why torch sees no GPU (a clause); empty if it sees one."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    visible = os.environ.get(VISIBLE_DEVICES)
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return f"{VISIBLE_DEVICES} is {visible!r}, which hides every GPU"
    if torch.cuda.is_available() and torch.cuda.device_count():
        return ""
    count = torch.cuda.device_count()
    hidden = f" with {VISIBLE_DEVICES}={visible}" if visible is not None else ""
    return (
        f"torch {torch.__version__} for CUDA {torch.version.cuda} counts {count} usable GPUs"
        f"{hidden}: no driver, one too old for it, or no GPU"
    )


def read_pci_address(device: torch.device) -> str:
    """Return the PCI address of a GPU, ``0000:81:00.0``, unique on its host.

    A launcher may give each rank another GPU with the same index. MIG instances of a GPU share its
    address; they differ in their UUIDs. NCCL identifies GPUs in the same way. The driver is asked
    first, because it is right for MIG; torch is the fallback.
    """
    driver = load_driver()
    address = driver.read_pci_address(device.index or 0) if driver is not None else None
    if address is not None:
        return address
    gpu: Any = torch.cuda.get_device_properties(device)
    return f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"


def start_gpu(local_rank: int) -> None:
    """Start CUDA on the GPU of a local rank, and load common libraries.

    This happens before the console watches for heartbeats: starting the driver, cuBLAS and cuDNN
    can hold the GIL for seconds each, during which a process sends no heartbeat. Without a GPU this
    returns at once. Failures are ignored here: the case meets them again and reports them with its
    parameters.
    """
    if explain_missing_gpu():
        return
    with suppress(Exception):
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        load_libraries(device)
        # Free the cuBLAS workspace: it would count as memory of cases without matrix products.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


def load_libraries(device: torch.device) -> None:
    """Multiply and convolve once with gradients, and wait for the results."""
    matrix = torch.ones(8, 8, device=device)
    image = torch.ones(1, 8, 8, 8, device=device, requires_grad=True)
    weight = torch.ones(8, 8, 3, 3, device=device, requires_grad=True)
    product = torch.mm(matrix, matrix)
    torch.conv2d(image, weight).sum().backward()
    product.sum().item()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
