"""Number formats of data on a device, and the format in which fp32 is multiplied."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

import torch

from spbench_parallel.errors import CannotRunError

TORCH_DTYPES = {
    "fp32": torch.float32,
    "fp64": torch.float64,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
"""Torch's dtypes by our names."""
TF32_CAPABILITY = (8, 0)
"""The first GPUs whose tensor cores multiply TF32 (Ampere)."""
_FORCED = "NVIDIA_TF32_OVERRIDE"


def torch_dtype(name: str) -> torch.dtype:
    """Return torch's dtype of a format; tf32 is fp32 in memory."""
    return TORCH_DTYPES["fp32" if name == "tf32" else name]


def set_fp32_precision(device: torch.device, *, tf32: bool = False) -> None:
    """Set whether convolutions and matrix products multiply fp32 as TF32 on a GPU.

    Torch allows TF32 in convolutions by default.

    Raises:
        CannotRunError: The device has no TF32, or the environment forces the other format.
    """
    if device.type == "cuda":
        _check(device, tf32)
    elif tf32:
        raise CannotRunError("tf32 needs a GPU, and the device is cpu; take fp32")
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32


def _check(device: torch.device, tf32: bool) -> None:
    capability = torch.cuda.get_device_capability(device)
    if tf32 and capability < TF32_CAPABILITY:
        raise CannotRunError(
            f"tf32 needs a GPU of capability 8.0 or newer, and {device} has "
            f"{capability[0]}.{capability[1]}; take fp32"
        )
    forced = os.environ.get(_FORCED)
    if forced in ("0", "1") and (forced == "1") != tf32:
        asked, given = ("tf32", "fp32") if tf32 else ("fp32", "tf32")
        raise CannotRunError(
            f"{_FORCED}={forced} makes every product {given}, and {asked} is asked for; unset it"
        )


def autotune_convolutions(*, tf32: bool = False) -> AbstractContextManager[object]:
    """Return a context in which cuDNN convolves by the algorithm that it measures as the fastest.

    ``torch.backends.cudnn.flags`` switches cuDNN off by default.
    """
    return torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=tf32)
