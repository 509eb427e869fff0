"""Environment variables that are recorded with a run."""

from __future__ import annotations

import pytest

from spbench.record.machine.environment import select_variables


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
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "PYTORCH_CUDA_ALLOC_CONF",
        "NCCL_P2P_DISABLE",
        "MV2_USE_CUDA",
        "MVP_USE_CUDA",
        "UCX_TLS",
        "FI_PROVIDER",
        "OMPI_MCA_pml",
        "MPICH_ASYNC_PROGRESS",
        "I_MPI_FABRICS",
        "SLURM_JOB_ID",
        "OMP_NUM_THREADS",
        "I_MPI_PIN",
        "NCCL_IB_PKEY",
        "UCX_RKEY_PTR_SEG_SIZE",
    ],
)
def test_records_variables_that_affect_results(name):
    assert select_variables({name: "1"}) == {name: "1"}


@pytest.mark.parametrize(
    "name",
    [
        "TORCH_HUB_TOKEN",
        "NVIDIA_API_KEY",
        "CUDA_PASSWORD",
        "SLURM_Secret_Word",
        "UCX_api_key",
        "SPBENCH_TOKEN",
        "SLURM_JWT",
        "SLURM_SPANK_PASSWD",
        "MPICH_AUTH",
        "HOME",
        "AWS_REGION",
        "LD_PRELOAD",
        "GLOO_SOCKET_IFNAME",
        "MYOMP_X",
        "omp_num_threads",
    ],
)
def test_omits_secrets_and_irrelevant_variables(name):
    assert select_variables({name: "1"}) == {}


def test_omits_variables_with_credentials_in_their_values():
    assert select_variables({"SLURM_EXPORT_ENV": "ALL,HF_TOKEN=abc"}) == {}
    assert select_variables({"NVIDIA_PROXY": "http://me:word@proxy"}) == {}
