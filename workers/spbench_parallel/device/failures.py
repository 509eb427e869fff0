"""Errors of a GPU as one sentence each: memory, compute mode, hardware, driver."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from spbench_parallel.errors import CannotRunError

_SIZE = r"[\d.]+ (?:bytes|[KMGT]iB)"
_ASKED = re.compile(rf"Tried to allocate (?P<asked>{_SIZE})")
_HELD = re.compile(
    rf"GPU (?P<gpu>\d+) has a total capacity of (?P<total>{_SIZE}) "
    rf"of which (?P<free>{_SIZE}) is free"
)
_OTHERS = re.compile(rf"Process \d+ has ({_SIZE}) memory in use")
_LIMIT = re.compile(rf"({_SIZE}) allowed;")
_OF_GPUS = re.compile(r"cuda|cudnn|cublas|nvidia|nccl", re.IGNORECASE)
_NO_MEMORY = re.compile(
    r"out of memory|ALLOC_FAILED|ALLOCATION_FAILED|cudaErrorMemoryAllocation", re.IGNORECASE
)
_NO_MEMORY_EITHER = re.compile(
    r"(can't|not enough).* memory|unable to find an engine", re.IGNORECASE
)
"""The host's words, and torch's where no algorithm of cuDNN had the memory that it needs."""
_LIBRARIES = ("cuDNN", "cuBLAS", "NCCL")
_SMALLER = (
    "image_size",
    "batch_size",
    "batch_sizes",
    "in_channels",
    "out_channels",
    "num_filters",
    "depth",
    "num_layers",
    "n",
    "size",
    "max_bytes",
)
_MORE = ("parts", "split_size", "num_spatial_parts", "local_DP")
_FORMATS = ("precision", "dtype")
_WIDE = ("fp32", "fp64", "tf32")
_SENTENCES = (
    (
        r"devices?(\(s\))? (is|are|is/are) busy or unavailable|cudaErrorDevicesUnavailable"
        r"|exclusive-thread device already in use|cudaErrorDeviceAlreadyInUse",
        "the GPU takes no further process: it is in exclusive mode, or another job has it; set it "
        "to default mode (nvidia-smi -c 0), or give each rank a GPU of its own",
    ),
    (
        r"ECC error|ECCUncorrectable|cudaErrorContained",
        "the GPU's memory has an uncorrectable ECC error: take it out of service (nvidia-smi -q "
        "-d ECC says more)",
    ),
    (
        r"NVLink error|cudaErrorNvlinkUncorrectable|peer GPU memory over nvlink",
        "a link between GPUs has an uncorrectable error: take them out of service (nvidia-smi "
        "nvlink -e says more)",
    ),
    (
        r"fallen off the bus|(device|GPU) (was |is )?lost|cudaErrorDeviceLost|no longer accessible"
        r"|cudaErrorDeviceUninitialized|CUDA error: unknown error",
        "the GPU is lost to this process: look at dmesg for Xid lines, and reset or replace it",
    ),
    (
        r"driver version is insufficient|driver on your system is too old|InsufficientDriver",
        "NVIDIA's driver is too old for this torch: install a newer driver, or a torch for an "
        "older CUDA (spbench doctor names both)",
    ),
    (
        r"unsupported display driver|forward compatibility was attempted|CompatNotSupported"
        r"|SystemDriverMismatch|Driver/library version mismatch|incompatible driver context",
        "the parts of NVIDIA's driver do not fit each other: the kernel's and the library's are of "
        "two versions, as after an update without a reboot, or in a container (spbench doctor "
        "names the kernel's)",
    ),
    (
        r"Found no NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device is detected"
        r"|driver initialization failed|CUDA unknown error|initialization error"
        r"|system not yet initialized",
        "NVIDIA's driver shows this process no GPU that works: see nvidia-smi, "
        "CUDA_VISIBLE_DEVICES and, with NVSwitch, whether the fabric manager runs",
    ),
    (
        r"no kernel image is available|unsupported toolchain|ARCH_MISMATCH",
        "this torch has no code for the GPU's capability: install a torch that has (spbench doctor "
        "names both)",
    ),
    (
        r"MPS (client|server)|cudaErrorMps",
        "the MPS server of this host does not take the rank: see whether it runs, and how many "
        "clients it allows (nvidia-cuda-mps-control)",
    ),
    (
        r"invalid device ordinal",
        "a GPU is asked for that this rank does not see: compare gpus and CUDA_VISIBLE_DEVICES",
    ),
    (
        r"launch timed out",
        "a kernel took longer than the driver lets it, as where a display hangs on the GPU: take "
        "a GPU without one, or a smaller case",
    ),
    (
        r"illegal memory access|misaligned address|illegal instruction|assert triggered"
        r"|unspecified launch failure|hardware stack error",
        "a kernel on the GPU read or wrote memory that is not its own: a defect of spbench, torch "
        "or MPI; run again with CUDA_LAUNCH_BLOCKING=1 to learn where",
    ),
)


@contextmanager
def note_activity(what: str) -> Iterator[None]:
    """Add to an exception a note of what was being done, such as ``stage 2 was built``."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while {what}")
        raise


def translate_gpu_error(error: Exception, params: Mapping[str, Any] | None = None) -> Exception:
    """Return the error to raise in place of one of a GPU: a sentence that names the device.

    Any other error is returned unchanged.

    Args:
        error: The error.
        params: The case's parameters: where memory is short, those to change are named.
    """
    sentence = (
        None if isinstance(error, CannotRunError) else describe_gpu_error(error, params or {})
    )
    if sentence is None:
        return error
    return CannotRunError(f"{_device()}: {sentence}")


def describe_gpu_error(error: BaseException, params: Mapping[str, Any]) -> str | None:
    """Return an exception of a GPU or its memory as one sentence; None for any other."""
    text = str(error)
    kind = type(error).__name__
    known = ("OutOfMemoryError", "AcceleratorError", "RuntimeError", "DeferredCudaCallError")
    if kind not in (*known, "DistBackendError") or not _OF_GPUS.search(text):
        return None
    if kind == "OutOfMemoryError" or _NO_MEMORY.search(text):
        return f"{_out_of_memory(text)}{_where(error)}; {_to_change(params)}"
    for pattern, sentence in _SENTENCES:
        if re.search(pattern, text, re.IGNORECASE):
            return sentence
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that there was no memory, of a GPU or of the host."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    return bool(_NO_MEMORY.search(text) or _NO_MEMORY_EITHER.search(text))


def _out_of_memory(text: str) -> str:
    asked = _ASKED.search(text)
    held = _HELD.search(text)
    if asked is None:
        # Not of torch's own memory: of a context, kernels, a library, or pinned.
        library = next((one for one in _LIBRARIES if one.lower() in text.lower()), "CUDA")
        return (
            f"{library} got no memory: the GPU has none left for it, or the host none to pin "
            "(ulimit -l and the job's memory limit)"
        )
    if held is None:
        return f"the GPU has no memory left: {asked['asked']} were asked for"
    others = _OTHERS.findall(text)
    limit = _LIMIT.search(text)
    shared = f", other processes have {' and '.join(others)} of it" if others else ""
    allowed = f", this process may have {limit[1]}" if limit else ""
    return (
        f"GPU {held['gpu']} has no memory left: {asked['asked']} were asked for, "
        f"{held['free']} of {held['total']} were free{shared}{allowed}"
    )


def _to_change(params: Mapping[str, Any]) -> str:
    """Return the changes of a case's parameters by which it takes less memory, in words."""
    smaller, more = (
        " or ".join(name for name in names if params.get(name) is not None)
        for names in (_SMALLER, _MORE)
    )
    formats = [f"{name} bf16" for name in _FORMATS if params.get(name) in _WIDE]
    words = [f"lower {smaller}"] if smaller else []
    words += [f"raise {more}"] if more else []
    words += [f"take {formats[0]}"] if formats else []
    return ", ".join(words) or "take a smaller case"


def _where(error: BaseException) -> str:
    """Return what was being done, by the exception's notes or the running layer; or nothing."""
    notes = [one for one in getattr(error, "__notes__", []) if one.startswith("while ")]
    if notes:
        return f", {notes[0]}"
    layer = _layer(error)
    return f", while layer {layer} worked forward" if layer else ""


def _layer(error: BaseException) -> str | None:
    """Return the layer of a stage (a row of modules) that was running at the exception."""
    if "torch" not in sys.modules:
        return None
    from torch.nn import Sequential as Row

    trace = error.__traceback__
    while trace is not None:
        own = trace.tb_frame.f_locals
        row = own.get("self")
        module = own.get("module")
        if isinstance(row, Row) and trace.tb_frame.f_code.co_name == "forward":
            return next((name for name, one in row.named_children() if one is module), None)
        trace = trace.tb_next
    return None


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
