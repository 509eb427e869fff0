"""The reference: the model on one process, in plain torch, with whole images and no messages.

It takes the same micro-batches in the same order as the model over many ranks, with gradients
weighted by images, and running statistics that each micro-batch moves in that order. Replicas see
images of their own: each has a copy here, with its own running statistics, and the mean of all
gradients changes all copies alike. Where batch normalisation goes over all replicas, there is one
copy, and a micro-batch holds the images of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.tiles import Box
from spbench_workers.images.synthetic import SyntheticImages
from spbench_workers.models.build import build_reference
from spbench_workers.models.imported.chance import DrawnByPosition, DrawnImages
from spbench_workers.parallel.plan import ModelPlan, TrainingConfig
from spbench_workers.parallel.training.updates import MOMENTUM

Key = tuple[str | int, ...]
"""A parameter's name, a replica and a micro-batch, ..."""
Tensors = dict[Key, torch.Tensor]

STEPS = 3
"""Training steps, after which weights and running statistics are compared."""


@dataclass(slots=True)
class Results:
    """Results of a model, by kind and key: the same for one process and for many ranks.

    Attributes:
        loss: The loss by step, ``(step,)``.
        input_grad: Gradients of the replica's loss for the first step's images, by replica and
            micro-batch.
        grad: Gradients of the first step's loss, the mean over replicas, by parameter.
        running_stats: Running statistics after `STEPS` steps, by replica and buffer.
        weights: Weights after `STEPS` steps, by parameter.
        output: Logits in evaluation mode after all steps, by replica and micro-batch.
    """

    loss: Tensors = field(default_factory=dict)
    input_grad: Tensors = field(default_factory=dict)
    grad: Tensors = field(default_factory=dict)
    running_stats: Tensors = field(default_factory=dict)
    weights: Tensors = field(default_factory=dict)
    output: Tensors = field(default_factory=dict)


class OneProcess:
    """The whole model on this process, in float64.

    Args:
        plan: The model and its micro-batches; of its layout only the number of replicas counts.
        source: The images, in float64.
        training: None for inference alone.
        noise: Weights and images are off by about this share of themselves: the effect shows
            what rounding does.
        state: Weights and running statistics to start from, in place of the plan's seed.
        advance: Called after each micro-batch.
    """

    def __init__(
        self,
        plan: ModelPlan,
        source: SyntheticImages,
        training: TrainingConfig | None,
        *,
        noise: float = 0.0,
        state: dict[str, torch.Tensor] | None = None,
        advance: Callable[[], None] = lambda: None,
    ) -> None:
        self._plan, self._source, self._training = plan, source, training
        self._advance = advance
        self._noise = noise
        self._random = torch.Generator().manual_seed(plan.seed)
        self._replicas = range(plan.layout.replicas)
        together = plan.statistics == "replicas"
        self._copies = [self._build(state) for _ in self._replicas[: 1 if together else None]]
        # With one copy for all, each micro-batch is of all replicas; else of one.
        self._shares = [tuple(self._replicas)] if together else [(one,) for one in self._replicas]
        self._count = sum(batch.size for batch in plan.batches)
        self._whole = Box((0, plan.model.image.height), (0, plan.model.image.width))

    def results(self) -> Results:
        """Train and infer; return the results."""
        found = Results()
        if self._training is not None:
            self._learn(found, self._training)
            for name, parameter in self._copies[0].named_parameters():
                found.weights[(name,)] = parameter.detach()
            for replica in self._replicas:
                buffers = self._copies[replica % len(self._copies)].named_buffers()
                found.running_stats |= {(replica, name): value for name, value in buffers}
        self._infer(found)
        return found

    def _learn(self, found: Results, training: TrainingConfig) -> None:
        optimizers = [_optimizer(training, copy) for copy in self._copies]
        for step in range(STEPS):
            self._source.turn_to(step)
            losses = [
                self._loss(copy, shares, found, first=step == 0)
                for copy, shares in zip(self._copies, self._shares, strict=True)
            ]
            found.loss[(step,)] = torch.tensor(
                sum(losses) / len(self._replicas), dtype=torch.float64
            )
            self._mean_gradients()
            if step == 0:
                for name, parameter in self._copies[0].named_parameters():
                    assert parameter.grad is not None, "every parameter is in use"
                    found.grad[(name,)] = parameter.grad.clone()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.param_groups[0]["lr"] *= training.learning_rate_decay

    def _loss(
        self, copy: nn.Module, shares: Sequence[int], found: Results, *, first: bool
    ) -> float:
        """Compute the gradients of the summed losses of some replicas; return that sum."""
        copy.zero_grad()
        total = 0.0
        for index, batch in enumerate(self._plan.batches):
            images = [self._images(replica, batch).requires_grad_(first) for replica in shares]
            targets = torch.cat(
                [self._source.targets(one, batch.images, self._whole) for one in shares]
            )
            with DrawnByPosition(drawn_images(self._plan, self._source.step, shares, batch)):
                logits = copy(torch.cat(images))
            loss = whole_loss(self._plan.loss, logits, targets) / self._count
            loss.backward()
            total += float(loss.detach())
            self._advance()
            if first:
                for replica, image in zip(shares, images, strict=True):
                    assert image.grad is not None, "the loss depends on it"
                    found.input_grad[replica, index] = image.grad
        return total

    def _mean_gradients(self) -> None:
        for several in zip(*(copy.parameters() for copy in self._copies), strict=True):
            gradients = [one.grad for one in several if one.grad is not None]
            mean = torch.stack(gradients).sum(0) / len(self._replicas)
            for one in several:
                one.grad = mean.clone()

    def _infer(self, found: Results) -> None:
        for replica in self._replicas:
            copy = self._copies[replica % len(self._copies)].eval()
            with torch.no_grad():
                for index, batch in enumerate(self._plan.batches):
                    found.output[replica, index] = copy(self._images(replica, batch))
                    self._advance()

    def _images(self, replica: int, batch: MicroBatch) -> torch.Tensor:
        return self._noisy(self._source.pixels(replica, batch.images, self._whole).clone())

    def _build(self, state: dict[str, torch.Tensor] | None) -> nn.Module:
        plan = self._plan
        built = build_reference(plan.model, seed=plan.seed, device=plan.device)
        if state is not None:
            built.load_state_dict(state)
        self._random.manual_seed(plan.seed)
        with torch.no_grad():
            for parameter in built.parameters():
                parameter.copy_(self._noisy(parameter))
        return built

    def _noisy(self, values: torch.Tensor) -> torch.Tensor:
        if not self._noise:
            return values
        drawn = torch.randn(values.shape, generator=self._random, dtype=torch.float64)
        return values.detach() * (1 + self._noise * drawn.to(values.device))


def drawn_images(
    plan: ModelPlan, step: int, replicas: Sequence[int], batch: MicroBatch
) -> DrawnImages:
    """Return what operators of chance draw for a micro-batch of some replicas."""
    images = ((replica, index) for replica in replicas for index in range(*batch.images))
    return DrawnImages(plan.seed, step, tuple(images))


def whole_loss(name: str, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of whole images, summed over them, image by image in plain torch.

    Args:
        name: ``cross_entropy`` or ``dice``, as `spbench_workers.parallel.losses` has them.
        logits: ``images x classes``, or ``images x classes x rows x cols``.
        targets: Their classes.
    """
    targets = targets.to(logits.device)
    if name == "cross_entropy":
        return functional.cross_entropy(logits, targets, reduction="sum") / targets[0].numel()
    losses = []
    for image, mask in zip(logits, targets, strict=True):
        for category, shares in enumerate(image.softmax(0)):
            wanted = (mask == category).to(shares.dtype)
            dice = (2 * (shares * wanted).sum() + 1) / (shares.sum() + wanted.sum() + 1)
            losses.append((1 - dice) / len(image))
    return torch.stack(losses).sum()


def _optimizer(training: TrainingConfig, model: nn.Module) -> torch.optim.Optimizer:
    rate, decay = training.learning_rate, training.weight_decay
    if training.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), rate, MOMENTUM, weight_decay=decay)
    if training.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), rate, weight_decay=decay)
    return torch.optim.AdamW(model.parameters(), rate, weight_decay=decay)
