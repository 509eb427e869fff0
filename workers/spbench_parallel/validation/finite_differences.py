"""Gradients checked by finite differences of the loss, a reference without any backward pass.

In a large network, some ReLU or maximum changes over within every step that rounding allows: for
ResNet-110 with 8 images of 256 x 256 pixels, differences were off by 1.5e-4 on an H200. Torch's
forward-mode differentiation, which takes no step, then gives the slope.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad

from spbench_core.layout.tiles import Box
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.models.build import build_reference
from spbench_parallel.models.imported.model import WholeModule
from spbench_parallel.models.imported.stochastic import DropByPositionMode
from spbench_parallel.plan import ModelPlan
from spbench_parallel.validation.reference import drawn_images, whole_loss
from spbench_parallel.verify.worst_error import WorstError

DIRECTIONS = 4
STEPS = (1e-9, 1e-10)
"""Lengths of the steps, relative to the weights. The loss bends where a ReLU or a maximum changes
over: so steps are as short as rounding at 1e-16 allows, and of two lengths, since hardly any bend
lies in both."""
TOLERANCE = 1e-4
"""The allowed error, relative to the slope that a random direction has on the average."""
DIFFERENCE_TOLERANCE = 1e-2
"""The error from which differences are wrong, whatever forward-mode differentiation says."""


def worst_slope(
    plan: ModelPlan, images: SyntheticImages, gradients: dict[str, torch.Tensor]
) -> WorstError:
    """Compare the gradients of a step's loss with slopes of it along random directions.

    Along each of `DIRECTIONS` directions d, random in every weight, the loss is computed at w + h d
    and at w - h d; their difference over 2 h should be the gradient times d. Of the slopes with the
    steps h in `STEPS` the nearer one counts. If its error is between `TOLERANCE` and
    `DIFFERENCE_TOLERANCE`, the slope by forward-mode differentiation counts instead. It must be as
    near to the difference. If an operator of the network lacks it, the difference counts.

    Args:
        plan: The model and the micro-batches, on one process.
        images: The images, in float64.
        gradients: The gradients of every parameter, in float64.

    Returns:
        The largest difference, over the size that such slopes have, and its direction in words.
    """
    model = build_reference(plan.model, seed=plan.seed, device=plan.device)
    parameters = dict(model.named_parameters())
    random = torch.Generator().manual_seed(plan.seed)
    worst = WorstError.with_tolerance(TOLERANCE)
    for direction in range(DIRECTIONS):
        along = {name: _direction(one, random) for name, one in parameters.items()}
        parts = [gradients[name] * one for name, one in along.items()]
        wanted = sum(float(part.sum()) for part in parts)
        size = math.sqrt(sum(float(part.square().sum()) for part in parts))
        losses = partial(_loss_at, plan, images, model, along)
        slopes = [(losses(step) - losses(-step)) / (2 * step) for step in STEPS]
        slope = min(slopes, key=lambda one: abs(one - wanted))
        error = abs(slope - wanted) / size if size else math.inf
        if TOLERANCE < error < DIFFERENCE_TOLERANCE:
            exact = _forward_slope(plan, images, model, along)
            if exact is not None and abs(exact - slope) < DIFFERENCE_TOLERANCE * size:
                slope = exact
                error = abs(exact - wanted) / size
        detail = f"direction {direction}: slope {slope:.9g}, not {wanted:.9g}"
        worst.add(error, TOLERANCE, detail)
    return worst


def _direction(parameter: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Return a random direction, about as long as the parameter's values are large."""
    drawn = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
    scale = float(parameter.detach().abs().mean()) or 1.0
    return (scale * drawn).to(parameter.device)


@torch.no_grad()
def _loss_at(
    plan: ModelPlan,
    images: SyntheticImages,
    model: nn.Module,
    along: dict[str, torch.Tensor],
    step: float,
) -> float:
    """Return the loss a step away; the weights are put back as they were, to the bit."""
    kept = {name: parameter.clone() for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.add_(along[name], alpha=step)
    loss = float(_loss(plan, images, model))
    for name, parameter in model.named_parameters():
        parameter.copy_(kept[name])
    return loss


@torch.no_grad()
def _forward_slope(
    plan: ModelPlan, images: SyntheticImages, model: nn.Module, along: dict[str, torch.Tensor]
) -> float | None:
    """Return the slope by forward-mode differentiation; None if the network does not have one."""
    with forward_ad.dual_level(), warnings.catch_warnings():
        # Torch 2.11 compiles some of its formulas by torch.jit.script, which it calls deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        duals = {
            parameter: forward_ad.make_dual(parameter.detach(), along[name])
            for name, parameter in model.named_parameters()
        }
        with _replaced(model, duals):
            try:
                slope = forward_ad.unpack_dual(_loss(plan, images, model)).tangent
            except RuntimeError:  # An operator lacks it, or writes such numbers into a buffer.
                return None
        return None if slope is None else float(slope)


@contextmanager
def _replaced(model: nn.Module, tensors: Mapping[nn.Parameter, torch.Tensor]) -> Iterator[None]:
    """Let the modules use other tensors instead of their parameters."""
    modules = list(model.modules())
    if isinstance(model, WholeModule):
        modules += model.module.modules()
    kept = [dict(module._parameters) for module in modules]
    for module, parameters in zip(modules, kept, strict=True):
        changed: dict[str, Any] = {
            name: tensors[parameter]
            for name, parameter in parameters.items()
            if parameter is not None and parameter in tensors
        }
        module._parameters.update(changed)
    try:
        yield
    finally:
        for module, parameters in zip(modules, kept, strict=True):
            module._parameters.update(parameters)


def _loss(plan: ModelPlan, images: SyntheticImages, model: nn.Module) -> torch.Tensor:
    """Return the loss of the first step."""
    images.set_step(0)
    image = plan.model.image
    whole = Box((0, image.height), (0, image.width))
    losses = []
    for batch in plan.batches:
        with DropByPositionMode(drawn_images(plan, images.step, (0,), batch)):
            logits = model(images.pixels(0, batch.images, whole))
        targets = images.targets(0, batch.images, whole)
        losses.append(whole_loss(plan.loss, logits, targets))
    return torch.stack(losses).sum() / sum(batch.size for batch in plan.batches)
