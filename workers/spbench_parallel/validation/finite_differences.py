"""Gradients checked by finite differences of the loss.

The differences are a reference without any backward pass. In a large network, some ReLU or maximum
switches within any step that rounding allows: for ResNet-110 with 8 images of 256 x 256 pixels,
differences were off by 1.5e-4 on an H200. Then torch's forward-mode differentiation, which takes no
step, gives the slope.
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
from spbench_parallel.validation.reference import compute_whole_loss, make_drop_batch
from spbench_parallel.verify.worst_error import WorstError

DIRECTIONS = 4
"""Random directions along which slopes are compared."""
STEP_LENGTHS = (1e-9, 1e-10)
"""Lengths of steps along a direction, relative to the weights.

The loss is not smooth where a ReLU or a maximum switches. So steps are as short as rounding at
1e-16 allows. There are two lengths, because a switch hardly ever lies within both.
"""
TOLERANCE = 1e-4
"""The allowed error, relative to the mean slope of a random direction."""
DIFFERENCE_TOLERANCE = 1e-2
"""The error above which a difference is wrong, regardless of forward-mode differentiation."""


def compare_slopes(
    plan: ModelPlan,
    images: SyntheticImages,
    gradients: dict[str, torch.Tensor],
    *,
    step_lengths: tuple[float, ...] = STEP_LENGTHS,
    difference_tolerance: float = DIFFERENCE_TOLERANCE,
) -> WorstError:
    """Compare the gradients of a step's loss with its slopes along random directions.

    Along each of `DIRECTIONS` directions d, random in every weight, the loss is computed at w + h d
    and at w - h d. Their difference over 2 h should be the gradient times d. Among the slopes with
    the step lengths h, the nearest counts. If its error is between `TOLERANCE` and
    ``difference_tolerance``, the slope by forward-mode differentiation counts instead. That slope
    must be as near to the difference. If an operator of the network does not support it, the
    difference counts.

    Args:
        plan: The model and the micro-batches, on one process.
        images: The images, in float64.
        gradients: The gradients of every parameter, in float64.
        step_lengths: The steps h, relative to the weights.
        difference_tolerance: The relative error above which a difference is wrong.

    Returns:
        The largest error relative to the mean slope, and its direction in words.
    """
    model = build_reference(plan.model, seed=plan.seed, device=plan.device)
    parameters = dict(model.named_parameters())
    random = torch.Generator().manual_seed(plan.seed)
    worst = WorstError.with_tolerance(TOLERANCE)
    for direction_index in range(DIRECTIONS):
        direction_by_name = {
            name: _random_direction(parameter, random) for name, parameter in parameters.items()
        }
        gradient_products = [gradients[name] * vector for name, vector in direction_by_name.items()]
        expected = sum(float(product.sum()) for product in gradient_products)
        slope_size = math.sqrt(sum(float(product.square().sum()) for product in gradient_products))

        compute_displaced_loss = partial(_displaced_loss, plan, images, model, direction_by_name)
        slopes = [
            (compute_displaced_loss(length) - compute_displaced_loss(-length)) / (2 * length)
            for length in step_lengths
        ]
        slope_errors = [abs(slope - expected) for slope in slopes]
        slope = slopes[slope_errors.index(min(slope_errors))]
        error = abs(slope - expected) / slope_size if slope_size else math.inf

        if TOLERANCE < error < difference_tolerance:
            forward_slope = _forward_slope(plan, images, model, direction_by_name)
            if (
                forward_slope is not None
                and abs(forward_slope - slope) < difference_tolerance * slope_size
            ):
                slope = forward_slope
                error = abs(forward_slope - expected) / slope_size
        detail = f"direction {direction_index}: slope {slope:.9g}, not {expected:.9g}"
        worst.add(error, TOLERANCE, detail)
    return worst


def _random_direction(parameter: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Return a random direction of the size of the parameter's values."""
    normal = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
    scale = float(parameter.detach().abs().mean()) or 1.0
    return (scale * normal).to(parameter.device)


@torch.no_grad()
def _displaced_loss(
    plan: ModelPlan,
    images: SyntheticImages,
    model: nn.Module,
    direction_by_name: dict[str, torch.Tensor],
    step_length: float,
) -> float:
    """Return the loss one step away; the weights are restored to the bit."""
    saved = {name: parameter.clone() for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.add_(direction_by_name[name], alpha=step_length)
    loss = float(_compute_loss(plan, images, model))
    for name, parameter in model.named_parameters():
        parameter.copy_(saved[name])
    return loss


@torch.no_grad()
def _forward_slope(
    plan: ModelPlan,
    images: SyntheticImages,
    model: nn.Module,
    direction_by_name: dict[str, torch.Tensor],
) -> float | None:
    """Return the slope by forward-mode differentiation.

    It is None if the network does not support it.
    """
    with forward_ad.dual_level(), warnings.catch_warnings():
        # Torch 2.11 compiles some of its formulas by torch.jit.script, which is deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        dual_by_parameter = {
            parameter: forward_ad.make_dual(parameter.detach(), direction_by_name[name])
            for name, parameter in model.named_parameters()
        }
        with _replace_parameters(model, dual_by_parameter):
            try:
                slope = forward_ad.unpack_dual(_compute_loss(plan, images, model)).tangent
            except RuntimeError:  # an operator does not support it, or writes duals into a buffer
                return None
        return None if slope is None else float(slope)


@contextmanager
def _replace_parameters(
    model: nn.Module, tensors: Mapping[nn.Parameter, torch.Tensor]
) -> Iterator[None]:
    """Let the modules use other tensors instead of their parameters."""
    modules = list(model.modules())
    if isinstance(model, WholeModule):
        modules += model.module.modules()
    saved_parameters = [dict(module._parameters) for module in modules]
    for module, parameters in zip(modules, saved_parameters, strict=True):
        changed: dict[str, Any] = {
            name: tensors[parameter]
            for name, parameter in parameters.items()
            if parameter is not None and parameter in tensors
        }
        module._parameters.update(changed)
    try:
        yield
    finally:
        for module, parameters in zip(modules, saved_parameters, strict=True):
            module._parameters.update(parameters)


def _compute_loss(plan: ModelPlan, images: SyntheticImages, model: nn.Module) -> torch.Tensor:
    """Return the loss of the first step."""
    images.set_step(0)
    image = plan.model.image
    image_box = Box((0, image.height), (0, image.width))
    losses = []
    for batch in plan.batches:
        with DropByPositionMode(make_drop_batch(plan, images.step, (0,), batch)):
            logits = model(images.pixels(0, batch.images, image_box))
        targets = images.targets(0, batch.images, image_box)
        losses.append(compute_whole_loss(plan.loss, logits, targets))
    return torch.stack(losses).sum() / sum(batch.size for batch in plan.batches)
