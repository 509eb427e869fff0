"""Warm-up: a first pass through a rank's stages with no message posted.

A receive of NCCL that is posted ahead is a kernel that spins on the GPU until its message comes,
and so is a send. An operation that waits for the whole GPU then waits for another rank, which may
be waiting for this one. The first pass through a stage has many such operations: exchanges among
tiles are opened, timed and freed. Kernels are loaded at their first launch, which may wait for all
streams (CUDA Programming Guide, "Lazy Loading"). cuDNN creates its handles, tries its algorithms
and releases memory. So the first pass runs with nothing posted, and leaves no trace.
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
        on_device: Whether messages are in memory of the device, like those of the transport that
            this one replaces.
    """

    on_device: bool

    def send(self, messages: Sequence[Message], tag: int) -> Sequence[Pending]:
        """Return no pending operation."""
        return ()

    def receive(self, messages: Sequence[Message], tag: int) -> Sequence[Pending]:
        """Fill the messages with zeros, and return no pending operation."""
        for vector, _ in messages:
            vector.zero_()
        return ()

    def free(self) -> None:
        """Do nothing, since no resource is held."""


def warm_up(
    stage: nn.Module,
    create_runner: Callable[[], StageRunner],
    direction: int,
    batches: Sequence[MicroBatch],
    *,
    learns: bool,
) -> None:
    """Run a step and an evaluation through a stage, with each size of micro-batch.

    All ranks that share its images must call it. Weights, statistics, gradients and random numbers
    are the same afterwards.

    Args:
        stage: The stage.
        create_runner: Creates the stage's runner, over a `SilentP2P`.
        direction: The direction of the stage.
        batches: All micro-batches of a step.
        learns: Whether the stage will be trained; otherwise only the evaluation is run.
    """
    micro_batches = _list_micro_batches_with_all_sizes(direction, batches)
    with _restore_stage(stage):
        for learning in (True, False) if learns else (False,):
            runner = create_runner()
            runner.begin(learns=learning)
            for micro_batch in micro_batches:
                if learning:
                    runner.forward(micro_batch)
                    runner.backward(micro_batch)
                else:
                    runner.infer(micro_batch)
            runner.finish()


def _list_micro_batches_with_all_sizes(direction: int, batches: Sequence[MicroBatch]) -> list[int]:
    """Return the first micro-batches of a direction that include all sizes."""
    indices = [index for index, batch in enumerate(batches) if batch.direction == direction]
    sizes = [batches[index].size for index in indices]
    return indices[: 1 + max(sizes.index(size) for size in sizes)]


@contextmanager
def _restore_stage(stage: nn.Module) -> Iterator[None]:
    """Restore buffers, zero gradients and random numbers of a stage at the end."""
    saved_buffers = [(buffer, buffer.clone()) for buffer in stage.buffers()]
    was_training = stage.training
    gpus = {parameter.device for parameter in stage.parameters() if parameter.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=list(gpus)):
            yield
    finally:
        stage.train(was_training)
        with torch.no_grad():
            for buffer, value in saved_buffers:
                buffer.copy_(value)
            for parameter in stage.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
