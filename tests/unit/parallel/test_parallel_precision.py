"""Number formats on one process: rounding, and the scale of the loss."""

import json

import pytest
import torch
from torch import nn
from torch.nn import functional

from spbench_core.models.registry import make_model
from spbench_parallel.models.build import build_stage
from spbench_parallel.models.builders import DenseBuilder
from spbench_parallel.precision.arithmetic import Arithmetic
from spbench_parallel.precision.formats import (
    BF16,
    FP16,
    INT8,
    PRECISIONS,
    MixedProducts,
    narrow_weights,
)
from spbench_parallel.precision.int8 import (
    LEVELS,
    Int8Products,
    QuantisedWeight,
    RangeRecorder,
    convolutions,
)
from spbench_parallel.precision.loss_scale import GOOD_STEPS, INITIAL_SCALE, LossScale

CPU = torch.device("cpu")
MIXED = [FP16, BF16]


class World:
    """Ranks of which the others have finite gradients, or not."""

    def __init__(self):
        self.others_finite = True

    def allreduce(self, finite, op):
        return finite and self.others_finite


def make_random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def make_conv(**more):
    options = {"kernel_size": 3, "padding": 1, "bias": True} | more
    layer = nn.Conv2d(4, 6, **options)
    with torch.no_grad():
        for index, parameter in enumerate(layer.parameters()):
            parameter.copy_(make_random(*parameter.shape, seed=index))
    return layer


def make_small_model():
    network = make_model("resnet", image_size=(32, 32), num_classes=5, version=1, depth=8, width=4)
    return network, build_stage(network, 0, len(network.layers), DenseBuilder(), seed=1).eval()


@pytest.mark.parametrize("precision", MIXED, ids=lambda format_: format_.name)
def test_a_convolution_rounds_its_operands(precision):
    layer = make_conv()
    pixels = make_random(2, 4, 9, 9, seed=7)
    with MixedProducts(precision.work, CPU):
        output = layer(pixels)
    image, weight, bias = (
        tensor.detach().to(precision.work).double() for tensor in (pixels, layer.weight, layer.bias)
    )
    expected = functional.conv2d(image, weight, bias, padding=1)
    epsilon = torch.finfo(precision.work).eps
    assert output.dtype == precision.work
    torch.testing.assert_close(output.double(), expected, rtol=epsilon, atol=1e-5)
    unrounded = functional.conv2d(pixels, layer.weight, layer.bias, padding=1).double()
    assert not torch.allclose(output.double(), unrounded, rtol=epsilon / 4, atol=1e-5)


@pytest.mark.parametrize("precision", MIXED, ids=lambda format_: format_.name)
def test_products_agree_with_autocast(precision):
    layer = make_conv()
    pixels = make_random(1, 4, 5, 5, seed=7)
    with torch.autocast("cpu", precision.work):
        expected = layer(pixels)
    with MixedProducts(precision.work, CPU):
        output = layer(pixels)
    assert output.dtype == expected.dtype
    epsilon = torch.finfo(precision.work).eps
    torch.testing.assert_close(output, expected, rtol=2 * epsilon, atol=2 * epsilon)


@pytest.mark.parametrize("precision", MIXED, ids=lambda format_: format_.name)
def test_weights_and_their_gradients_stay_in_fp32(precision):
    layer = make_conv()
    linear = nn.Linear(6, 3)
    with MixedProducts(precision.work, CPU):
        logits = linear(layer(make_random(2, 4, 5, 5).to(precision.work)).mean((2, 3)))
    logits.sum().backward()
    assert logits.dtype == torch.float32
    assert {parameter.grad.dtype for parameter in (*layer.parameters(), *linear.parameters())} == {
        torch.float32
    }


@pytest.mark.parametrize("precision", MIXED, ids=lambda format_: format_.name)
def test_narrow_weights_give_equal_outputs(precision):
    _, stage = make_small_model()
    images = make_random(2, 3, 32, 32).to(precision.work)
    with torch.no_grad(), MixedProducts(precision.work, CPU):
        expected = stage(images)
        narrow_weights(stage, precision)
        assert torch.equal(stage(images), expected)
    formats = {layer.dtype for _, layer in convolutions(stage)}
    assert formats == {precision.work}
    assert stage.get_buffer("stem.norm.running_var").dtype == torch.float32


def test_formats_are_listed_by_name():
    assert all(name == precision.name for name, precision in PRECISIONS.items())
    assert BF16.rounding == 8 * FP16.rounding


def test_the_loss_scale_keeps_small_gradients_in_fp16():
    def compute_gradient(scale):
        layer = make_conv(bias=False)
        with MixedProducts(torch.float16, CPU):
            output = layer(make_random(1, 4, 5, 5).half())
        (output.float().sum() * 1e-9 * scale.value).backward()
        assert scale.unscale([layer.weight.grad])
        return layer.weight.grad

    assert float(compute_gradient(LossScale(World())).abs().max()) > 1e-9
    unscaled = LossScale(World())
    unscaled.value = 1.0
    assert float(compute_gradient(unscaled).abs().max()) == 0.0


def test_gradients_are_divided_by_the_scale():
    scale = LossScale(World())
    gradient = torch.tensor([INITIAL_SCALE, 3 * INITIAL_SCALE])
    assert scale.unscale([gradient])
    assert gradient.tolist() == [1.0, 3.0]


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_skips_a_step_without_finite_gradients(bad):
    scale = LossScale(World())
    assert not scale.unscale([torch.ones(2), torch.tensor([1.0, bad])])
    assert (scale.value, scale.skipped_steps) == (INITIAL_SCALE / 2, 1)


def test_skips_a_step_if_another_rank_is_not_finite():
    world = World()
    scale = LossScale(world)
    world.others_finite = False
    assert not scale.unscale([torch.ones(2)])
    world.others_finite = True
    assert scale.unscale([torch.ones(2)])
    assert (scale.value, scale.skipped_steps) == (INITIAL_SCALE / 2, 1)


def test_doubles_the_scale_after_good_steps_in_a_row():
    scale = LossScale(World())
    for _ in range(GOOD_STEPS - 1):
        scale.unscale([torch.ones(1)])
    assert scale.value == INITIAL_SCALE
    scale.unscale([torch.tensor([float("inf")])])
    for _ in range(GOOD_STEPS):
        assert scale.value == INITIAL_SCALE / 2
        assert scale.unscale([torch.ones(1)])
    assert (scale.value, scale.good_steps) == (INITIAL_SCALE, 0)


def run_in_int8(stage, images):
    with torch.no_grad():
        with RangeRecorder([stage]) as recorder:
            stage(images)
        with Int8Products([stage], recorder.ranges) as products:
            return stage(images), products, recorder.ranges


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"stride": 2},
        {"kernel_size": 1, "padding": 0, "stride": 2},
        {"kernel_size": (1, 7), "padding": (0, 3)},
    ],
    ids=json.dumps,
)
def test_int8_products_are_exact(more):
    layer = make_conv(**more)
    images = make_random(2, 4, 14, 14, seed=5)
    output, products, ranges = run_in_int8(nn.Sequential(layer), images)
    quantised = QuantisedWeight.quantise(layer.weight.detach(), ranges["0.weight"])
    pixels = (quantised.round_input(images).double() - quantised.zero) * quantised.scale
    weight = quantised.weight.double() * quantised.weight_scales.double()[:, None, None, None]
    expected = functional.conv2d(
        pixels, weight, layer.bias.double(), layer.stride, layer.padding
    ).detach()
    torch.testing.assert_close(output.double(), expected, rtol=1e-6, atol=1e-6)
    assert products.int8_multiply_adds == output.numel() * layer.weight[0].numel()
    exact = layer(images).detach()
    assert 1e-4 < float((output - exact).norm() / exact.norm()) < 0.02


def test_the_largest_int8_sums_are_exact():
    """With more levels, a CPU without VNNI cuts off pairs of products."""
    layer = nn.Conv2d(64, 8, 3, padding=1, bias=False)
    nn.init.ones_(layer.weight)
    images = torch.ones(1, 64, 6, 6)
    output, _, _ = run_in_int8(nn.Sequential(layer), images)
    torch.testing.assert_close(output, layer(images).detach(), rtol=1e-5, atol=0.0)


def test_one_packed_weight_serves_all_shapes_and_paddings():
    layer = make_conv(bias=False)
    stage = nn.Sequential(layer)
    images = make_random(1, 4, 16, 16, seed=5)
    with torch.no_grad():
        with RangeRecorder([stage]) as recorder:
            stage(images)
        with Int8Products([stage], recorder.ranges):
            complete = stage(images)
            strip = functional.conv2d(images[:, :, 3:9, 2:7], layer.weight.view_as(layer.weight))
    assert torch.equal(strip, complete[:, :, 4:8, 3:6])


def test_clamps_values_outside_the_calibrated_range():
    quantised = QuantisedWeight.quantise(torch.ones(1, 1, 1, 1), (-1.0, 3.0))
    rounded = quantised.round_input(torch.tensor([-9.0, -1.0, 0.0, 3.0, 9.0]))
    assert rounded.tolist() == [0, 0, quantised.zero, LEVELS, LEVELS]


def test_a_range_covers_only_pixels_that_outputs_read():
    layer = make_conv(kernel_size=1, padding=0, stride=2, bias=False)
    images = torch.zeros(1, 4, 5, 6)
    images[:, :, 1] = 100.0
    images[:, :, :, 5] = -100.0
    images[:, :, 4, 4] = 7.0
    stage = nn.Sequential(layer)
    with torch.no_grad(), RangeRecorder([stage]) as recorder:
        stage(images)
    assert recorder.ranges == {"0.weight": (0.0, 7.0)}


def test_the_int8_share_is_that_of_the_convolutions():
    network, stage = make_small_model()
    logits, products, _ = run_in_int8(stage, make_random(3, 3, 32, 32))
    assert logits.dtype == torch.float32
    total = sum(count.multiply_adds for count in network.counts)
    assert products.int8_multiply_adds + products.fp32_multiply_adds == 3 * total
    (linear,) = (module for module in stage.modules() if isinstance(module, nn.Linear))
    assert products.fp32_multiply_adds == 3 * linear.weight.numel()


def test_int8_rejects_training():
    with pytest.raises(ValueError, match="can infer"):
        Arithmetic(World(), INT8, [], CPU, learns=True)


def test_int8_needs_ranges():
    _, stage = make_small_model()
    arithmetic = Arithmetic(World(), INT8, [stage], CPU, learns=False)
    with pytest.raises(ValueError, match="calibrate"), arithmetic.activate():
        stage(make_random(1, 3, 32, 32))


@pytest.mark.parametrize("name", PRECISIONS)
def test_only_training_in_fp16_scales_the_loss(name):
    precision = PRECISIONS[name]
    for learns in (False, True)[: 1 if precision.int8 else 2]:
        arithmetic = Arithmetic(World(), precision, [], CPU, learns=learns)
        assert arithmetic.scale == (INITIAL_SCALE if learns and name == "fp16" else 1.0)
