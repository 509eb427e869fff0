"""Learns over two ranks on a device that does its work late, and on the host, and compares.

    mpirun -n 2 python -m mpi4py learn_late.py RESULTS.json

The device is `tests/standins/late_device.py`: what somebody does not wait for is NaN, or what was
there before. Its numbers are those of the host, to the last digit. In NCCL's place there is gloo.
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
from spbench_parallel.device.host_memory import copy_to_device, get_host_memory
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
from spbench_parallel.training.gradients import create_sharings
from spbench_parallel.training.trainer import Trainer
from standins.late_device import install
from standins.late_weights import LateFlatWeights
from support.trained_models import cut_tile, make_plan

LATE = install()
ROUNDS = 3


class HostExchange:
    """In an exchange's place: pieces go by way of the host, in MPI's own messages."""

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
        memory = get_host_memory(self._device)
        pieces = [memory.fetch(view).clone() for view in self._outgoing]
        targets = [piece.peer for piece in self.outgoing]
        self._requests = [
            self._comm.isend(one, target, self._tag)
            for one, target in zip(pieces, targets, strict=True)
        ]

    def progress(self):
        pass

    def wait(self):
        sources = [piece.peer for piece in self.incoming]
        pieces = [self._comm.recv(source=source, tag=self._tag) for source in sources]
        self.received = [copy_to_device(one, self._device) for one in pieces]
        MPI.Request.waitall(self._requests)

    def release(self):
        self.received = []

    def free(self):
        pass


def operators(device, comm):
    """Results and gradients of layers over tiles, there and back, a few times over."""
    tiling = Tiling.of_grid(comm, Grid(1, 2), 14, 22, transport="packed")
    torch.manual_seed(1)
    layers: list[Any] = [SpatialConv2d(3, 4, 3, padding=1, tiling=tiling)]
    layers += [SpatialBatchNorm2d(4, tiling=layers[-1].output), nn.ReLU()]
    layers += [SpatialMaxPool2d(3, 2, 1, tiling=layers[0].output)]
    layers += [SpatialAvgPool2d(3, 1, 1, count_include_pad=False, tiling=layers[-1].output)]
    at = layers[-1].output
    wide: list[Any] = [SpatialConv2d(4, 4, 3, padding=1, tiling=at, gradient_dtype=torch.float16)]
    wide += [SpatialBatchNorm2d(4, tiling=wide[0].output), nn.ReLU()]
    wide += [SpatialConv2d(4, 5, 3, padding=1, tiling=wide[0].output)]
    fused = fuse(wide, at, 2)
    own = SyncBatchNorm2d(5, comm=comm)
    ends = [AllGather(tiling=fused.output), SpatialGlobalAvgPool2d(tiling=fused.output)]
    body = nn.Sequential(*layers, fused, own).to(device)
    found = []
    for _ in range(ROUNDS):
        images = torch.randn(2, 3, 14, 22)
        tile = tiling.tile
        mine = copy_to_device(cut_tile(images, tile).contiguous(), device).requires_grad_()
        values = body(mine)
        whole, mean = (end(values) for end in ends)
        (whole.square().mean() + (mean**3).sum()).backward()
        found += [whole, mean, mine.grad]
    found += [one.grad for one in body.parameters()] + list(body.buffers())
    return [one.detach().cpu() for one in found]


def sums(device, comm, dtype, *, grouped=False):
    """Gradients of two replicas, summed in several messages."""

    class Copy:
        flat_tensor = copy_to_device(torch.linspace(comm.rank, 1.7, 2500).to(dtype), device) * 1

    layout = build_layout(1, replicas=2)
    (sharing,) = create_sharings(
        comm,
        layout,
        [(layout.locate_rank(comm.rank), Copy)],
        grouped=grouped,
        bucket_numbers=1000,
    )
    for _ in range(ROUNDS):
        sharing.sum()
        Copy.flat_tensor.add_(comm.rank)
    sharing.free()
    return [Copy.flat_tensor.cpu()]


def learnt(device, comm, backend="mpi", one_way=False, **layout):
    """Losses, weights and statistics of a model, and the phases of its steps."""
    network = make_model("resnet", image_size=(32, 32), num_classes=5, version=1, depth=8, width=4)
    made = build_layout(layout.pop("stages", 1), **layout)
    plan = make_plan(
        network,
        made,
        split_batch(4, 2, mirrored=made.mirrored),
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
    found = [torch.tensor(losses), *outputs.values()]
    for stage in run.stages:
        found += [*stage.parameters(), *stage.buffers()]
    run.free()
    return [one.detach().cpu() for one in found]


LEARNT = {
    "replicas": {"replicas": 2},
    "members": {"members": 2},
    "stages": {"stages": 2},
    "mirrored": {"stages": 2, "mirrored": True},
    "one way": {"stages": 2, "mirrored": True, "one_way": True},
    "tiles": {"grids": [Grid(1, 2)]},
    "tiles in parts": {"grids": [Grid(1, 2)]},
}


def taken(overlap):
    """One of the two ways of operators over tiles: which of them is faster is left to no clock."""
    return patch.object(TiledWindow, "choose_overlap", lambda *_, **__: OverlapChoice(overlap))


def answers(comm):
    host = torch.device("cpu")
    late = torch.device("late")
    on_device = patch.object(gather, "Exchange", HostExchange)
    with taken(overlap=True):
        with on_device:
            found = operators(late, comm)
        yield "operators", found, operators(host, comm)
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        wanted = sums(host, comm, dtype)
        yield f"sums {dtype}", sums(late, comm, dtype), wanted
        yield f"sums by groups {dtype}", sums(host, comm, dtype, grouped=True), wanted
    for name, layout in LEARNT.items():
        with taken(overlap=name == "tiles in parts"):
            with on_device:
                found = learnt(late, comm, **layout)
            wanted = learnt(host, comm, **layout)
        yield name, found, wanted
    with ExitStack() as stack:
        for fault in (
            patch.object(engine, "open_p2p", lambda _, joints, *__: MpiP2P(joints)),
            patch.object(gradients, "allreduce_sum", None),
        ):
            stack.enter_context(fault)
        found = learnt(host, comm, backend="nccl", replicas=2)
    yield "by groups", found, learnt(host, comm, replicas=2)


def error_of(found, wanted):
    """The largest difference; infinite where one has NaN."""
    worst = 0.0
    for one, other in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        error = float((one.double() - other.double()).abs().max()) if one.numel() else 0.0
        worst = max(worst, error if error == error else float("inf"))
    return worst


def main():
    torch.set_num_threads(1)
    comm = MPI.COMM_WORLD
    with (
        patch.object(engine, "Trainer", partial(Trainer, bucket_numbers=1000)),
        patch.object(mirrors, "FlatWeights", LateFlatWeights),
    ):
        errors = {name: error_of(found, wanted) for name, found, wanted in answers(comm)}
    said = comm.gather({"errors": errors, "device_wide": LATE.device_wide})
    if comm.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(said))


if __name__ == "__main__":
    main()
