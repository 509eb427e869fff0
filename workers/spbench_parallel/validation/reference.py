"""The reference: the model on one process, in plain torch with whole images.

It takes the same micro-batches in the same order as the model over many ranks. Gradients are
weighted by images, and each micro-batch updates running statistics in that order. Replicas see
different images: each has separate running statistics here, and all share the weights, which change
by the mean of the gradients. If batch normalisation is over all replicas, a micro-batch holds the
images of all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields

import torch
from torch import nn
from torch.nn import functional

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.tiles import Box
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.models.build import build_reference
from spbench_parallel.models.imported.model import get_user_state
from spbench_parallel.models.imported.stochastic import DropBatch, DropByPositionMode
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.progress import NO_PROGRESS, Progress

ResultKey = tuple[str | int, ...]
"""Such as a parameter's name, or a replica and a micro-batch; see `Results`."""
ResultTensors = dict[ResultKey, torch.Tensor]

STEPS = 3
"""Training steps before weights and running statistics are compared."""
NOISE = 1e-15
"""The relative change of weights and images that shows the effect of rounding: five last bits."""
SMALL_STEP = 1e-3
"""The largest change of a weight in a small step, relative to the largest weight."""


def make_synthetic_images(
    plan: ModelPlan, seed: int, dtype: torch.dtype | None = None
) -> SyntheticImages:
    """Return images for a plan's model, with a class per image or per pixel.

    Args:
        plan: The model.
        seed: The seed of all images.
        dtype: The number format of the pixels (default: that of the plan).
    """
    model = plan.model
    return SyntheticImages(
        model.image,
        model.classes,
        seed=seed,
        masked=model.is_segmentation,
        dtype=dtype or plan.dtype,
        device=plan.device,
    )


@dataclass(slots=True)
class Results:
    """Results of a model by kind and key, the same for one process and for many ranks.

    Attributes:
        loss: The loss by step, ``(step,)``.
        input_grad: Gradients of the replica's loss for the first step's images, by replica and
            micro-batch.
        grad: Gradients of the first step's loss, the mean over replicas, by parameter.
        running_stats: Running statistics after `STEPS` steps, by replica and buffer.
        weights: Weights after `STEPS` steps, by parameter.
        state: The entries of the user's ``state_dict`` after `STEPS` steps, on rank 0, by name.
        output: Logits in evaluation mode after all steps, by replica and micro-batch.
    """

    loss: ResultTensors = field(default_factory=dict)
    input_grad: ResultTensors = field(default_factory=dict)
    grad: ResultTensors = field(default_factory=dict)
    running_stats: ResultTensors = field(default_factory=dict)
    weights: ResultTensors = field(default_factory=dict)
    state: ResultTensors = field(default_factory=dict)
    output: ResultTensors = field(default_factory=dict)


KINDS = tuple(field.name for field in fields(Results))
"""The kinds of results."""


class ReferenceModel:
    """The whole model on this process, in float64.

    Args:
        plan: The model and its micro-batches; only the number of replicas of its layout is used.
        source: The images, in float64.
        training: None for inference.
        noise: The relative random change of weights and images, to measure the effect of rounding.
        progress: The progress over the micro-batches.
        steps: The number of training steps.
        kinds: The results to keep.
        small_steps: Use a learning rate with which the first step changes weights by at most
            `SMALL_STEP`, instead of that of ``training``.

    Attributes:
        learning_rate: The learning rate of the first step; known after `compute_results`.
    """

    def __init__(
        self,
        plan: ModelPlan,
        source: SyntheticImages,
        training: TrainingConfig | None,
        *,
        noise: float = 0.0,
        progress: Progress = NO_PROGRESS,
        steps: int = STEPS,
        kinds: Collection[str] = KINDS,
        small_steps: bool = False,
    ) -> None:
        self._plan = plan
        self._source = source
        self._training = training
        self._progress = progress
        self._noise = noise
        self._steps = steps
        self._kinds = kinds
        self._small_steps = small_steps
        self.learning_rate = 0.0 if training is None else training.learning_rate
        self._random = torch.Generator().manual_seed(plan.seed)
        self._replicas = range(plan.layout.replicas)
        # With sync batch norm over replicas, one copy of the model takes the images of all replicas
        # in each micro-batch. Otherwise each replica has its copy.
        if plan.statistics == "replicas":
            self._models = self._build(1)
            self._replicas_by_model = [tuple(self._replicas)]
        else:
            self._models = self._build(plan.layout.replicas)
            self._replicas_by_model = [(replica,) for replica in self._replicas]
        self._image_count = sum(batch.size for batch in plan.batches)
        self._image_box = Box((0, plan.model.image.height), (0, plan.model.image.width))

    def compute_results(self) -> Results:
        """Train and infer; return the results."""
        results = Results()
        if self._training is not None:
            self._learn(results, self._training)
            self._keep_state(results)
        if "output" in self._kinds:
            self._infer(results)
        return results

    def _learn(self, results: Results, training: TrainingConfig) -> None:
        parameters = list(self._models[0].parameters())
        optimizer = _create_optimizer(training, parameters)
        for step in range(self._steps):
            self._source.set_step(step)
            losses = [
                self._accumulate_gradients(model, replicas, results, first=step == 0)
                for model, replicas in zip(self._models, self._replicas_by_model, strict=True)
            ]
            results.loss[(step,)] = torch.tensor(
                sum(losses) / len(self._replicas), dtype=torch.float64
            )
            for parameter in parameters:
                _get_gradient(parameter).div_(len(self._replicas))
            if step == 0 and "grad" in self._kinds:
                named_parameters = self._models[0].named_parameters()
                results.grad = {
                    (name,): _get_gradient(parameter).clone()
                    for name, parameter in named_parameters
                }
            if step == 0 and self._small_steps:
                self.learning_rate = compute_small_rate(parameters, map(_get_gradient, parameters))
                optimizer.param_groups[0]["lr"] = self.learning_rate
            optimizer.step()
            optimizer.zero_grad()
            optimizer.param_groups[0]["lr"] *= training.learning_rate_decay

    def _keep_state(self, results: Results) -> None:
        """Keep weights and running statistics after the last step."""
        if "weights" in self._kinds:
            named_parameters = self._models[0].named_parameters()
            results.weights = {(name,): parameter.detach() for name, parameter in named_parameters}
        if "running_stats" in self._kinds:
            for replica in self._replicas:
                buffers = self._models[replica % len(self._models)].named_buffers()
                results.running_stats |= {(replica, name): value for name, value in buffers}
        if "state" in self._kinds:
            results.state = {
                (name,): value for name, value in get_user_state(self._models[0]).items()
            }

    def _accumulate_gradients(
        self, model: nn.Module, replicas: Sequence[int], results: Results, *, first: bool
    ) -> float:
        """Add the gradients of the summed losses of some replicas; return that sum."""
        keeps_gradients = first and "input_grad" in self._kinds
        total = 0.0
        for index, batch in enumerate(self._plan.batches):
            images = [
                self._load_images(replica, batch).requires_grad_(keeps_gradients)
                for replica in replicas
            ]
            targets = torch.cat(
                [
                    self._source.targets(replica, batch.images, self._image_box)
                    for replica in replicas
                ]
            )
            with DropByPositionMode(
                make_drop_batch(self._plan, self._source.step, replicas, batch)
            ):
                logits = model(torch.cat(images))
            loss = compute_whole_loss(self._plan.loss, logits, targets) / self._image_count
            loss.backward()
            total += float(loss.detach())
            self._progress.advance()
            if keeps_gradients:
                for replica, replica_images in zip(replicas, images, strict=True):
                    assert replica_images.grad is not None, "the loss depends on it"
                    results.input_grad[replica, index] = replica_images.grad
        return total

    def _infer(self, results: Results) -> None:
        for replica in self._replicas:
            model = self._models[replica % len(self._models)].eval()
            with torch.no_grad():
                for index, batch in enumerate(self._plan.batches):
                    results.output[replica, index] = model(self._load_images(replica, batch))
                    self._progress.advance()

    def _load_images(self, replica: int, batch: MicroBatch) -> torch.Tensor:
        return self._add_noise(self._source.pixels(replica, batch.images, self._image_box).clone())

    def _build(self, count: int) -> list[nn.Module]:
        """Return one model per set of running statistics, all with the same weights."""
        plan = self._plan
        model = build_reference(plan.model, seed=plan.seed, device=plan.device)
        self._random.manual_seed(plan.seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(self._add_noise(parameter))
        shared_parameters = {id(parameter): parameter for parameter in model.parameters()}
        return [model, *(copy.deepcopy(model, dict(shared_parameters)) for _ in range(count - 1))]

    def _add_noise(self, values: torch.Tensor) -> torch.Tensor:
        if not self._noise:
            return values
        noise = torch.randn(values.shape, generator=self._random, dtype=torch.float64)
        return values.detach() * (1 + self._noise * noise.to(values.device))


def make_drop_batch(
    plan: ModelPlan, step: int, replicas: Sequence[int], batch: MicroBatch
) -> DropBatch:
    """Return the keys of random numbers for a micro-batch's stochastic operators."""
    images = ((replica, index) for replica in replicas for index in range(*batch.images))
    return DropBatch(plan.seed, step, tuple(images))


def compute_whole_loss(name: str, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the summed loss of whole images, image by image in plain torch.

    Args:
        name: ``cross_entropy`` or ``dice``, defined in `spbench_parallel.losses`.
        logits: ``images x classes``, or ``images x classes x rows x cols``.
        targets: Their classes.
    """
    targets = targets.to(logits.device)
    if name == "cross_entropy":
        return functional.cross_entropy(logits, targets, reduction="sum") / targets[0].numel()
    losses = []
    for image, mask in zip(logits, targets, strict=True):
        for category, predicted in enumerate(image.softmax(0)):
            expected = (mask == category).to(predicted.dtype)
            dice = (2 * (predicted * expected).sum() + 1) / (predicted.sum() + expected.sum() + 1)
            losses.append((1 - dice) / len(image))
    return torch.stack(losses).sum()


def compute_small_rate(weights: Iterable[torch.Tensor], gradients: Iterable[torch.Tensor]) -> float:
    """Return the rate of SGD that changes weights by at most `SMALL_STEP`."""
    largest_weight, largest_gradient = (
        max(float(tensor.detach().abs().max()) for tensor in tensors)
        for tensors in (weights, gradients)
    )
    return SMALL_STEP * largest_weight / max(largest_gradient, 1e-300)


def _get_gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None, "every parameter is in use"
    return parameter.grad


class _Descent:
    """Gradient descent without momentum.

    torch.optim would import torch's compiler, which takes seconds and 70 MB.
    """

    def __init__(self, training: TrainingConfig, parameters: Sequence[nn.Parameter]) -> None:
        self.param_groups = [{"lr": training.learning_rate}]
        self._parameters = parameters

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self._parameters:
            parameter.sub_(_get_gradient(parameter), alpha=self.param_groups[0]["lr"])

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None


def _create_optimizer(
    training: TrainingConfig, parameters: Sequence[nn.Parameter]
) -> torch.optim.Optimizer | _Descent:
    rate = training.learning_rate
    decay = training.weight_decay
    if training.optimizer == "sgd" and not training.momentum and not decay:
        return _Descent(training, parameters)
    if training.optimizer == "sgd":
        return torch.optim.SGD(parameters, rate, training.momentum, weight_decay=decay)
    if training.optimizer == "adam":
        return torch.optim.Adam(parameters, rate, weight_decay=decay)
    return torch.optim.AdamW(parameters, rate, weight_decay=decay)
