"""The runner of one stage on one rank: passes of micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.tiles import Box, Interval
from spbench_parallel.device.formats import MemoryFormat, convert_maps
from spbench_parallel.losses import Loss, RunningSum
from spbench_parallel.models.imported.stochastic import DropBatch, find_stochastic_operators
from spbench_parallel.pipeline.deferred_weight_grad import DeferredWeightGrad
from spbench_parallel.pipeline.phases import Phases
from spbench_parallel.pipeline.stage_io import Receivers, Senders, StageIO
from spbench_parallel.precision.arithmetic import Arithmetic
from spbench_parallel.tensors import TensorTuple


class ImageReader(Protocol):
    """A source of images and their targets, which a rank asks only for its own part.

    Images have the number format of the model and are on its device.

    Attributes:
        step: The step of the images.
    """

    @property
    def step(self) -> int: ...
    def pixels(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return a box of some of a replica's images, ``images x channels x rows x cols``."""

    def targets(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each image, or of each pixel of a box, in int64."""


@dataclass(frozen=True, slots=True)
class StepImages:
    """This rank's part of a step's images.

    Attributes:
        replica: The replica.
        images: By micro-batch, this rank's images, counted from the replica's first of the step.
        box: This rank's pixels of each image.
        count: Images of the replica's step, over which the loss is a mean.
        seed: The seed of stochastic operators.
    """

    replica: int
    images: dict[int, Interval]
    box: Box
    count: int
    seed: int


class StageRunner:
    """The runner of one stage: it does the stage's tasks on micro-batches.

    Args:
        module: The stage.
        io: Its messages from and to other stages.
        part: Its part of the images.
        source: Provides images and targets.
        phases: Counts the time.
        arithmetic: The number format.
        keeps_input_gradients: Whether the gradients of the images are kept.
        memory_format: The memory format of maps.
        defers_weight_grad: Whether gradients of weights are computed after those of data.
        loss: The loss of the logits, in the last stage.

    Attributes:
        io: Its messages from and to other stages.
        criterion: The loss of the logits.
        logits: The logits of an evaluation, by micro-batch; only in the last stage.
        image_gradients: Gradients of the images by micro-batch, if they are kept; only in the first
            stage.
    """

    def __init__(
        self,
        module: nn.Module,
        io: StageIO,
        part: StepImages,
        source: ImageReader,
        phases: Phases,
        arithmetic: Arithmetic,
        *,
        keeps_input_gradients: bool = False,
        memory_format: MemoryFormat = "contiguous",
        defers_weight_grad: bool = False,
        loss: Loss | None = None,
    ) -> None:
        self.module = module
        self.io = io
        self.criterion = loss or Loss()
        self.logits: dict[int, torch.Tensor] = {}
        self.image_gradients: dict[int, torch.Tensor] = {}
        self._part = part
        self._source = source
        self._phases = phases
        self._arithmetic = arithmetic
        self._keeps_input_gradients = keeps_input_gradients
        self._memory_format = memory_format
        self._deferred = DeferredWeightGrad() if defers_weight_grad else None
        self._stochastic_operators = find_stochastic_operators(module)
        self._activations: dict[int, tuple[TensorTuple, TensorTuple]] = {}
        # These stay on the device until they are read: reading waits for all work before them.
        self._loss_shares: list[torch.Tensor] = []
        self._correct_counts: list[torch.Tensor] = []
        self._epoch_loss = RunningSum()
        self._epoch_correct = RunningSum()

    @property
    def defers_weight_grad(self) -> bool:
        """Whether weight gradients are deferred to `run_weight_backward`."""
        return self._deferred is not None

    @property
    def loss(self) -> float:
        """The loss of the step so far: this rank's share of the replica's mean.

        In segmentation, each tile has the loss of its pixels. Otherwise each tile has the whole
        loss of the images. It is 0 before the last stage.
        """
        total = 0.0
        for share in _read_numbers(self._loss_shares):
            total += share
        return total

    @property
    def correct(self) -> float:
        """The number of images of the step so far for which the prediction is right.

        The right class has the largest logit. In segmentation an image counts as its share of such
        pixels.

        Tiles share it like `loss`.
        """
        return sum(_read_numbers(self._correct_counts))

    @property
    def epoch_sums(self) -> tuple[float, float]:
        """The sums of `loss` and `correct` over the steps since `begin_epoch`."""
        return self._epoch_loss.read(), self._epoch_correct.read()

    def begin_epoch(self) -> None:
        """Reset the sums of an epoch."""
        self._epoch_loss.clear()
        self._epoch_correct.clear()

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes and messages that this rank has sent to other stages."""
        senders = list(self.io.senders)
        return sum(sender.bytes for sender in senders), sum(sender.messages for sender in senders)

    def begin(self, *, learns: bool) -> None:
        """Prepare for a step, and post its first receives."""
        self._loss_shares.clear()
        self._correct_counts.clear()
        self.logits.clear()
        self.image_gradients.clear()
        self.module.train(learns)
        self.io.begin(learns)

    def finish(self) -> None:
        """Wait until all sends to other stages are complete."""
        with self._phases.measure("wait"):
            self.io.finish()
        self._epoch_loss.add(self._loss_shares)
        self._epoch_correct.add(self._correct_counts)

    def forward(self, micro_batch: int) -> None:
        """Run a micro-batch's forward pass, from earlier to later stages.

        The activations are kept for the backward pass.
        """
        inputs = self._load_inputs(micro_batch)
        if self.io.inputs or self._keeps_input_gradients:
            # Detached: a source may return the same tensor twice, and gradients must not add up.
            inputs = tuple(tensor.detach().requires_grad_() for tensor in inputs)
        self._seed_stochastic(micro_batch)
        with self._phases.measure("forward"):
            deferred = self._deferred
            with deferred.record(micro_batch) if deferred is not None else nullcontext():
                outputs = self._run(inputs)
            if not self.io.outputs:
                outputs = (self._compute_loss(outputs[0], micro_batch),)
        self._activations[micro_batch] = inputs, outputs
        self._send(self.io.outputs, outputs)

    def infer(self, micro_batch: int) -> None:
        """Infer a micro-batch, from earlier to later stages; no activations are kept."""
        inputs = self._load_inputs(micro_batch)
        with torch.no_grad(), self._phases.measure("forward"):
            outputs = self._run(inputs)
        if not self.io.outputs:
            self.logits[micro_batch] = outputs[0]
        self._send(self.io.outputs, outputs)

    def backward(self, micro_batch: int) -> None:
        """Run a micro-batch's backward pass; send its input gradients to earlier stages."""
        inputs, outputs = self._activations.pop(micro_batch)
        output_gradients = self._receive(self.io.output_gradients)
        self._seed_stochastic(micro_batch)  # again, for recomputation
        with self._phases.measure("backward"):
            _run_backward(outputs, output_gradients)
        if not inputs[0].requires_grad:
            return
        input_gradients = [
            torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in inputs
        ]
        if not self.io.inputs:
            self.image_gradients[micro_batch] = (
                _widen_16_bit(input_gradients[0]) / self._arithmetic.scale
            )
        self._send(self.io.input_gradients, input_gradients)

    def run_weight_backward(self, micro_batch: int) -> None:
        """Compute the weight gradients that a backward pass has deferred."""
        assert self._deferred is not None
        with self._phases.measure("backward"):
            self._deferred.compute(micro_batch)

    def targets(self, micro_batch: int) -> torch.Tensor:
        """Return the classes of this rank's images of a micro-batch, or of its pixels."""
        part = self._part
        return self._source.targets(part.replica, part.images[micro_batch], part.box)

    def _seed_stochastic(self, micro_batch: int) -> None:
        """Seed stochastic operators, such as dropout, for the images of a micro-batch."""
        if not self._stochastic_operators:
            return
        part = self._part
        images = tuple((part.replica, index) for index in range(*part.images[micro_batch]))
        batch = DropBatch(part.seed, self._source.step, images)
        for operator in self._stochastic_operators:
            operator.batch = batch

    def _load_inputs(self, micro_batch: int) -> TensorTuple:
        received = self._receive(self.io.inputs)
        if received is not None:
            return received
        part = self._part
        with self._phases.measure("forward"):
            pixels = self._source.pixels(part.replica, part.images[micro_batch], part.box)
            return convert_maps((pixels,), self._memory_format)

    def _run(self, inputs: TensorTuple) -> TensorTuple:
        with self._arithmetic.activate():
            output = self.module(inputs[0] if len(inputs) == 1 else inputs)
        return (output,) if isinstance(output, torch.Tensor) else tuple(output)

    def _compute_loss(self, logits: torch.Tensor, micro_batch: int) -> torch.Tensor:
        """Return a micro-batch's share of the mean loss over the step's images."""
        targets = self.targets(micro_batch).to(logits.device)
        loss = self.criterion.compute(_widen_16_bit(logits), targets) / self._part.count
        self._loss_shares.append(loss.detach())
        self._correct_counts.append(self.criterion.count_correct(logits.detach(), targets))
        return loss * self._arithmetic.scale

    def _receive(self, receivers: Receivers) -> TensorTuple | None:
        """Return the tensors of some routes, in the stage's order; None without routes."""
        if not receivers:
            return None
        tensor_by_index: dict[int, torch.Tensor] = {}
        for route in receivers:
            with self._phases.measure("wait"):
                route.end.wait()
            with self._phases.measure("join"):
                received = convert_maps(route.end.take(), self._memory_format)
                tensor_by_index |= zip(route.tensor_indices, received, strict=True)
        return tuple(tensor_by_index[index] for index in sorted(tensor_by_index))

    def _send(self, senders: Senders, tensors: Sequence[torch.Tensor]) -> None:
        for route in senders:
            with self._phases.measure("wait"):
                route.end.wait()
            with self._phases.measure("join"), torch.no_grad():
                route.end.send([tensors[index] for index in route.tensor_indices])


def select_images(
    replica: int,
    member: int,
    members: int,
    box: Box,
    batches: Sequence[MicroBatch],
    seed: int = 0,
) -> StepImages:
    """Return a rank's part of a step's images."""
    return StepImages(
        replica,
        {index: batch.member_images(member, members) for index, batch in enumerate(batches)},
        box,
        sum(batch.size for batch in batches),
        seed,
    )


def _run_backward(outputs: TensorTuple, gradients: TensorTuple | None) -> None:
    """Run the backward pass of all outputs that require a gradient.

    Detached outputs do not.
    """
    indices = [index for index, output in enumerate(outputs) if output.requires_grad]
    torch.autograd.backward(
        [outputs[index] for index in indices],
        None if gradients is None else [gradients[index] for index in indices],
    )


def _read_numbers(values: Sequence[torch.Tensor]) -> list[float]:
    """Return single values of a device, read in one transfer."""
    if not values:
        return []
    numbers: list[float] = torch.stack(list(values)).cpu().tolist()
    return numbers


def _widen_16_bit(values: torch.Tensor) -> torch.Tensor:
    """Return 16-bit numbers in fp32, and others unchanged."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
