"""User-facing messages for GPU errors: memory, compute mode, hardware, driver."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from spbench_parallel.errors import CannotRunError

_SIZE = r"[\d.]+ (?:bytes|[KMGT]iB)"
_REQUESTED = re.compile(rf"Tried to allocate (?P<asked>{_SIZE})")
_CAPACITY = re.compile(
    rf"GPU (?P<gpu>\d+) has a total capacity of (?P<total>{_SIZE}) "
    rf"of which (?P<free>{_SIZE}) is free"
)
_OTHERS = re.compile(rf"Process \d+ has ({_SIZE}) memory in use")
_LIMIT = re.compile(rf"({_SIZE}) allowed;")
_GPU_ERROR = re.compile(r"cuda|cudnn|cublas|nvidia|nccl", re.IGNORECASE)
_OUT_OF_MEMORY = re.compile(
    r"out of memory|ALLOC_FAILED|ALLOCATION_FAILED|cudaErrorMemoryAllocation", re.IGNORECASE
)
_OTHER_OUT_OF_MEMORY = re.compile(
    r"(can't|not enough).* memory|unable to find an engine", re.IGNORECASE
)
"""Messages of the host, and of torch if no cuDNN algorithm had enough memory."""
_LIBRARIES = ("cuDNN", "cuBLAS", "NCCL")
# Parameters that save memory if they are lowered, or raised.
_LOWER_PARAMS = (
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
_RAISE_PARAMS = ("parts", "split_size", "num_spatial_parts", "local_DP")
_FORMATS = ("precision", "dtype")
_WIDE_FORMATS = ("fp32", "fp64", "tf32")
# Pattern of an error, and the message for it; the first match counts.
_MESSAGES = (
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
def note_activity(activity: str) -> Iterator[None]:
    """Add the current activity, such as ``stage 2 was built``, to an exception."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while {activity}")
        raise


def translate_gpu_error(error: Exception, params: Mapping[str, Any] | None = None) -> Exception:
    """Return the error to raise instead of a GPU error; its message names the device.

    Any other error is returned unchanged.

    Args:
        error: The error.
        params: The case's parameters. If memory is short, the message names those to change.
    """
    message = None if isinstance(error, CannotRunError) else describe_gpu_error(error, params or {})
    if message is None:
        return error
    return CannotRunError(f"{_device_name()}: {message}")


def describe_gpu_error(error: BaseException, params: Mapping[str, Any]) -> str | None:
    """Return the message for a GPU or GPU memory error; None for any other error."""
    text = str(error)
    error_type = type(error).__name__
    error_types = ("OutOfMemoryError", "AcceleratorError", "RuntimeError", "DeferredCudaCallError")
    if error_type not in (*error_types, "DistBackendError") or not _GPU_ERROR.search(text):
        return None
    if error_type == "OutOfMemoryError" or _OUT_OF_MEMORY.search(text):
        cause = _describe_out_of_memory(text) + _describe_activity(error)
        return f"{cause}; {_suggest_changes(params)}"
    for pattern, message in _MESSAGES:
        if re.search(pattern, text, re.IGNORECASE):
            return message
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception reports a lack of memory, on a GPU or the host."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    return bool(_OUT_OF_MEMORY.search(text) or _OTHER_OUT_OF_MEMORY.search(text))


def _describe_out_of_memory(text: str) -> str:
    requested = _REQUESTED.search(text)
    capacity = _CAPACITY.search(text)
    if requested is None:
        # Not torch's allocator: a context, kernels, a library, or pinned memory.
        library = next((name for name in _LIBRARIES if name.lower() in text.lower()), "CUDA")
        return (
            f"{library} got no memory: the GPU has none left for it, or the host none to pin "
            "(ulimit -l and the job's memory limit)"
        )
    if capacity is None:
        return f"the GPU has no memory left: {requested['asked']} were asked for"
    other_usage = _OTHERS.findall(text)
    limit = _LIMIT.search(text)
    others_text = f", other processes have {' and '.join(other_usage)} of it" if other_usage else ""
    limit_text = f", this process may have {limit[1]}" if limit else ""
    return (
        f"GPU {capacity['gpu']} has no memory left: {requested['asked']} were asked for, "
        f"{capacity['free']} of {capacity['total']} were free{others_text}{limit_text}"
    )


def _suggest_changes(params: Mapping[str, Any]) -> str:
    """Return the changes of a case's parameters that save memory, as text."""
    lower, higher = (
        " or ".join(name for name in names if params.get(name) is not None)
        for names in (_LOWER_PARAMS, _RAISE_PARAMS)
    )
    formats = [f"{name} bf16" for name in _FORMATS if params.get(name) in _WIDE_FORMATS]
    changes = [f"lower {lower}"] if lower else []
    changes += [f"raise {higher}"] if higher else []
    changes += [f"take {formats[0]}"] if formats else []
    return ", ".join(changes) or "take a smaller case"


def _describe_activity(error: BaseException) -> str:
    """Return the activity from the exception's notes or the running layer; or ""."""
    notes = [note for note in getattr(error, "__notes__", []) if note.startswith("while ")]
    if notes:
        return f", {notes[0]}"
    layer = _find_running_layer(error)
    return f", while layer {layer} worked forward" if layer else ""


def _find_running_layer(error: BaseException) -> str | None:
    """Return the layer of a stage that was running at the exception; or None."""
    if "torch" not in sys.modules:
        return None
    from torch.nn import Sequential

    traceback_ = error.__traceback__
    while traceback_ is not None:
        variables = traceback_.tb_frame.f_locals
        sequence = variables.get("self")
        module = variables.get("module")
        if isinstance(sequence, Sequential) and traceback_.tb_frame.f_code.co_name == "forward":
            return next(
                (name for name, child in sequence.named_children() if child is module), None
            )
        traceback_ = traceback_.tb_next
    return None


def _device_name() -> str:
    """Return ``cuda:0 (NVIDIA H200)``, or ``cuda`` if torch does not know the device."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return "cuda"
    try:
        index = torch.cuda.current_device()
        return f"cuda:{index} ({torch.cuda.get_device_name(index)})"
    except Exception:  # a lost device has no name
        return "cuda"
