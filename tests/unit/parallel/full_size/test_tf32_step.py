"""The full-size check of a step in TF32, on a stand-in that rounds factors."""

import pytest
import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.models.registry import make_model
from spbench_parallel.engine import Engine
from spbench_parallel.full_size.calls import StepErrors
from spbench_parallel.full_size.check import StepCheck
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import FP32, TF32
from standins.tf32 import TF32_BITS, Tf32Products

pytestmark = pytest.mark.slow
NETWORKS = {
    "resnet": make_model("resnet", image_size=(32, 32), num_classes=5, version=2, depth=11),
    "amoebanet": make_model("amoebanet", image_size=(64, 64), num_classes=5, num_layers=3),
}
SCALE = 1 + 1 / 64


@pytest.fixture(autouse=True)
def allow_tf32():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def measure_errors(network, precision=TF32, bits=TF32_BITS, seed=3, change=lambda _: None):
    """Return the errors of a step relative to their bounds, by name."""
    batches = split_batch(2, 1, mirrored=False, times=1)
    plan = ModelPlan(network, build_layout(1), (len(network.layers),), batches, precision=precision)
    images = SyntheticImages(network.image, 5, seed=seed, dtype=plan.dtype)
    training = TrainingConfig("sgd")
    errors = StepErrors()
    with Tf32Products(bits):
        engine = Engine(MPI.COMM_SELF, plan, images, training)
        change(engine.stages[0])
        StepCheck(engine, training, errors, ("operators", "scales", "sums", "updates")).run()
        engine.free()
    return {name: worst.error for name, worst in errors.to_dict().items()}


def find_module(stage, kind):
    return [module for module in stage.modules() if isinstance(module, kind)][-1]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name == "amoebanet" else ())
        for name in NETWORKS
    ],
)
def test_a_step_in_tf32_passes(name):
    errors = measure_errors(NETWORKS[name])
    assert max(errors.values()) < 1.0, errors


def test_an_fp32_step_with_tf32_products_fails():
    assert measure_errors(NETWORKS["resnet"], precision=FP32)["operators"] > 1.0


def test_a_tf32_step_with_fewer_bits_fails():
    assert measure_errors(NETWORKS["resnet"], bits=TF32_BITS - 5)["operators"] > 1.0


@pytest.mark.parametrize("kind", [nn.Linear, nn.Conv2d])
def test_detects_a_wrong_scale(kind):
    def change(stage):
        forward = find_module(stage, kind).forward
        find_module(stage, kind).forward = lambda values: SCALE * forward(values)

    assert measure_errors(NETWORKS["resnet"], change=change)["scales"] > 1.0


def test_detects_a_wrong_pixel():
    def change(stage):
        conv = find_module(stage, nn.Conv2d)
        forward = conv.forward

        def corrupt_pixel(values):
            output = forward(values)
            return torch.cat((output[:, :, :, :-1], 1.02 * output[:, :, :, -1:]), 3)

        conv.forward = corrupt_pixel

    assert measure_errors(NETWORKS["resnet"], change=change)["operators"] > 1.0
