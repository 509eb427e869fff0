"""Start of CUDA on a rank's GPU, before the console watches the rank for silence."""

from __future__ import annotations

from contextlib import suppress

import torch

from spbench_parallel.device.gpus import explain_missing_gpu


def start_gpu(local_rank: int) -> None:
    """Start CUDA on the GPU of a local rank, and load the libraries that most cases use.

    The start of the driver, of cuBLAS and of cuDNN can each hold Python's global lock for seconds,
    and a process that waits for it sends no heartbeat. Without a GPU this returns at once. A
    failure is not reported here: the case meets it again and reports it with its parameters.
    """
    if explain_missing_gpu():
        return
    with suppress(Exception):
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        load_libraries(device)
        # cuBLAS keeps memory for its products, which would count for cases that have none.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


def load_libraries(device: torch.device) -> None:
    """Multiply and convolve once on a device, with gradients, and wait for the results."""
    matrix = torch.ones(8, 8, device=device)
    image = torch.ones(1, 8, 8, 8, device=device, requires_grad=True)
    weight = torch.ones(8, 8, 3, 3, device=device, requires_grad=True)
    product = torch.mm(matrix, matrix)
    torch.conv2d(image, weight).sum().backward()
    product.sum().item()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
