"""What goes wrong on a GPU, in one sentence: memory, mode, errors of the hardware, the driver."""

from __future__ import annotations

import re
import sys

from spbench_workers.errors import CannotRunError

_OUT_OF_MEMORY = re.compile(
    r"Tried to allocate (?P<asked>[\d.]+ [KMGT]?i?B)\. GPU (?P<gpu>\d+) has a total capacity of "
    r"(?P<total>[\d.]+ [KMGT]?i?B) of which (?P<free>[\d.]+ [KMGT]?i?B|0 bytes) is free"
)
_SHARED = re.compile(r"Process \d+ has [\d.]+ [KMGT]?i?B memory in use")
_PINNED = re.compile(r"pin(ned)?[ _]memory|cudaHostAlloc|cudaErrorMemoryAllocation", re.IGNORECASE)
_NO_MEMORY = re.compile(
    r"out of memory|(can't|not enough).* memory|_ALLOC_FAILED|unable to find an engine",
    re.IGNORECASE,
)
"""The last is what torch says where no algorithm of cuDNN had the memory that it needs."""
_LOWER = "lower image_size, batch_size or the number format's bytes, or take more parts or tiles"
_SENTENCES = (
    (
        r"devices? (are|is) busy or unavailable|cudaErrorDevicesUnavailable",
        "the GPU takes no further process: it is in exclusive mode, or another job has it; set it "
        "to default mode (nvidia-smi -c 0), or give each rank a GPU of its own",
    ),
    (
        r"uncorrectable ECC error|ECCUncorrectable",
        "the GPU's memory has an uncorrectable ECC error: take it out of service (nvidia-smi -q "
        "-d ECC tells more)",
    ),
    (
        r"fallen off the bus|device (was |is )?lost|cudaErrorDeviceLost|no longer accessible"
        r"|unspecified launch failure|hardware stack error",
        "the GPU is lost to this process: look at dmesg for Xid lines, and reset or replace it",
    ),
    (
        r"driver version is insufficient|driver on your system is too old|unsupported display "
        r"driver|InsufficientDriver",
        "NVIDIA's driver is too old for this torch: install a newer driver, or a torch for an "
        "older CUDA (spbench doctor names both)",
    ),
    (
        r"no kernel image is available",
        "this torch has no code for the GPU's capability: install a torch that has (spbench doctor "
        "names both)",
    ),
    (
        r"invalid device ordinal",
        "a GPU is asked for that this rank does not see: compare gpus and CUDA_VISIBLE_DEVICES",
    ),
    (
        r"illegal memory access|misaligned address",
        "a kernel on the GPU read or wrote memory that is not its own: a defect of spbench, torch "
        "or MPI; run again with CUDA_LAUNCH_BLOCKING=1 to learn where",
    ),
)


def sentence_of(error: BaseException) -> str | None:
    """Return what an exception says of a GPU or its memory, in one sentence; None: nothing."""
    text = str(error)
    kind = type(error).__name__
    if kind == "OutOfMemoryError" or "CUDA out of memory" in text:
        return _out_of_memory(text)
    if kind not in ("AcceleratorError", "RuntimeError", "DeferredCudaCallError"):
        return None
    if "CUDA" not in text and "cuda" not in text and "NVIDIA" not in text:
        return None
    if _PINNED.search(text) and "alloc" in text.lower():
        return (
            "the host has no pinned memory left for messages of the GPU: raise ulimit -l and the "
            f"job's memory limit, or {_LOWER}"
        )
    for pattern, sentence in _SENTENCES:
        if re.search(pattern, text, re.IGNORECASE):
            return sentence
    return None


def lacks_memory(error: BaseException) -> bool:
    """Whether an exception says that there was no memory, of a GPU or of the host."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return _NO_MEMORY.search(str(error)) is not None


def _out_of_memory(text: str) -> str:
    found = _OUT_OF_MEMORY.search(text)
    if found is None:
        return f"the GPU has no memory left; {_LOWER}"
    others = len(_SHARED.findall(text))
    shared = f", and {others} other processes have memory of it" if others else ""
    return (
        f"GPU {found['gpu']} has no memory left: {found['asked']} were asked for, "
        f"{found['free']} of {found['total']} were free{shared}; {_LOWER}"
    )


def told_of_gpu(error: Exception) -> Exception:
    """Return the error to raise in place of one of a GPU: a sentence that names the device.

    Any other comes back as it is.
    """
    sentence = None if isinstance(error, CannotRunError) else sentence_of(error)
    if sentence is None:
        return error
    return CannotRunError(f"{_device()}: {sentence}")


def _device() -> str:
    """Return ``cuda:0 (NVIDIA H200)`` where torch can still tell, else ``cuda``."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return "cuda"
    try:
        index = torch.cuda.current_device()
        return f"cuda:{index} ({torch.cuda.get_device_name(index)})"
    except Exception:  # the device may be lost: then it tells nothing
        return "cuda"
