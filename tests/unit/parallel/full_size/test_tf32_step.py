"""The full-size check of a step in TF32, on a stand-in for a GPU that rounds factors."""

import pytest
import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.models.registry import make_model
from spbench_parallel.engine import Engine
from spbench_parallel.full_size.check import StepCheck, StepErrors
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


def errors_of(network, precision=TF32, bits=TF32_BITS, seed=3, change=lambda _: None):
    """The errors of a step over their bounds, by name."""
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


def module_of(stage, kind):
    return [one for one in stage.modules() if isinstance(one, kind)][-1]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_in_tf32_is_right(name):
    errors = errors_of(NETWORKS[name])
    assert max(errors.values()) < 1.0, errors


def test_a_step_of_fp32_that_is_multiplied_as_tf32_is_wrong():
    assert errors_of(NETWORKS["resnet"], precision=FP32)["operators"] > 1.0


def test_a_step_of_tf32_with_fewer_bits_is_wrong():
    assert errors_of(NETWORKS["resnet"], bits=TF32_BITS - 5)["operators"] > 1.0


@pytest.mark.parametrize("kind", [nn.Linear, nn.Conv2d])
def test_a_wrong_scale_is_found(kind):
    def change(stage):
        forward = module_of(stage, kind).forward
        module_of(stage, kind).forward = lambda values: SCALE * forward(values)

    assert errors_of(NETWORKS["resnet"], change=change)["scales"] > 1.0


def test_a_wrong_pixel_is_found():
    def change(stage):
        conv = module_of(stage, nn.Conv2d)
        forward = conv.forward

        def with_wrong_pixel(values):
            made = forward(values)
            return torch.cat((made[:, :, :, :-1], 1.02 * made[:, :, :, -1:]), 3)

        conv.forward = with_wrong_pixel

    assert errors_of(NETWORKS["resnet"], change=change)["operators"] > 1.0
