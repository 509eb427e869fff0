"""Warm-up: a first pass through a rank's stages before any message between stages is posted.

A receive of NCCL that is posted ahead is a kernel that spins on the GPU until its message comes,
and so is a send. Whatever waits for the whole GPU meanwhile waits for another rank, which may be
waiting for this one. The first pass through a stage has many such waits: exchanges among tiles are
opened, timed and freed; kernels are loaded when they are launched first, which may wait for
all streams (CUDA Programming Guide, "Lazy Loading"); cuDNN makes its handles, tries its algorithms
and gives memory back. So the first pass runs with nothing posted, and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from spbench_core.layout.micro_batches import MicroBatch
from spbench_parallel.p2p import Message, Pending
from spbench_parallel.pipeline.stage_runner import StageRunner


@dataclass(frozen=True, slots=True)
class SilentP2P:
    """A point-to-point transport that sends nothing and receives zeros.

    Attributes:
        on_device: Whether messages lie in memory of the device, as those of the transport that it
            stands for.
    """

    on_device: bool

    def send(self, messages: Sequence[Message], tag: int) -> Sequence[Pending]:
        """Do nothing, and return no pending operation."""
        return ()

    def receive(self, messages: Sequence[Message], tag: int) -> Sequence[Pending]:
        """Fill the messages with zeros, and return no pending operation."""
        for vector, _ in messages:
            vector.zero_()
        return ()

    def free(self) -> None:
        """Do nothing: nothing is held."""


def warm_up(
    stage: nn.Module,
    runner: Callable[[], StageRunner],
    direction: int,
    batches: Sequence[MicroBatch],
    *,
    learns: bool,
) -> None:
    """Run a step and an evaluation through a stage, with each size of micro-batch.

    All ranks that share its images must call it. Weights, statistics, gradients and random numbers
    are afterwards as before.

    Args:
        stage: The stage.
        runner: Makes the stage's runner, over a `SilentP2P`.
        direction: The direction of the stage.
        batches: All micro-batches of a step.
        learns: Whether it is to be trained; else only the evaluation is run.
    """
    enough = _of_each_size(direction, batches)
    with _unchanged(stage):
        for learning in (True, False) if learns else (False,):
            once = runner()
            once.begin(learns=learning)
            for micro_batch in enough:
                if learning:
                    once.forward(micro_batch)
                    once.backward(micro_batch)
                else:
                    once.infer(micro_batch)
            once.finish()


def _of_each_size(direction: int, batches: Sequence[MicroBatch]) -> list[int]:
    """Return a direction's first micro-batches, as many as have all sizes among them."""
    own = [index for index, batch in enumerate(batches) if batch.direction == direction]
    sizes = [batches[index].size for index in own]
    return own[: 1 + max(sizes.index(size) for size in sizes)]


@contextmanager
def _unchanged(stage: nn.Module) -> Iterator[None]:
    """Restore the stage afterwards: its buffers, gradients of zero, and the random numbers."""
    kept = [(buffer, buffer.clone()) for buffer in stage.buffers()]
    trains = stage.training
    gpus = {one.device for one in stage.parameters() if one.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=list(gpus)):
            yield
    finally:
        stage.train(trains)
        with torch.no_grad():
            for buffer, before in kept:
                buffer.copy_(before)
            for parameter in stage.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
