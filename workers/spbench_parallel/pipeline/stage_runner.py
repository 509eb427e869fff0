"""The runner of one stage on one rank: forward and backward passes of micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import nn

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.tiles import Box, Interval
from spbench_parallel.device.memory_format import MemoryFormat, convert_maps
from spbench_parallel.losses import Loss
from spbench_parallel.models.imported.stochastic import DropBatch, find_drops
from spbench_parallel.pipeline.later_weights import LaterWeights
from spbench_parallel.pipeline.phases import Phases
from spbench_parallel.pipeline.running_sum import RunningSum
from spbench_parallel.pipeline.stage_channel import Receiver, Sender
from spbench_parallel.precision.arithmetic import Arithmetic
from spbench_parallel.tensors import TensorTuple


class ImageSource(Protocol):
    """A source of images and their targets, of which a rank asks only for its own part.

    Images come in the number format and on the device of the model.

    Attributes:
        step: The step whose images it gives.
    """

    @property
    def step(self) -> int: ...
    def pixels(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return a box of some of a replica's images, ``images x channels x rows x cols``."""

    def targets(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each image, or of each of a box's pixels, in int64."""


End = TypeVar("End", Receiver, Sender)


@dataclass(frozen=True, slots=True)
class RouteEnd(Generic[End]):
    """One end of a route between stages.

    Attributes:
        end: Receives or sends the route's tensors.
        places: Their places among all that the stage gets, or gives.
    """

    end: End
    places: tuple[int, ...]


Receivers = tuple[RouteEnd[Receiver], ...]
Senders = tuple[RouteEnd[Sender], ...]


@dataclass(frozen=True, slots=True)
class StageIO:
    """The messages of a stage to and from other stages, those beside it first.

    Attributes:
        inputs: Received from the stages before; none where it is the first.
        outputs: Sent to the stages after; none where it is the last.
        output_gradients: Received from the stages after.
        input_gradients: Sent to the stages before.
    """

    inputs: Receivers
    outputs: Senders
    output_gradients: Receivers
    input_gradients: Senders

    @property
    def receivers(self) -> Iterator[Receiver]:
        """All receiving ends."""
        return (one.end for one in (*self.inputs, *self.output_gradients))

    @property
    def senders(self) -> Iterator[Sender]:
        """All sending ends."""
        return (one.end for one in (*self.outputs, *self.input_gradients))

    @property
    def buffer_bytes(self) -> int:
        """The bytes of the memory of messages."""
        received = sum(one.buffer_bytes for one in self.receivers)
        return received + sum(one.buffer_bytes for one in self.senders)

    def begin(self, learns: bool) -> None:
        """Post a step's first receives."""
        for one in (*self.inputs, *(self.output_gradients if learns else ())):
            one.end.begin()

    def finish(self) -> None:
        """Wait until all messages have gone."""
        for sender in self.senders:
            sender.finish()


@dataclass(frozen=True, slots=True)
class StepImages:
    """This rank's part of a step's images.

    Attributes:
        replica: The replica.
        images: By micro-batch, this rank's images, counted from the replica's first of the step.
        box: This rank's pixels of each image.
        count: Images of the replica's step, over which the loss is a mean.
        seed: The seed of what operators of chance draw.
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
        io: Its messages from and to the stages beside it.
        part: Its part of the images.
        source: Gives images and targets.
        phases: Counts the time.
        arithmetic: The number format.
        keeps_input_gradients: Whether the gradients of the images are kept.
        memory_format: How maps lie in memory.
        later_weights: Whether gradients of weights are computed after those of data.
        loss: The loss of the logits; of the last stage.

    Attributes:
        io: Its messages from and to the stages beside it.
        loss_of: The loss of the logits.
        logits: The logits of an evaluation, by micro-batch; on the last stage alone.
        image_gradients: Gradients of the images by micro-batch, where they are kept; on the first
            stage alone.
    """

    def __init__(
        self,
        module: nn.Module,
        io: StageIO,
        part: StepImages,
        source: ImageSource,
        phases: Phases,
        arithmetic: Arithmetic,
        *,
        keeps_input_gradients: bool = False,
        memory_format: MemoryFormat = "contiguous",
        later_weights: bool = False,
        loss: Loss | None = None,
    ) -> None:
        self.module = module
        # On the device until somebody asks: reading them waits for all that they depend on.
        self._losses: list[torch.Tensor] = []
        self._correct: list[torch.Tensor] = []
        self._epoch_loss = RunningSum()
        self._epoch_correct = RunningSum()
        self.logits: dict[int, torch.Tensor] = {}
        self.image_gradients: dict[int, torch.Tensor] = {}
        self.io = io
        self._part = part
        self._source = source
        self._phases = phases
        self._arithmetic = arithmetic
        self._keeps_input_gradients = keeps_input_gradients
        self._kept: dict[int, tuple[TensorTuple, TensorTuple]] = {}
        self._memory_format = memory_format
        self._later = LaterWeights() if later_weights else None
        self._of_chance = find_drops(module)
        self.loss_of = loss or Loss()

    @property
    def later_weights(self) -> bool:
        """Whether gradients of weights are computed after those of data, by `weights`."""
        return self._later is not None

    @property
    def loss(self) -> float:
        """The loss of the step so far: the share of this rank's images in the replica's mean.

        Of tiles each rank has that of its own pixels where pixels have a class, else all have that
        of the whole images. It is 0 before the last stage.
        """
        total = 0.0
        for share in _read(self._losses):
            total += share
        return total

    @property
    def correct(self) -> float:
        """The images of the step so far whose class had the largest logit, or such pixels' share.

        Of tiles it is as `loss` is.
        """
        return sum(_read(self._correct))

    @property
    def epoch_sums(self) -> tuple[float, float]:
        """The sums of `loss` and `correct` over the steps since `begin_epoch`."""
        return self._epoch_loss.read(), self._epoch_correct.read()

    def begin_epoch(self) -> None:
        """Begin the sums of an epoch anew."""
        self._epoch_loss.clear()
        self._epoch_correct.clear()

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes and messages that this rank has sent to other stages."""
        senders = list(self.io.senders)
        return sum(one.bytes for one in senders), sum(one.messages for one in senders)

    def begin(self, *, learns: bool) -> None:
        """Make ready for a step."""
        self._losses.clear()
        self._correct.clear()
        self.logits.clear()
        self.image_gradients.clear()
        self.module.train(learns)
        self.io.begin(learns)

    def finish(self) -> None:
        """Wait until all messages to other stages have gone."""
        with self._phases.of("wait"):
            self.io.finish()
        self._epoch_loss.add(self._losses)
        self._epoch_correct.add(self._correct)

    def forward(self, micro_batch: int) -> None:
        """Run a micro-batch's forward pass, from stages before to later ones; keep activations."""
        inputs = self._inputs(micro_batch)
        if self.io.inputs or self._keeps_input_gradients:
            # Detached: a source may give the same tensor again, whose gradient is not to add up.
            inputs = tuple(tensor.detach().requires_grad_() for tensor in inputs)
        self._draw(micro_batch)
        with self._phases.of("forward"):
            with self._later.of(micro_batch) if self._later is not None else nullcontext():
                outputs = self._run(inputs)
            if not self.io.outputs:
                outputs = (self._loss(outputs[0], micro_batch),)
        self._kept[micro_batch] = inputs, outputs
        self._send(self.io.outputs, outputs)

    def infer(self, micro_batch: int) -> None:
        """Infer a micro-batch, from the stage before to the next; no activations are kept."""
        inputs = self._inputs(micro_batch)
        with torch.no_grad(), self._phases.of("forward"):
            outputs = self._run(inputs)
        if not self.io.outputs:
            self.logits[micro_batch] = outputs[0]
        self._send(self.io.outputs, outputs)

    def backward(self, micro_batch: int) -> None:
        """Run a micro-batch's backward pass; send its input's gradients to the stage before."""
        inputs, outputs = self._kept.pop(micro_batch)
        gradients = self._take(self.io.output_gradients)
        self._draw(micro_batch)  # again, for what is computed again
        with self._phases.of("backward"):
            _run_backward(outputs, gradients)
        if not inputs[0].requires_grad:
            return
        found = [
            torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in inputs
        ]
        if not self.io.inputs:
            self.image_gradients[micro_batch] = _wide(found[0]) / self._arithmetic.scale
        self._send(self.io.input_gradients, found)

    def weights(self, micro_batch: int) -> None:
        """Compute a micro-batch's gradients of weights, which its backward pass has left."""
        assert self._later is not None
        with self._phases.of("backward"):
            self._later.compute(micro_batch)

    def targets(self, micro_batch: int) -> torch.Tensor:
        """Return the classes of this rank's images of a micro-batch, or of its pixels of them."""
        part = self._part
        return self._source.targets(part.replica, part.images[micro_batch], part.box)

    def _draw(self, micro_batch: int) -> None:
        """Let operators of chance draw for the images of a micro-batch."""
        if not self._of_chance:
            return
        part = self._part
        images = tuple((part.replica, index) for index in range(*part.images[micro_batch]))
        drawn = DropBatch(part.seed, self._source.step, images)
        for operator in self._of_chance:
            operator.batch = drawn

    def _inputs(self, micro_batch: int) -> TensorTuple:
        taken = self._take(self.io.inputs)
        if taken is not None:
            return taken
        part = self._part
        with self._phases.of("forward"):
            pixels = self._source.pixels(part.replica, part.images[micro_batch], part.box)
            return convert_maps((pixels,), self._memory_format)

    def _run(self, inputs: TensorTuple) -> TensorTuple:
        with self._arithmetic.entered():
            output = self.module(inputs[0] if len(inputs) == 1 else inputs)
        return (output,) if isinstance(output, torch.Tensor) else tuple(output)

    def _loss(self, logits: torch.Tensor, micro_batch: int) -> torch.Tensor:
        """Return the loss of a micro-batch, as a share of the mean over the step's images."""
        targets = self.targets(micro_batch).to(logits.device)
        loss = self.loss_of.of(_wide(logits), targets) / self._part.count
        self._losses.append(loss.detach())
        self._correct.append(self.loss_of.correct(logits.detach(), targets))
        return loss * self._arithmetic.scale

    def _take(self, receivers: Receivers) -> TensorTuple | None:
        """Return what comes over some routes, in the stage's order; None where there are none."""
        if not receivers:
            return None
        found: dict[int, torch.Tensor] = {}
        for one in receivers:
            with self._phases.of("wait"):
                one.end.wait()
            with self._phases.of("join"):
                taken = convert_maps(one.end.take(), self._memory_format)
                found |= zip(one.places, taken, strict=True)
        return tuple(found[place] for place in sorted(found))

    def _send(self, senders: Senders, tensors: Sequence[torch.Tensor]) -> None:
        for one in senders:
            with self._phases.of("wait"):
                one.end.wait()
            with self._phases.of("join"), torch.no_grad():
                one.end.send([tensors[place] for place in one.places])


def part_of(
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
        {index: batch.share(member, members) for index, batch in enumerate(batches)},
        box,
        sum(batch.size for batch in batches),
        seed,
    )


def _run_backward(outputs: TensorTuple, gradients: TensorTuple | None) -> None:
    """Run the backward pass of the outputs that have gradients; a detached one has none."""
    chosen = [at for at, output in enumerate(outputs) if output.requires_grad]
    torch.autograd.backward(
        [outputs[at] for at in chosen],
        None if gradients is None else [gradients[at] for at in chosen],
    )


def _read(values: Sequence[torch.Tensor]) -> list[float]:
    """Return single values of a device, read in one transfer."""
    found: list[float] = torch.stack(list(values)).cpu().tolist() if values else []
    return found


def _wide(values: torch.Tensor) -> torch.Tensor:
    """Return 16-bit numbers in fp32, and others as they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
