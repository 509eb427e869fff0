"""The message for a host or a GPU without memory."""

import pytest
import torch

from spbench_parallel.errors import CannotRunError, catch_out_of_memory

SIZE = 3 << 30
GPU_MESSAGE = (
    "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 139.72 GiB of "
    "which 2.50 GiB is free. Process 7 has 100.00 GiB memory in use. If reserved but unallocated "
    "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)
PINNED = (
    "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in "
    "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information."
)


def catch_message(error):
    with pytest.raises(CannotRunError) as caught, catch_out_of_memory(SIZE):
        raise error
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 3 bytes"),
    ],
)
def test_reports_the_memory_that_the_host_lacks(error, messages):
    messages.check(catch_message(error))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shapes do not match"),
        RuntimeError("could not allocate a name"),
        ValueError(),
        # For a GPU, device/failures writes the message because it knows the case's parameters.
        torch.OutOfMemoryError(GPU_MESSAGE),
        torch.AcceleratorError(PINNED),
    ],
)
def test_passes_other_errors_unchanged(error):
    with pytest.raises(type(error)) as caught, catch_out_of_memory(SIZE):
        raise error
    assert caught.value is error
