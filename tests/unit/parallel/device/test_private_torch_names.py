"""Private names of torch that GPU paths use: a new version may lack them.

Functions for CUDA IPC are in test_ipc.py. Builds without CUDA lack some names, which torch's
installed declarations show.
"""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

DECLARATIONS = Path(torch.__file__).parent / "_C" / "__init__.pyi"
GROUP_NAMES = (
    "supports_coalescing",
    "send",
    "recv",
    "allreduce",
    "_start_coalescing",
    "_end_coalescing",
    "shutdown",
    "abort",
)


@pytest.mark.parametrize("name", ["_host_emptyCache", "_cuda_clearCublasWorkspaces"])
def test_torch_can_free_pinned_memory_and_workspaces(name):
    """Without these names, memory is not freed: see `device.memory`, `device.gpus`."""
    assert f"def {name}()" in DECLARATIONS.read_text()


@pytest.mark.skipif(torch.version.cuda is None, reason="this torch is built without CUDA")
@pytest.mark.parametrize("name", ["_host_emptyCache", "_cuda_clearCublasWorkspaces"])
def test_torch_with_cuda_can_free_pinned_memory_and_workspaces(name):
    assert hasattr(torch._C, name)


@pytest.mark.parametrize("name", GROUP_NAMES)
def test_process_groups_of_gloo_have_the_used_names(name):
    assert hasattr(dist.ProcessGroupGloo, name)


@pytest.mark.skipif(not dist.is_nccl_available(), reason="this torch is built without NCCL")
def test_process_groups_of_nccl_have_the_used_names():
    assert [name for name in GROUP_NAMES if not hasattr(dist.ProcessGroupNCCL, name)] == []
    options = dist.ProcessGroupNCCL.Options
    assert hasattr(options, "_timeout")
    assert hasattr(options, "is_high_priority_stream")
