"""Trains on two ranks on a device that works late, and compares with the host.

    mpirun -n 2 python -m mpi4py train_late.py RESULTS.json

The device is `tests/standins/late_device.py`: without a wait, a result is NaN or its old value. Its
results are bitwise equal to those of the host. Gloo replaces NCCL.
"""

import json
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid
from spbench_core.models.registry import make_model
from spbench_parallel import engine
from spbench_parallel.device.host_memory import copy_to_device, get_staging_buffers
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.p2p.mpi import MpiP2P
from spbench_parallel.pipeline.sync_batch_norm import SyncBatchNorm2d
from spbench_parallel.plan import TrainingConfig
from spbench_parallel.spatial import gather
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.exchange import Traffic
from spbench_parallel.spatial.fused.blocks import fuse
from spbench_parallel.spatial.norm import SpatialBatchNorm2d
from spbench_parallel.spatial.operator import TiledWindow
from spbench_parallel.spatial.overlap import OverlapChoice
from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
from spbench_parallel.spatial.replicated import AllGather, SpatialGlobalAvgPool2d
from spbench_parallel.spatial.tiling import Tiling
from spbench_parallel.training import gradients
from spbench_parallel.training import master_comm as mirrors
from spbench_parallel.training.gradients import create_weight_groups
from spbench_parallel.training.trainer import Trainer
from standins.late_device import install
from standins.late_weights import LateFlatWeights
from support.trained_models import cut_tile, make_plan

LATE = install()
ROUNDS = 3


class HostExchange:
    """A replacement of an exchange that sends pieces via the host, in messages of MPI."""

    transport = "host"

    def __init__(self, comm, table, outgoing, *, device, adjoint=False, **_):
        self.outgoing = table.list_sent(comm.rank)
        self.incoming = table.list_received(comm.rank)
        if adjoint:
            self.outgoing, self.incoming = self.incoming, self.outgoing
        self.traffic = Traffic(len(self.outgoing), 0)
        self.received = []
        self._comm = comm
        self._device = device
        self._tag = int(adjoint)
        self.bind(outgoing)

    def bind(self, outgoing):
        self._outgoing = list(outgoing)

    def unbind(self):
        self._outgoing = []

    def start(self):
        memory = get_staging_buffers(self._device)
        pieces = [memory.download(view).clone() for view in self._outgoing]
        targets = [piece.peer for piece in self.outgoing]
        self._requests = [
            self._comm.isend(piece, target, self._tag)
            for piece, target in zip(pieces, targets, strict=True)
        ]

    def progress(self):
        pass

    def wait(self):
        sources = [piece.peer for piece in self.incoming]
        pieces = [self._comm.recv(source=source, tag=self._tag) for source in sources]
        self.received = [copy_to_device(piece, self._device) for piece in pieces]
        MPI.Request.waitall(self._requests)

    def release(self):
        self.received = []

    def free(self):
        pass


def run_operators(device, comm):
    """Return results and gradients of layers over tiles, of several rounds."""
    tiling = Tiling.of_grid(comm, Grid(1, 2), 14, 22, transport="packed")
    torch.manual_seed(1)
    layers: list[Any] = [SpatialConv2d(3, 4, 3, padding=1, tiling=tiling)]
    layers += [SpatialBatchNorm2d(4, tiling=layers[-1].output), nn.ReLU()]
    layers += [SpatialMaxPool2d(3, 2, 1, tiling=layers[0].output)]
    layers += [SpatialAvgPool2d(3, 1, 1, count_include_pad=False, tiling=layers[-1].output)]
    wide_tiling = layers[-1].output
    wide: list[Any] = [
        SpatialConv2d(4, 4, 3, padding=1, tiling=wide_tiling, gradient_dtype=torch.float16)
    ]
    wide += [SpatialBatchNorm2d(4, tiling=wide[0].output), nn.ReLU()]
    wide += [SpatialConv2d(4, 5, 3, padding=1, tiling=wide[0].output)]
    fused = fuse(wide, wide_tiling, 2)
    sync_norm = SyncBatchNorm2d(5, comm=comm)
    ends = [AllGather(tiling=fused.output), SpatialGlobalAvgPool2d(tiling=fused.output)]
    body = nn.Sequential(*layers, fused, sync_norm).to(device)
    results = []
    for _ in range(ROUNDS):
        images = torch.randn(2, 3, 14, 22)
        tile = tiling.tile
        tile_images = copy_to_device(cut_tile(images, tile).contiguous(), device).requires_grad_()
        values = body(tile_images)
        gathered, mean = (end(values) for end in ends)
        (gathered.square().mean() + (mean**3).sum()).backward()
        results += [gathered, mean, tile_images.grad]
    results += [parameter.grad for parameter in body.parameters()] + list(body.buffers())
    return [result.detach().cpu() for result in results]


def sum_gradients(device, comm, dtype, *, grouped=False):
    """Return gradients of two replicas after several sums, in several messages."""

    class Copy:
        flat_tensor = copy_to_device(torch.linspace(comm.rank, 1.7, 2500).to(dtype), device) * 1

    layout = build_layout(1, replicas=2)
    (weight_group,) = create_weight_groups(
        comm,
        layout,
        [(layout.locate_rank(comm.rank), Copy)],
        grouped=grouped,
        bucket_numbers=1000,
    )
    for _ in range(ROUNDS):
        weight_group.sum()
        Copy.flat_tensor.add_(comm.rank)
    weight_group.free()
    return [Copy.flat_tensor.cpu()]


def train_model(device, comm, backend="mpi", one_way=False, stages=1, **layout_options):
    """Return the losses, outputs, weights and statistics of a model."""
    network = make_model("resnet", image_size=(32, 32), num_classes=5, version=1, depth=8, width=4)
    layout = build_layout(stages, **layout_options)
    plan = make_plan(
        network,
        layout,
        split_batch(4, 2, mirrored=layout.mirrored),
        device=device,
        transport="packed",
        backend=backend,
        master_comm=one_way,
    )
    images = SyntheticImages(network.image, 5, seed=1, dtype=plan.dtype, device=device)
    run = engine.Engine(comm, plan, images, TrainingConfig())
    losses = []
    for step in range(ROUNDS):
        images.set_step(step)
        run.step()
        losses.append([run.loss(), run.accuracy()])
    outputs = run.evaluate()
    results = [torch.tensor(losses), *outputs.values()]
    for stage in run.stages:
        results += [*stage.parameters(), *stage.buffers()]
    run.free()
    return [result.detach().cpu() for result in results]


LAYOUTS = {
    "replicas": {"replicas": 2},
    "members": {"members": 2},
    "stages": {"stages": 2},
    "mirrored": {"stages": 2, "mirrored": True},
    "one way": {"stages": 2, "mirrored": True, "one_way": True},
    "tiles": {"grids": [Grid(1, 2)]},
    "tiles in parts": {"grids": [Grid(1, 2)]},
}


def patch_overlap(overlap):
    """Fix the choice whether tiled operators overlap, which depends on times."""
    return patch.object(TiledWindow, "choose_overlap", lambda *_, **__: OverlapChoice(overlap))


def compare_with_host(comm):
    """Yield names, results of the late device, and results of the host."""
    host = torch.device("cpu")
    late = torch.device("late")
    host_exchange = patch.object(gather, "Exchange", HostExchange)
    with patch_overlap(overlap=True):
        with host_exchange:
            results = run_operators(late, comm)
        yield "operators", results, run_operators(host, comm)
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        expected = sum_gradients(host, comm, dtype)
        yield f"sums {dtype}", sum_gradients(late, comm, dtype), expected
        yield f"sums by groups {dtype}", sum_gradients(host, comm, dtype, grouped=True), expected
    for name, layout in LAYOUTS.items():
        with patch_overlap(overlap=name == "tiles in parts"):
            with host_exchange:
                results = train_model(late, comm, **layout)
            expected = train_model(host, comm, **layout)
        yield name, results, expected
    with ExitStack() as stack:
        for replacement in (
            patch.object(engine, "open_p2p", lambda _, p2p_comm, *__: MpiP2P(p2p_comm)),
            patch.object(gradients, "allreduce_sum", None),
        ):
            stack.enter_context(replacement)
        results = train_model(host, comm, backend="nccl", replicas=2)
    yield "by groups", results, train_model(host, comm, replicas=2)


def compute_largest_error(results, expected):
    """Return the largest difference; it is infinite if there is a NaN."""
    largest = 0.0
    for result, reference in zip(results, expected, strict=True):
        assert (result.shape, result.dtype) == (reference.shape, reference.dtype)
        if result.numel():
            error = float((result.double() - reference.double()).abs().max())
            largest = max(largest, error if error == error else float("inf"))
    return largest


def main():
    torch.set_num_threads(1)
    comm = MPI.COMM_WORLD
    with (
        patch.object(engine, "Trainer", partial(Trainer, bucket_numbers=1000)),
        patch.object(mirrors, "FlatWeights", LateFlatWeights),
    ):
        errors = {
            name: compute_largest_error(results, expected)
            for name, results, expected in compare_with_host(comm)
        }
    rank_results = comm.gather({"errors": errors, "device_wide": LATE.device_wide})
    if comm.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(rank_results))


if __name__ == "__main__":
    main()
