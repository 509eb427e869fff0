"""Failures of a GPU as torch raises them, and their messages with a remedy.

The texts are those of torch: of 2.11.0 for CUDA 13, from its libraries, and of reports from 2.6 on.
The longest are cut short.
"""

import pytest
import torch
from torch import nn

from spbench_core.catalog import BENCHMARKS
from spbench_core.models.layers import Model
from spbench_parallel.device.failures import describe_gpu_error, note_activity, translate_gpu_error
from spbench_parallel.errors import CannotRunError, catch_out_of_memory
from spbench_parallel.pipeline import building

SEARCH = (
    "\nSearch for `{}' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html "
    "for more information."
)
DSA = "\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
LATER = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
)
ONE_PROCESS = (
    "CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of "
    "which 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in "
    "use. Of the allocated memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by "
    "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
SHARED = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB of "
    "which 1.19 GiB is free. Process 123 has 10.00 GiB memory in use. Including non-PyTorch "
    "memory, this process has 57.92 GiB memory in use. Process 7 has 512.00 MiB memory in use. "
    "60.00 GiB allowed; Of the allocated memory 57.00 GiB is allocated by PyTorch, and 1.00 MiB is "
    "reserved by PyTorch but unallocated."
)
FULL = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 139.81 GiB of "
    "which 0 bytes is free. Of the allocated memory 16.16 GiB is allocated by PyTorch."
)


def make_cuda_errors(text, name="", later=""):
    """Return the error as torch raises it, before 2.8 and after."""
    old_error = RuntimeError(f"CUDA error: {text}{later}{DSA}")
    return [
        old_error,
        torch.AcceleratorError(f"CUDA error: {text}{SEARCH.format(name)}{later}{DSA}"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            ONE_PROCESS,
            "GPU 0 has no memory left: 22.78 GiB were asked for, 12.73 GiB of 31.47 GiB were free",
        ),
        (
            SHARED,
            "GPU 3 has no memory left: 2.00 GiB were asked for, 1.19 GiB of 79.11 GiB were free, "
            "other processes have 10.00 GiB and 512.00 MiB of it, this process may have 60.00 GiB",
        ),
        (
            FULL,
            "GPU 1 has no memory left: 20.00 MiB were asked for, 0 bytes of 139.81 GiB were free",
        ),
    ],
)
def test_describes_exhausted_gpu_memory(text, expected):
    error = torch.OutOfMemoryError(text)
    assert describe_gpu_error(error, {}) == f"{expected}; take a smaller case"


@pytest.mark.parametrize(
    ("error", "library"),
    [
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "cuDNN"),
        (
            RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
            "cuDNN",
        ),
        (
            RuntimeError(
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            ),
            "cuBLAS",
        ),
        (
            torch.distributed.DistBackendError(
                "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled "
                "cuda error\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
                "Cuda failure 2 'out of memory'"
            ),
            "NCCL",
        ),
        *(
            (error, "CUDA")
            for error in make_cuda_errors("out of memory", "cudaErrorMemoryAllocation")
        ),
    ],
)
def test_describes_missing_memory_of_a_library_or_to_pin(error, library):
    assert describe_gpu_error(error, {}) == (
        f"{library} got no memory: the GPU has none left for it, or the host none to pin (ulimit "
        "-l and the job's memory limit); take a smaller case"
    )


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        (
            "model.resnet",
            {"scheme": "sequential"},
            "lower image_size or batch_size or depth, raise parts, take precision bf16",
        ),
        (
            "model.resnet",
            {"scheme": "sp", "precision": "bf16"},
            "lower image_size or batch_size or depth, raise parts or split_size or "
            "num_spatial_parts or local_DP",
        ),
        (
            "model.profile",
            {},
            "lower image_size or batch_sizes or depth, take precision bf16",
        ),
        (
            "halo.exchange",
            {"image_size": 64, "halo_len": 1, "num_spatial_parts": 4},
            "lower image_size or batch_size or in_channels, raise num_spatial_parts, take dtype "
            "bf16",
        ),
        ("compute.gemm", {}, "lower n, take dtype bf16"),
        ("memory.copy", {}, "lower size"),
    ],
)
def test_suggests_parameters_of_the_case(name, params, expected):
    completed = BENCHMARKS[name].complete(params)
    assert describe_gpu_error(torch.OutOfMemoryError(ONE_PROCESS), completed).endswith(
        f"were free; {expected}"
    )


class Greedy(nn.Module):
    def forward(self, data):
        raise torch.OutOfMemoryError(ONE_PROCESS)


def test_names_the_layer_that_needed_memory():
    stage = nn.Sequential()
    stage.add_module("stem", nn.Identity())
    stage.add_module("block1", nn.Sequential(nn.ReLU(), Greedy()))
    with pytest.raises(torch.OutOfMemoryError) as caught:
        stage(torch.zeros(1))
    message = describe_gpu_error(caught.value, {})
    assert message.endswith("were free, while layer block1 worked forward; take a smaller case")


def test_names_the_stage_that_was_built(monkeypatch):
    def build(*_, **__):
        raise torch.OutOfMemoryError(ONE_PROCESS)

    from mpi4py import MPI

    from spbench_core.layout.stages import build_layout
    from spbench_core.models.registry import make_model
    from spbench_parallel.plan import ModelPlan

    network: Model = make_model("resnet", image_size=(32, 32), num_classes=5, version=2, depth=11)
    plan = ModelPlan(network, build_layout(1), (len(network.layers),), ())
    monkeypatch.setattr(building, "build_stage", build)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        building.build_local_stage(MPI.COMM_SELF, plan, plan.layout.list_coordinates(0)[0])
    assert "were free, while stage 0 was built, layers 0 to 4;" in describe_gpu_error(
        caught.value, {}
    )


def test_notes_the_activity_on_an_error(messages):
    with pytest.raises(ValueError, match="odd") as caught, note_activity("it was measured"):
        raise ValueError("odd")
    messages.check(caught.value.__notes__)


BUSY = "takes no further process: it is in exclusive mode"
ECC = "has an uncorrectable ECC error: take it out of service"
FAULTY = "a kernel on the GPU read or wrote memory that is not its own"
LOST = "the GPU is lost to this process: look at dmesg"
OLD = "NVIDIA's driver is too old for this torch"
MIXED = "the parts of NVIDIA's driver do not fit each other"
NONE = "NVIDIA's driver shows this process no GPU that works"
NO_CODE = "this torch has no code for the GPU's capability"


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        (
            make_cuda_errors(
                "CUDA-capable device(s) is/are busy or unavailable", "cudaErrorDevicesUnavailable"
            ),
            BUSY,
        ),
        (make_cuda_errors("all CUDA-capable devices are busy or unavailable"), BUSY),
        (make_cuda_errors("exclusive-thread device already in use by a different thread"), BUSY),
        (make_cuda_errors("uncorrectable ECC error encountered", "cudaErrorECCUncorrectable"), ECC),
        (
            make_cuda_errors(
                "uncorrectable NVLink error detected during the execution",
                "cudaErrorNvlinkUncorrectable",
            ),
            "a link between GPUs has an uncorrectable error",
        ),
        (make_cuda_errors("unspecified launch failure", "cudaErrorLaunchFailure", LATER), FAULTY),
        (make_cuda_errors("hardware stack error", "cudaErrorHardwareStackError"), FAULTY),
        (make_cuda_errors("unknown error", "cudaErrorUnknown"), LOST),
        (
            make_cuda_errors(
                "CUDA driver version is insufficient for CUDA runtime version",
                "cudaErrorInsufficientDriver",
            ),
            OLD,
        ),
        (
            [
                RuntimeError(
                    "The NVIDIA driver on your system is too old (found version 12020). Please "
                    "update your GPU driver by downloading and installing a new version"
                )
            ],
            OLD,
        ),
        (
            [
                RuntimeError(
                    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
                    "before calling NumCudaDevices() that might have already set an error? Error "
                    "803: system has unsupported display driver / cuda driver combination"
                ),
                RuntimeError(
                    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
                    "before calling NumCudaDevices() that might have already set an error? Error "
                    "804: forward compatibility was attempted on non supported HW"
                ),
            ],
            MIXED,
        ),
        (
            [
                RuntimeError(
                    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA "
                    "GPU and installed a driver from http://www.nvidia.com/Download/index.aspx"
                ),
                RuntimeError("No CUDA GPUs are available"),
                RuntimeError("CUDA driver initialization failed, you might not have a CUDA gpu."),
                RuntimeError(
                    "CUDA unknown error - this may be due to an incorrectly set up environment, "
                    "e.g. changing env variable CUDA_VISIBLE_DEVICES after program start. Setting "
                    "the available devices to be zero."
                ),
                RuntimeError(
                    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
                    "before calling NumCudaDevices() that might have already set an error? Error "
                    "802: system not yet initialized"
                ),
            ],
            NONE,
        ),
        (
            make_cuda_errors(
                "no kernel image is available for execution on the device",
                "cudaErrorNoKernelImageForDevice",
            ),
            NO_CODE,
        ),
        (
            make_cuda_errors(
                "the provided PTX was compiled with an unsupported toolchain.",
                "cudaErrorUnsupportedPtxVersion",
            ),
            NO_CODE,
        ),
        (
            make_cuda_errors(
                "MPS client failed to connect to the MPS control daemon or the MPS server",
                "cudaErrorMpsConnectionFailed",
            ),
            "the MPS server of this host does not take the rank",
        ),
        (
            [
                torch.AcceleratorError(
                    "CUDA error: invalid device ordinal\nGPU device may be out of range, do you "
                    f"have enough GPUs?{DSA}"
                )
            ],
            "a GPU is asked for that this rank does not see",
        ),
        (
            make_cuda_errors("the launch timed out and was terminated", "cudaErrorLaunchTimeout"),
            "a kernel took longer than the driver lets it",
        ),
        (
            make_cuda_errors(
                "an illegal memory access was encountered", "cudaErrorIllegalAddress", LATER
            ),
            "a kernel on the GPU read or wrote memory that is not its own",
        ),
        (
            make_cuda_errors("device-side assert triggered", "cudaErrorAssert", LATER),
            "a kernel on the GPU read or wrote memory that is not its own",
        ),
    ],
)
def test_describes_other_gpu_errors(errors, expected):
    for error in errors:
        message = describe_gpu_error(error, {})
        assert message is not None, error
        assert expected in message, error
        assert "\n" not in message


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate "
            "memory)"
        ),
        MemoryError(),
        RuntimeError("shape '[3]' is invalid for input of size 4"),
        ValueError("CUDA error: out of memory"),
        CannotRunError("tf32 needs a GPU, and the device is cpu; take fp32"),
        *make_cuda_errors("operation not permitted when stream is capturing"),
    ],
)
def test_returns_other_errors_unchanged(error):
    assert translate_gpu_error(error) is error


def test_the_message_names_the_device(monkeypatch, messages):
    error = torch.OutOfMemoryError(FULL)
    assert str(translate_gpu_error(error)).startswith("cuda: GPU 1 has no memory left")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    assert str(translate_gpu_error(error)).startswith(
        "cuda:1 (NVIDIA H200): GPU 1 has no memory left"
    )

    def raise_unknown_error():
        raise RuntimeError("CUDA error: unknown error")

    monkeypatch.setattr(torch.cuda, "current_device", raise_unknown_error)
    messages.check(str(translate_gpu_error(make_lost_error())))


def make_lost_error():
    return RuntimeError(f"CUDA error: unknown error{LATER}{DSA}")


def test_prefers_the_message_of_the_gpu_to_counted_memory():
    with pytest.raises(torch.OutOfMemoryError), catch_out_of_memory(1 << 40):
        raise torch.OutOfMemoryError(ONE_PROCESS)
    with (
        pytest.raises(CannotRunError, match=r"no memory for 1024\.0 GiB"),
        catch_out_of_memory(1 << 40),
    ):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
