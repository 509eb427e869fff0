"""Slopes of the loss: differences in small networks, forward-mode differentiation in large ones."""

import pytest
import torch

from spbench_core.layout.micro_batches import micro_batches
from spbench_core.layout.stages import model_layout
from spbench_core.models.registry import model
from spbench_workers.images.synthetic import SyntheticImages
from spbench_workers.models.build import build_reference
from spbench_workers.parallel.plan import ModelPlan
from spbench_workers.parallel.precision.formats import FP64
from spbench_workers.parallel.validation import finite_differences

pytestmark = pytest.mark.slow
NETWORK = model("resnet", image_size=(32, 32), num_classes=5, version=2, depth=20)
BATCHES = micro_batches(2, 1, mirrored=False, times=1)
PLAN = ModelPlan(NETWORK, model_layout(1), (len(NETWORK.layers),), BATCHES, precision=FP64)
IMAGES = SyntheticImages(NETWORK.image, 5, seed=3, dtype=torch.float64)
LONG_STEPS = (1e-6, 3e-7)
"""Steps in which ReLUs change over, as they do in short steps of a large network."""


@pytest.fixture(scope="module")
def gradients():
    module = build_reference(PLAN.model, seed=PLAN.seed, device=PLAN.device)
    parameters = dict(module.named_parameters())
    loss = finite_differences._loss(PLAN, IMAGES, module, parameters)
    return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))


def slope_error(gradients):
    return finite_differences.worst_slope(PLAN, IMAGES, gradients)[0]


def test_differences_agree_with_right_gradients(gradients, monkeypatch):
    monkeypatch.setattr(finite_differences, "_forward_slope", None)  # is not called
    assert slope_error(gradients) < finite_differences.TOLERANCE


def test_forward_mode_decides_where_relus_change_over(gradients, monkeypatch):
    monkeypatch.setattr(finite_differences, "STEPS", LONG_STEPS)
    assert slope_error(gradients) < finite_differences.TOLERANCE
    monkeypatch.setattr(finite_differences, "DIFFERENCE_TOLERANCE", 0.0)
    assert slope_error(gradients) > finite_differences.TOLERANCE


@pytest.mark.parametrize("steps", [finite_differences.STEPS, LONG_STEPS])
@pytest.mark.parametrize("factor", [1.002, 1.1, -1.0])
def test_wrong_gradients_are_found(gradients, steps, factor, monkeypatch):
    monkeypatch.setattr(finite_differences, "STEPS", steps)
    wrong = {name: factor * one for name, one in gradients.items()}
    assert slope_error(wrong) > finite_differences.TOLERANCE


def test_differences_count_without_forward_mode(gradients, monkeypatch):
    def relu(_, values):
        return WithoutForwardMode.apply(values)

    monkeypatch.setattr(torch.nn.ReLU, "forward", relu)
    monkeypatch.setattr(finite_differences, "STEPS", LONG_STEPS)
    assert slope_error(gradients) > finite_differences.TOLERANCE


class WithoutForwardMode(torch.autograd.Function):
    """A ReLU that lacks forward-mode differentiation."""

    @staticmethod
    def forward(_, values):
        return values.clamp(min=0)

    @staticmethod
    def backward(_, gradient):
        raise NotImplementedError
