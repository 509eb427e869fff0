"""The ranks of `benchmarks.library_check`: build a network and train two steps.

    mpiexec -n 2 python -m mpi4py -m benchmarks.library_check_ranks OUTPUT NETWORK [verify]

Rank 0 writes the seconds of building it, and each rank's peak memory in MiB, to OUTPUT as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from mpi4py import MPI
from torch import nn

from spbench_parallel.api import Box, ParallelNetwork
from spbench_parallel.models.imported.example import UNet

CLASSES = 5
TOKEN = 16
WIDTH = 768


class TokenNetwork(nn.Module):
    """Blocks of linear layers on tokens: weights take nearly all of the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.split = nn.Conv2d(3, WIDTH, TOKEN, TOKEN)
        self.blocks = nn.ModuleList(_make_block() for _ in range(8))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images: Any) -> Any:
        """Return the logits."""
        tokens = self.split(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            tokens = tokens + block(tokens)
        return self.head(tokens.mean(1))


def _make_block() -> nn.Module:
    wide = 4 * WIDTH
    return nn.Sequential(
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, wide), nn.GELU(), nn.Linear(wide, WIDTH)
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int, dict[str, Any]]] = {
    "tiles": (
        lambda: UNet(32, levels=4, classes=CLASSES),
        512,
        {"grids": ["1x2"], "batch_size": 1},
    ),
    "stages": (
        lambda: UNet(64, levels=4, classes=CLASSES),
        256,
        {"stages": 2, "batch_size": 2},
    ),
    "tokens": (
        TokenNetwork,
        224,
        {"stages": 2, "batch_size": 4},
    ),
}
"""A network, the size of its images, and its layout."""


def load_pixels(step: int, images: range, box: Box) -> torch.Tensor:
    """Return random pixels."""
    return torch.rand(len(images), 3, *box.shape)


def load_classes(step: int, images: range, box: Box) -> torch.Tensor:
    """Return a class for each image."""
    return torch.tensor([image % CLASSES for image in images])


def main() -> None:
    """Build the network, and train it."""
    output, name, *options = sys.argv[1:]
    make_module, size, layout = NETWORKS[name]
    torch.manual_seed(0)
    module = make_module()
    comm = MPI.COMM_WORLD
    comm.Barrier()
    start = perf_counter()
    verify = options == ["verify"]
    network = ParallelNetwork(module, size, load_pixels, load_classes, verify=verify, **layout)
    seconds = perf_counter() - start
    for step in range(2):
        network.step(step)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    peaks = comm.gather(peak)
    if comm.rank == 0:
        Path(output).write_text(json.dumps({"seconds": seconds, "peaks": peaks}))


if __name__ == "__main__":
    main()
