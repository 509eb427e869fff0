"""The sentence for a host or a GPU without memory."""

import pytest
import torch

from spbench_parallel.errors import CannotRunError, catch_out_of_memory

SIZE = 3 << 30
OF_THE_GPU = (
    "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 139.72 GiB of "
    "which 2.50 GiB is free. Process 7 has 100.00 GiB memory in use. If reserved but unallocated "
    "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)
PINNED = (
    "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in "
    "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information."
)


def told(error):
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
def test_of_the_host_it_says_what_was_asked_for(error):
    assert told(error) == "there is no memory for 3.0 GiB on this rank; take a smaller case"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shapes do not match"),
        RuntimeError("could not allocate a name"),
        ValueError(),
        # Of a GPU, device/failures makes the sentence, which knows the case's parameters too.
        torch.OutOfMemoryError(OF_THE_GPU),
        torch.AcceleratorError(PINNED),
    ],
)
def test_other_errors_stay_what_they_are(error):
    with pytest.raises(type(error)) as caught, catch_out_of_memory(SIZE):
        raise error
    assert caught.value is error
