"""Gradients checked by finite differences of the loss, a reference without any backward pass.

In a large network, some ReLU or maximum changes over within every step that rounding allows: for
ResNet-110 with 8 images of 256 x 256 pixels, differences were off by 1.5e-4 on an H200. Torch's
forward-mode differentiation, which takes no step, then gives the slope.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call

from spbench_core.layout.tiles import Box
from spbench_workers.images.synthetic import SyntheticImages
from spbench_workers.models.build import build_reference
from spbench_workers.models.imported.chance import DrawnByPosition
from spbench_workers.parallel.plan import ModelPlan
from spbench_workers.parallel.validation.reference import drawn_images, whole_loss

DIRECTIONS = 4
STEPS = (1e-9, 1e-10)
"""Lengths of the steps, relative to the weights. The loss bends where a ReLU or a maximum changes
over: so steps are as short as rounding at 1e-16 allows, and of two lengths, since hardly any bend
lies in both."""
TOLERANCE = 1e-4
"""The allowed error, relative to the slope that a random direction has on the average."""
DIFFERENCE_TOLERANCE = 1e-2
"""The error from which differences are wrong, whatever forward-mode differentiation says."""

Parameters = Mapping[str, torch.Tensor]
Loss = Callable[[Parameters], torch.Tensor]


def worst_slope(
    plan: ModelPlan, images: SyntheticImages, gradients: dict[str, torch.Tensor]
) -> tuple[float, str]:
    """Compare the gradients of a step's loss with slopes of it along random directions.

    Along each of `DIRECTIONS` directions d, random in every weight, the loss is computed at w + h d
    and at w - h d; their difference over 2 h should be the gradient times d. Of the slopes with the
    steps h in `STEPS` the nearer one counts. If its error is between `TOLERANCE` and
    `DIFFERENCE_TOLERANCE`, the slope by forward-mode differentiation counts instead, unless an
    operator of the network lacks it.

    Args:
        plan: The model and the micro-batches, on one process.
        images: The images, in float64.
        gradients: The gradients of every parameter, in float64.

    Returns:
        The largest difference, over the size that such slopes have, and its direction in words.
    """
    model = build_reference(plan.model, seed=plan.seed, device=plan.device)
    parameters = {name: one.detach() for name, one in model.named_parameters()}
    random = torch.Generator().manual_seed(plan.seed)
    worst, where = 0.0, ""

    def loss(changed: Parameters) -> torch.Tensor:
        return _loss(plan, images, model, changed)

    for direction in range(DIRECTIONS):
        along = {name: _direction(one, random) for name, one in parameters.items()}
        parts = [gradients[name] * one for name, one in along.items()]
        wanted = sum(float(part.sum()) for part in parts)
        size = math.sqrt(sum(float(part.square().sum()) for part in parts))
        differences = [_difference(loss, parameters, along, step) for step in STEPS]
        slope = min(differences, key=lambda one: abs(one - wanted))
        error = abs(slope - wanted) / size if size else math.inf
        if TOLERANCE < error < DIFFERENCE_TOLERANCE:
            slope = _forward_slope(loss, parameters, along, instead=slope)
            error = abs(slope - wanted) / size
        if not error <= worst:
            worst, where = error, f"direction {direction}: slope {slope:.9g}, not {wanted:.9g}"
    return worst, where


def _direction(parameter: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Return a random direction, about as long as the parameter's values are large."""
    drawn = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
    scale = float(parameter.abs().mean()) or 1.0
    return (scale * drawn).to(parameter.device)


@torch.no_grad()
def _difference(loss: Loss, parameters: Parameters, along: Parameters, step: float) -> float:
    """Return the slope of the loss by a step forth and a step back."""

    def at(step: float) -> float:
        return float(loss({name: one + step * along[name] for name, one in parameters.items()}))

    return (at(step) - at(-step)) / (2 * step)


@torch.no_grad()
def _forward_slope(
    loss: Loss, parameters: Parameters, along: Parameters, *, instead: float
) -> float:
    """Return the slope of the loss by forward-mode differentiation.

    Args:
        loss: The loss, given the parameters.
        parameters: The point.
        along: The direction.
        instead: What to return if an operator lacks this kind of differentiation.
    """
    with forward_ad.dual_level(), warnings.catch_warnings():
        # Torch 2.11 compiles some of its formulas by torch.jit.script, which it calls deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        changed = {name: forward_ad.make_dual(one, along[name]) for name, one in parameters.items()}
        try:
            slope = forward_ad.unpack_dual(loss(changed)).tangent
        except NotImplementedError:
            return instead
        return instead if slope is None else float(slope)


def _loss(
    plan: ModelPlan, images: SyntheticImages, model: nn.Module, parameters: Parameters
) -> torch.Tensor:
    """Return the loss of the first step with these parameters instead of the model's own."""
    images.turn_to(0)
    image = plan.model.image
    whole = Box((0, image.height), (0, image.width))
    losses = []
    for batch in plan.batches:
        pixels = images.pixels(0, batch.images, whole)
        with DrawnByPosition(drawn_images(plan, images.step, (0,), batch)):
            logits = functional_call(model, dict(parameters), (pixels,))
        targets = images.targets(0, batch.images, whole)
        losses.append(whole_loss(plan.loss, logits, targets))
    return torch.stack(losses).sum() / sum(batch.size for batch in plan.batches)
