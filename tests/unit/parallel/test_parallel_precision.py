"""Number formats on one process: what is rounded, what is not, and the scale of the loss."""

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
from spbench_parallel.precision.loss_scale import GOOD_STEPS, START, LossScale

CPU = torch.device("cpu")
MIXED = [FP16, BF16]


class World:
    """Ranks, of which the others have gradients that are finite, or not."""

    def __init__(self):
        self.others_finite = True

    def allreduce(self, finite, op):
        return finite and self.others_finite


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def conv(**more):
    words = {"kernel_size": 3, "padding": 1, "bias": True} | more
    made = nn.Conv2d(4, 6, **words)
    with torch.no_grad():
        for index, one in enumerate(made.parameters()):
            one.copy_(random(*one.shape, seed=index))
    return made


def small_model():
    network = make_model("resnet", image_size=(32, 32), num_classes=5, version=1, depth=8, width=4)
    return network, build_stage(network, 0, len(network.layers), DenseBuilder(), seed=1).eval()


@pytest.mark.parametrize("precision", MIXED, ids=lambda one: one.name)
def test_a_convolution_is_that_of_rounded_numbers(precision):
    layer = conv()
    pixels = random(2, 4, 9, 9, seed=7)
    with MixedProducts(precision.work, CPU):
        made = layer(pixels)
    image, weight, bias = (
        one.detach().to(precision.work).double() for one in (pixels, layer.weight, layer.bias)
    )
    wanted = functional.conv2d(image, weight, bias, padding=1)
    epsilon = torch.finfo(precision.work).eps
    assert made.dtype == precision.work
    torch.testing.assert_close(made.double(), wanted, rtol=epsilon, atol=1e-5)
    unrounded = functional.conv2d(pixels, layer.weight, layer.bias, padding=1).double()
    assert not torch.allclose(made.double(), unrounded, rtol=epsilon / 4, atol=1e-5)


@pytest.mark.parametrize("precision", MIXED, ids=lambda one: one.name)
def test_it_is_as_autocast_has_it(precision):
    layer = conv()
    pixels = random(1, 4, 5, 5, seed=7)
    with torch.autocast("cpu", precision.work):
        wanted = layer(pixels)
    with MixedProducts(precision.work, CPU):
        made = layer(pixels)
    assert made.dtype == wanted.dtype
    epsilon = torch.finfo(precision.work).eps
    torch.testing.assert_close(made, wanted, rtol=2 * epsilon, atol=2 * epsilon)


@pytest.mark.parametrize("precision", MIXED, ids=lambda one: one.name)
def test_weights_and_their_gradients_stay_in_fp32(precision):
    layer = conv()
    linear = nn.Linear(6, 3)
    with MixedProducts(precision.work, CPU):
        logits = linear(layer(random(2, 4, 5, 5).to(precision.work)).mean((2, 3)))
    logits.sum().backward()
    assert logits.dtype == torch.float32
    assert {one.grad.dtype for one in (*layer.parameters(), *linear.parameters())} == {
        torch.float32
    }


@pytest.mark.parametrize("precision", MIXED, ids=lambda one: one.name)
def test_weights_that_learn_nothing_are_narrow_and_give_the_same(precision):
    _, stage = small_model()
    images = random(2, 3, 32, 32).to(precision.work)
    with torch.no_grad(), MixedProducts(precision.work, CPU):
        wanted = stage(images)
        narrow_weights(stage, precision)
        assert torch.equal(stage(images), wanted)
    formats = {one.dtype for _, one in convolutions(stage)}
    assert formats == {precision.work}
    assert stage.get_buffer("stem.norm.running_var").dtype == torch.float32


def test_each_format_has_a_name():
    assert all(name == one.name for name, one in PRECISIONS.items())
    assert BF16.rounding == 8 * FP16.rounding


def test_the_loss_scale_keeps_gradients_that_fp16_would_round_to_zero():
    def gradient(scale):
        layer = conv(bias=False)
        with MixedProducts(torch.float16, CPU):
            made = layer(random(1, 4, 5, 5).half())
        (made.float().sum() * 1e-9 * scale.value).backward()
        assert scale.unscale([layer.weight.grad])
        return layer.weight.grad

    assert float(gradient(LossScale(World())).abs().max()) > 1e-9
    unscaled = LossScale(World())
    unscaled.value = 1.0
    assert float(gradient(unscaled).abs().max()) == 0.0


def test_gradients_are_divided_by_the_scale():
    scale = LossScale(World())
    gradient = torch.tensor([START, 3 * START])
    assert scale.unscale([gradient])
    assert gradient.tolist() == [1.0, 3.0]


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_step_without_finite_gradients_is_skipped(bad):
    scale = LossScale(World())
    assert not scale.unscale([torch.ones(2), torch.tensor([1.0, bad])])
    assert (scale.value, scale.skipped_steps) == (START / 2, 1)


def test_a_step_is_skipped_where_another_rank_has_no_finite_gradients():
    world = World()
    scale = LossScale(world)
    world.others_finite = False
    assert not scale.unscale([torch.ones(2)])
    world.others_finite = True
    assert scale.unscale([torch.ones(2)])
    assert (scale.value, scale.skipped_steps) == (START / 2, 1)


def test_the_scale_doubles_after_many_good_steps_in_a_row():
    scale = LossScale(World())
    for _ in range(GOOD_STEPS - 1):
        scale.unscale([torch.ones(1)])
    assert scale.value == START
    scale.unscale([torch.tensor([float("inf")])])
    for _ in range(GOOD_STEPS):
        assert scale.value == START / 2
        assert scale.unscale([torch.ones(1)])
    assert (scale.value, scale.good_steps) == (START, 0)


def in_int8(stage, images):
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
def test_products_of_whole_numbers_are_exact(more):
    layer = conv(**more)
    images = random(2, 4, 14, 14, seed=5)
    made, products, ranges = in_int8(nn.Sequential(layer), images)
    own = QuantisedWeight.quantise(layer.weight.detach(), ranges["0.weight"])
    pixels = (own.round_input(images).double() - own.zero) * own.scale
    weight = own.weight.double() * own.weight_scales.double()[:, None, None, None]
    wanted = functional.conv2d(
        pixels, weight, layer.bias.double(), layer.stride, layer.padding
    ).detach()
    torch.testing.assert_close(made.double(), wanted, rtol=1e-6, atol=1e-6)
    assert products.int8 == made.numel() * layer.weight[0].numel()
    exact = layer(images).detach()
    assert 1e-4 < float((made - exact).norm() / exact.norm()) < 0.02


def test_the_largest_sums_are_exact_too():
    """Of more levels they are not, on a CPU without VNNI: pairs of products are cut off."""
    layer = nn.Conv2d(64, 8, 3, padding=1, bias=False)
    nn.init.ones_(layer.weight)
    images = torch.ones(1, 64, 6, 6)
    made, _, _ = in_int8(nn.Sequential(layer), images)
    torch.testing.assert_close(made, layer(images).detach(), rtol=1e-5, atol=0.0)


def test_one_packed_weight_serves_all_shapes_and_paddings():
    layer = conv(bias=False)
    stage = nn.Sequential(layer)
    images = random(1, 4, 16, 16, seed=5)
    with torch.no_grad():
        with RangeRecorder([stage]) as recorder:
            stage(images)
        with Int8Products([stage], recorder.ranges):
            whole = stage(images)
            strip = functional.conv2d(images[:, :, 3:9, 2:7], layer.weight.view_as(layer.weight))
    assert torch.equal(strip, whole[:, :, 4:8, 3:6])


def test_values_beyond_the_calibrated_range_are_cut_off():
    own = QuantisedWeight.quantise(torch.ones(1, 1, 1, 1), (-1.0, 3.0))
    found = own.round_input(torch.tensor([-9.0, -1.0, 0.0, 3.0, 9.0]))
    assert found.tolist() == [0, 0, own.zero, LEVELS, LEVELS]


def test_a_range_is_of_the_pixels_that_outputs_read():
    layer = conv(kernel_size=1, padding=0, stride=2, bias=False)
    images = torch.zeros(1, 4, 5, 6)
    images[:, :, 1] = 100.0
    images[:, :, :, 5] = -100.0
    images[:, :, 4, 4] = 7.0
    stage = nn.Sequential(layer)
    with torch.no_grad(), RangeRecorder([stage]) as recorder:
        stage(images)
    assert recorder.ranges == {"0.weight": (0.0, 7.0)}


def test_the_share_in_whole_numbers_is_that_of_the_convolutions():
    network, stage = small_model()
    logits, products, _ = in_int8(stage, random(3, 3, 32, 32))
    assert logits.dtype == torch.float32
    total = sum(count.multiply_adds for count in network.counts)
    assert products.int8 + products.others == 3 * total
    (linear,) = (one for one in stage.modules() if isinstance(one, nn.Linear))
    assert products.others == 3 * linear.weight.numel()


def test_int8_is_not_for_learning():
    with pytest.raises(ValueError, match="can infer"):
        Arithmetic(World(), INT8, [], CPU, learns=True)


def test_int8_needs_ranges():
    _, stage = small_model()
    arithmetic = Arithmetic(World(), INT8, [stage], CPU, learns=False)
    with pytest.raises(ValueError, match="calibrate"), arithmetic.activate():
        stage(random(1, 3, 32, 32))


@pytest.mark.parametrize("name", PRECISIONS)
def test_only_what_learns_in_fp16_scales_its_loss(name):
    precision = PRECISIONS[name]
    for learns in (False, True)[: 1 if precision.int8 else 2]:
        arithmetic = Arithmetic(World(), precision, [], CPU, learns=learns)
        assert arithmetic.scale == (START if learns and name == "fp16" else 1.0)
