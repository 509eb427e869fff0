"""CUDA start-up on the GPU of a rank, before the console watches for heartbeats."""

from __future__ import annotations

from contextlib import suppress

import torch

from spbench_parallel.device.gpus import explain_missing_gpu


def start_gpu(local_rank: int) -> None:
    """Start CUDA on the GPU of a local rank, and load common libraries.

    Starting the driver, cuBLAS and cuDNN can hold the GIL for seconds each, during which a process
    sends no heartbeat. Without a GPU this returns at once. Failures are ignored here: the case
    meets them again and reports them with its parameters.
    """
    if explain_missing_gpu():
        return
    with suppress(Exception):
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        load_libraries(device)
        # Free the cuBLAS workspace: it would count as memory of cases without matrix products.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


def load_libraries(device: torch.device) -> None:
    """Multiply and convolve once with gradients, and wait for the results."""
    matrix = torch.ones(8, 8, device=device)
    image = torch.ones(1, 8, 8, 8, device=device, requires_grad=True)
    weight = torch.ones(8, 8, 3, 3, device=device, requires_grad=True)
    product = torch.mm(matrix, matrix)
    torch.conv2d(image, weight).sum().backward()
    product.sum().item()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
