"""Where a rank keeps its data, and how numbers are made on it."""

from __future__ import annotations

import torch

from spbench_workers.errors import CannotRunError

TORCH_DTYPES = {
    "fp32": torch.float32,
    "fp64": torch.float64,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


class NoDeviceError(CannotRunError):
    """A device that was asked for is not there."""


def choose(preference: str, local_rank: int) -> torch.device:
    """Return the device of this rank: GPUs are dealt out by local rank.

    Args:
        preference: ``auto`` (a GPU where there is one), ``cpu`` or ``cuda``.
        local_rank: This rank's number on its host.

    Raises:
        NoDeviceError: ``cuda`` was asked for and torch sees no GPU.
    """
    if preference == "cpu" or (preference == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise NoDeviceError("device cuda: torch sees no GPU here; use device cpu or auto")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what was asked of it; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
