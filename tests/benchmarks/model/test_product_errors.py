"""Products of fp32 numbers reveal if they were computed in fp32.

Results of complete models do not reveal that.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.models.registry import make_model
from spbench_parallel.device.formats import set_fp32_precision
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import FP32, FP64, TF32
from spbench_parallel.precision.product_errors import FP32_SLACK, ProductErrors, product_tolerance
from spbench_workers.benchmarks.model.regime_checks import check_products
from spbench_workers.benchmarks.model.validation import Validation, make_plans
from standins.late_device import install
from standins.tf32 import BF16_BITS, TF32_BITS, Tf32Products
from support.single_rank_context import SingleRankContext

pytestmark = pytest.mark.slow
LATE = install()
GPU = torch.device("late")
CPU = torch.device("cpu")
MODEL = make_model("resnet", image_size=(32, 32), num_classes=5, version=2, depth=11)


@pytest.fixture(autouse=True)
def _settings():
    """Apply the defaults of torch: convolutions in TF32, matrix products not."""
    LATE.reset()
    previous = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = previous
    LATE.streams.synchronize_device()


def make_plan(device, precision):
    batches = split_batch(2, 1, mirrored=False, times=1)
    layers = (len(MODEL.layers),)
    return ModelPlan(MODEL, build_layout(1), layers, batches, device=device, precision=precision)


def products_pass(precision, bits=TF32_BITS):
    context = SingleRankContext()
    with Tf32Products(bits):
        check_products(context, make_plan(GPU, precision))
    return context.checks["products"]


def test_detects_tf32_in_fp32():
    assert not products_pass(FP32)
    set_fp32_precision(CPU)
    assert products_pass(FP32)
    torch.backends.cuda.matmul.allow_tf32 = True
    assert not products_pass(FP32)


def test_accepts_tf32_and_detects_fewer_bits():
    torch.backends.cuda.matmul.allow_tf32 = True
    assert products_pass(TF32)
    assert not products_pass(TF32, BF16_BITS)


@pytest.mark.long
def test_a_model_in_float64_does_not_use_tf32():
    context = SingleRankContext()
    (exact, *others) = make_plans(make_plan(GPU, FP32))
    assert (exact.precision, others) == (FP64, [])
    with Tf32Products() as products:
        Validation(context, exact, TrainingConfig(), lambda *_: None, lambda *_: None).run()
    assert len(context.checks) > 5
    assert all(context.checks.values())
    assert products.products == 0


@pytest.mark.long
def test_compares_a_complete_model_in_tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    plan = make_plan(GPU, TF32)
    assert [small_plan.precision for small_plan in make_plans(plan)] == [FP64, TF32]
    context = SingleRankContext()
    with Tf32Products() as products:
        Validation(context, plan, TrainingConfig(), lambda *_: None, lambda *_: None).run()
    assert products.products > 0
    assert all(context.checks.values())


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("precision", [FP32, FP64, TF32], ids=lambda param: param.name)
def test_checks_products_only_on_a_gpu_in_32_bits(device, precision):
    context = SingleRankContext()
    check_products(context, make_plan(device, precision))
    assert list(context.checks) == (["products"] if device == GPU and precision != FP64 else [])


def test_reports_the_largest_error_and_nan_as_infinity():
    layer = nn.Conv2d(3, 4, (1, 3))
    with ProductErrors() as errors:
        layer(torch.randn(2, 3, 5, 5))
        assert errors.worst.detail.endswith("of a convolution with 4x3x1x3 weights")
        layer(torch.full((2, 3, 5, 5), float("nan")))
        layer(torch.randn(2, 3, 5, 5))
    assert errors.worst.error == float("inf")


def test_the_check_does_not_change_outputs():
    layer = nn.Conv2d(3, 4, 3, padding=1, stride=2)
    pixels = torch.randn(3, 3, 70, 71)
    linear = nn.Linear(6, 2)
    values = torch.randn(3, 6)
    expected = layer(pixels), linear(values)
    with ProductErrors() as errors:
        outputs = layer(pixels), linear(values)
    assert all(map(torch.equal, outputs, expected))
    assert 0 < errors.worst.error < product_tolerance(FP32)


def test_tolerances_separate_the_formats():
    assert product_tolerance(FP32) == FP32_SLACK * 2.0**-23
    assert (
        product_tolerance(replace(FP32, tf32=True))
        == product_tolerance(TF32)
        > 32 * product_tolerance(FP32)
    )
