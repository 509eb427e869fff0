"""Variables that are kept with a run."""

from __future__ import annotations

import pytest

from spbench.record.environment import notable


@pytest.mark.parametrize(
    "name",
    [
        "CUDA_VISIBLE_DEVICES",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_MODULE_LOADING",
        "NVIDIA_TF32_OVERRIDE",
        "NVIDIA_VISIBLE_DEVICES",
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDNN_LOGLEVEL_DBG",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "PYTORCH_CUDA_ALLOC_CONF",
        "NCCL_P2P_DISABLE",
        "GLOO_SOCKET_IFNAME",
        "SPBENCH_CUDA_AWARE",
        "SPBENCH_DEVICE",
        "MV2_USE_CUDA",
        "LD_PRELOAD",
    ],
)
def test_what_changes_numbers_is_kept(name):
    assert notable({name: "1"}) == {name: "1"}


@pytest.mark.parametrize(
    "name",
    ["TORCH_HUB_TOKEN", "NVIDIA_API_KEY", "CUDA_PASSWORD", "SPBENCH_TOKEN", "HOME", "AWS_REGION"],
)
def test_secrets_and_what_changes_nothing_are_not(name):
    assert notable({name: "1"}) == {}
