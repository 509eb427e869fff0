"""Slopes of the loss.

Small networks use differences, large ones forward-mode differentiation.
"""

import pytest
import torch

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.models.parts import MapShape
from spbench_core.models.registry import make_model
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.models.build import build_reference
from spbench_parallel.models.imported.model import build_model
from spbench_parallel.models.imported.tracing import trace_network
from spbench_parallel.plan import ModelPlan
from spbench_parallel.precision.formats import FP64
from spbench_parallel.validation import finite_differences
from support.networks.own_networks import UNet

pytestmark = pytest.mark.slow
BATCHES = split_batch(2, 1, mirrored=False, times=1)


def user_network():
    torch.manual_seed(0)
    return build_model(trace_network("net", UNet(), MapShape(3, 32, 32)))


def resnet():
    return make_model("resnet", image_size=(32, 32), num_classes=5, version=2, depth=20)


LONG_STEPS = {resnet: (1e-6, 3e-7), user_network: (1e-4, 3e-5)}
"""Steps in which ReLUs change sign, as happens in short steps of a large network."""


@pytest.fixture(scope="module", params=LONG_STEPS, ids=lambda function: function.__name__)
def make_network(request):
    return request.param


@pytest.fixture(scope="module")
def network(make_network):
    return make_network()


@pytest.fixture(scope="module")
def long_steps(make_network):
    return {"step_lengths": LONG_STEPS[make_network]}


@pytest.fixture(scope="module")
def plan(network):
    return ModelPlan(network, build_layout(1), (len(network.layers),), BATCHES, precision=FP64)


@pytest.fixture(scope="module")
def images(network):
    return SyntheticImages(network.image, 5, seed=3, dtype=torch.float64)


@pytest.fixture(scope="module")
def gradients(plan, images):
    module = build_reference(plan.model, seed=plan.seed, device=plan.device)
    parameters = dict(module.named_parameters())
    loss = finite_differences._compute_loss(plan, images, module)
    return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))


@pytest.fixture
def slope_error(plan, images):
    return lambda gradients, **lengths: (
        finite_differences.compare_slopes(plan, images, gradients, **lengths).error
    )


def test_differences_agree_with_correct_gradients(gradients, slope_error, monkeypatch):
    monkeypatch.setattr(finite_differences, "_forward_slope", None)  # is not called
    assert slope_error(gradients) < finite_differences.TOLERANCE


def test_forward_mode_decides_if_relus_change_sign(gradients, slope_error, long_steps):
    assert slope_error(gradients, **long_steps) < finite_differences.TOLERANCE
    without_forward_mode = slope_error(gradients, difference_tolerance=0.0, **long_steps)
    assert without_forward_mode > finite_differences.TOLERANCE


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("factor", [1.002, 1.1, -1.0])
def test_detects_wrong_gradients(gradients, slope_error, factor, long, long_steps):
    wrong = {name: factor * gradient for name, gradient in gradients.items()}
    assert slope_error(wrong, **(long_steps if long else {})) > finite_differences.TOLERANCE


def test_differences_decide_without_forward_mode(gradients, slope_error, long_steps, monkeypatch):
    def relu(_, values):
        return WithoutForwardMode.apply(values)

    monkeypatch.setattr(torch.nn.ReLU, "forward", relu)
    assert slope_error(gradients, **long_steps) > finite_differences.TOLERANCE


class WithoutForwardMode(torch.autograd.Function):
    """A ReLU that lacks forward-mode differentiation."""

    @staticmethod
    def forward(_, values):
        return values.clamp(min=0)

    @staticmethod
    def backward(_, gradient):
        raise NotImplementedError
