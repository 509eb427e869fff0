"""The references of the checks: right where the result is right, and blind to nothing."""

import math
from itertools import pairwise

import pytest
import torch

from spbench_core.layout.tiles import Box
from spbench_parallel.device.formats import TORCH_DTYPES
from spbench_parallel.errors import CannotRunError
from spbench_parallel.spatial import pixels
from spbench_parallel.spatial.pixels import IntegerImage, RandomImage
from spbench_workers import device_choice as choice
from spbench_workers.benchmarks.compute import conv, gemm
from spbench_workers.benchmarks.halo.compare import compare_pixels, compare_values
from spbench_workers.benchmarks.halo.fused import estimate_tolerances
from spbench_workers.exact_numbers import (
    WIDE,
    choose_spread,
    insert_wide,
    largest_convolved,
    largest_sum,
    shows_tf32,
    whole_numbers,
)
from standins.late_device import install
from standins.winograd import winograd
from unit.recorded import choice_of, context_of, said

IMAGE = RandomImage(batch=2, channels=3, height=40, width=30, seed=12345)
WHOLE_NUMBERS = IntegerImage(2, 3, 40, 30, seed=7, largest=3)
WHOLE = Box((0, 40), (0, 30))
install()
GPU = torch.device("late")


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
def test_a_box_of_an_image_is_that_part_of_it(dtype):
    whole = IMAGE.make_box(WHOLE, 1, dtype)
    part = IMAGE.make_box(Box((7, 19), (5, 6)), 1, dtype)
    assert part.dtype == dtype
    assert part.shape == (2, 3, 12, 1)
    assert torch.equal(part, whole[:, :, 7:19, 5:6])


def test_every_format_holds_the_values_exactly():
    wide = IMAGE.make_box(WHOLE, 3, torch.float64)
    assert bool(((wide.abs() >= 1 / 16) & (wide.abs() < 16)).all())
    for dtype in TORCH_DTYPES.values():
        assert torch.equal(IMAGE.make_box(WHOLE, 3, dtype).double(), wide)


def test_successive_rounds_differ_in_every_value():
    rounds = [IMAGE.make_box(WHOLE, number, torch.float32) for number in range(4)]
    for before, after in pairwise(rounds):
        assert bool((before != after).all())


def test_values_are_spread():
    values = IMAGE.make_box(WHOLE, 0, torch.float32)
    assert values.unique().numel() > 900
    assert abs(float((values > 0).float().mean()) - 0.5) < 0.03
    other = RandomImage(2, 3, 40, 30, seed=12346).make_box(WHOLE, 0, torch.float32)
    assert float((values == other).float().mean()) < 0.01


def test_large_images_are_made_in_parts():
    image = RandomImage(1, 1, 3, 1 << 20, seed=1)
    whole = image.make_box(Box((0, 3), (0, 1 << 20)), 0, torch.float16)
    assert torch.equal(whole[:, :, 2:3, 7:9], image.make_box(Box((2, 3), (7, 9)), 0, torch.float16))


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
@pytest.mark.parametrize("image", [IMAGE, WHOLE_NUMBERS], ids=["random", "whole"])
def test_a_device_makes_the_values_of_the_host(image, dtype, monkeypatch):
    monkeypatch.setattr(pixels, "_CHUNK", 100)  # several parts
    made = image.make_box(WHOLE, 3, dtype, GPU)
    assert made.device.type == GPU.type
    assert torch.equal(made.cpu(), image.make_box(WHOLE, 3, dtype))


def test_the_first_wrong_pixel_is_named_in_global_coordinates():
    box = Box((10, 14), (20, 25))
    expected = IMAGE.make_box(box, 0, torch.float32)
    assert compare_pixels(expected.clone(), expected, box).error == 0.0
    got = expected.clone()
    got[1, 2, 3, 4] += 1
    got[1, 2, 3, 3] = float("nan")
    found = compare_pixels(got, expected, box)
    assert found.exceeds
    assert found.error == math.inf
    assert "2 of 120 values are wrong, the first at row 13, col 23 (image 1, channel 2)" in (
        found.detail
    )


def test_a_value_within_the_tolerance_is_not_wrong_and_a_nan_always_is():
    expected = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    near = compare_values("w", expected + 0.25, expected, 0.25)
    assert (near.exceeds, near.error, near.detail) == (False, 0.25, "")
    far = compare_values("w", expected + torch.tensor([0.0, 0.5]), expected, 0.25)
    assert far.exceeds
    assert far.detail == "2 of 4 values of w are wrong, the first at [0, 1]: 2.5, not 2"
    nan = compare_values("w", expected * float("nan"), expected, 1e9)
    assert nan.exceeds


def test_whole_images_hold_whole_numbers_of_the_size_and_share_asked_for():
    image = WHOLE_NUMBERS
    values = image.make_box(WHOLE, 1, torch.float32)
    assert torch.equal(values, values.round())
    assert sorted(values.unique().tolist()) == [-3, -2, -1, 0, 1, 2, 3]
    assert torch.equal(
        image.make_box(Box((5, 9), (3, 4)), 1, torch.float32), values[:, :, 5:9, 3:4]
    )
    sparse = IntegerImage(2, 3, 40, 30, seed=7, largest=1, share=1 << 12)
    share = float((sparse.make_box(WHOLE, 1, torch.float32) != 0).float().mean())
    assert 0.02 < share < 0.07


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
@pytest.mark.parametrize("terms", [1, 9, 300, 5000, 65536])
def test_sums_of_whole_numbers_are_exact(dtype, terms):
    limit = largest_sum(dtype)
    spread = choose_spread(terms, limit, wide=shows_tf32(limit))
    one, other = (whole_numbers((4, terms), spread, seed) for seed in (1, 2))
    if shows_tf32(limit):
        insert_wide(one, 1, 3)
    sums = (one.abs() * other.abs()).sum(1)
    assert bool((sums > 0).any())
    assert float(sums.max()) <= limit
    for exact in (one, other, sums):
        assert torch.equal(exact.to(dtype).double(), exact)


def product(n, dtype=torch.float32):
    left, right = gemm.draw_factors(n, dtype, [1, 2, 3])
    return left, right, (left @ right).to(dtype)


@pytest.mark.parametrize("n", [1, 2, 33, 300])
def test_a_right_product_is_right(n):
    left, right, result = product(n)
    assert gemm.check_rows(left, right, result, seed=3) == (0.0, "")
    assert gemm.check_values(left, right, result, seed=3) == (0.0, "")


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
@pytest.mark.parametrize("place", [(0, 0), (5, 64), (64, 0), (64, 64)])
@pytest.mark.parametrize("wrong", [1.0, -1.0, float("nan")])
def test_any_one_wrong_value_of_a_product_is_found(dtype, place, wrong):
    left, right, result = product(65, dtype)
    result[place] += wrong
    error, detail = gemm.check_rows(left, right, result, seed=4)
    assert not error <= 0.0
    assert f"row {place[0]} " in detail


def test_a_product_of_other_matrices_is_found_by_both_ways():
    left, right, result = product(20)
    assert gemm.check_rows(left, right, result.T, seed=5)[0] > 0
    assert gemm.check_values(left, right, result.T + 1, seed=5)[0] > 0


def in_tf32(tensor):
    """The stand-in for tensor cores: fp32 with its mantissa rounded to ten bits."""
    bits = tensor.float().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def test_the_stand_in_rounds_as_tf32_does():
    given = torch.tensor([1.0, 2047.0, 2048.0, 2049.0, 2051.0, -2051.0, 1 + 2.0**-10, 1 + 2.0**-11])
    wanted = [1.0, 2047.0, 2048.0, 2048.0, 2052.0, -2052.0, 1 + 2.0**-10, 1.0]
    assert in_tf32(given).tolist() == wanted
    assert all(abs(in_tf32(torch.tensor(float(one))).item() - one) == 1 for one in WIDE)


def checked_product(monkeypatch, **params):
    """The check of compute.gemm on a product whose factors the tensor cores round."""
    context = context_of("compute.gemm", device="cpu", **params)
    multiply = torch.mm
    rounded = lambda a, b, out: multiply(in_tf32(a), in_tf32(b), out=out)  # noqa: E731
    matrices = gemm.Matrices(*(torch.empty((params["n"], params["n"])) for _ in range(3)))
    right = gemm.check_product(context, matrices.multiply, matrices, "before")
    monkeypatch.setattr(torch, "mm", rounded)
    return right, gemm.check_product(context, matrices.multiply, matrices, "before")


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 64, 300, 2000])
def test_a_product_of_fp32_in_tf32_is_wrong(n, monkeypatch):
    right, rounded = checked_product(monkeypatch, n=n)
    assert right == (0.0, "")
    assert rounded[0] >= 1
    assert "of the product is" in rounded[1]


def test_a_product_of_tf32_is_right():
    left, right = gemm.draw_factors(300, torch.float32, [1, 2, 3], tf32=True)
    for factor in (left, right):
        assert torch.equal(in_tf32(factor).double(), factor)
    assert gemm.check_rows(left, right, in_tf32(left) @ in_tf32(right), seed=3) == (0.0, "")


def convolved(kernel, channels, dtype=torch.float32, size=40, batch=2, tf32=False, device="cpu"):
    """A convolution and its factors; on ``meta`` they are those of a GPU."""
    shapes = (batch, channels, size, size), (3, channels, kernel, kernel)
    tensors = (torch.zeros(shape, dtype=dtype, device=device) for shape in shapes)
    convolution = conv.Convolution(*tensors)
    return convolution, *conv.draw_factors(convolution, [1, 2, 3], tf32=tf32)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(("kernel", "channels"), [(1, 8), (3, 1), (3, 32), (4, 5), (7, 3)])
def test_a_convolution_of_fp32_in_tf32_is_wrong(kernel, channels):
    convolution, images, kernels = convolved(kernel, channels)
    expected = conv.compute_reference(images, kernels)
    convolution.images.copy_(images)
    convolution.kernels.copy_(kernels)
    convolution.convolve()
    assert conv.compare_values(convolution.result, expected) == (0.0, "")
    convolution.images.copy_(in_tf32(images))
    convolution.convolve()
    assert conv.compare_values(convolution.result, expected)[0] >= 1
    assert conv.compare_rows(convolution.result, images, kernels, 4)[0] >= 1


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_a_convolution_of_tf32_is_right(kernel):
    _, images, kernels = convolved(kernel, 16, tf32=True)
    for factor in (images, kernels):
        assert torch.equal(in_tf32(factor).double(), factor)


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
@pytest.mark.parametrize(("kernel", "channels"), [(1, 1), (3, 1), (3, 64), (5, 16), (7, 8)])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_sums_of_a_convolution_stay_where_they_are_not_in_doubt(dtype, kernel, channels, device):
    _, images, kernels = convolved(kernel, channels, dtype, device=device)
    sums = torch.nn.functional.conv2d(images.abs(), kernels.abs(), padding="same")
    limit = largest_convolved(dtype, (kernel, kernel), gpu=device == "meta")
    assert 0 < float(sums.max()) <= limit


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5)])
def test_no_fast_algorithm_makes_sums_smaller_on_the_host(dtype, kernel):
    assert largest_convolved(dtype, kernel, gpu=False) == largest_sum(dtype)
    if dtype != torch.bfloat16:
        assert largest_convolved(dtype, kernel, gpu=True) < largest_sum(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("channels", [1, 3, 16, 64, 256])
def test_winograd_leaves_no_doubt_of_the_whole_number(dtype, channels):
    _, images, kernels = convolved(3, channels, dtype, size=98, batch=1, device="meta")
    exact = torch.nn.functional.conv2d(images, kernels)
    rounded = winograd(images, kernels, dtype).double()
    assert 0 < float((rounded - exact).abs().max()) < conv.TOLERANCE / 2


def test_winograd_of_larger_sums_in_fp16_would_leave_doubt():
    spread = choose_spread(27, largest_sum(torch.float16))
    images, kernels = (
        whole_numbers(shape, spread, seed)
        for seed, shape in enumerate([(1, 3, 98, 98), (3, 3, 3, 3)])
    )
    exact = torch.nn.functional.conv2d(images, kernels)
    rounded = winograd(images, kernels, torch.float16).double()
    assert float((rounded - exact).abs().max()) > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_winograd_in_a_row_is_within_the_tolerance_of_a_gpu(layers, dtype):
    pixels = exact = torch.randint(-2, 3, (1, 16, 130, 130), generator=seeded(layers)).double()
    for _ in range(layers):
        weights = torch.rand((exact.shape[1], exact.shape[1], 3, 3), generator=seeded(7)) - 0.5
        weights = (weights / 6).to(dtype).double()
        size = (pixels.shape[2] - 2) // 4 * 4 + 2
        pixels = winograd(pixels[:, :, :size, :size], weights, dtype).to(dtype).double()
        exact = torch.nn.functional.conv2d(exact, weights)
    exact = exact[:, :, : pixels.shape[2], : pixels.shape[3]]
    error = float((pixels - exact).abs().max())
    assert error < estimate_tolerances(layers, dtype, gpu=True).output.max_error(exact)
    allowed = estimate_tolerances(layers, dtype, gpu=False).output.max_error(exact)
    assert (error > allowed) == (dtype == torch.float32 and layers < 4)


def seeded(number):
    return torch.Generator().manual_seed(number)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
def test_rows_of_a_right_convolution_are_right(kernel, dtype):
    _, images, kernels = convolved(kernel, 4, dtype, size=9)
    got = conv.compute_reference(images, kernels).to(dtype)
    assert conv.compare_rows(got, images, kernels, 5) == (0.0, "")


def test_rows_narrower_than_the_kernel_are_right():
    _, images, kernels = convolved(7, 2, size=2)
    expected = conv.compute_reference(images, kernels)
    assert conv.compare_rows(expected, images, kernels, 5) == (0.0, "")


@pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 2, 39, 39), (0, 1, 17, 3), (1, 0, 0, 39)])
@pytest.mark.parametrize("wrong", [1.0, -2.0, 0.3, float("nan")])
def test_any_one_wrong_value_of_a_large_convolution_is_found(place, wrong):
    _, images, kernels = convolved(3, 4)
    got = conv.compute_reference(images, kernels).float()
    got[place] += wrong
    error, detail = conv.compare_rows(got, images, kernels, 6)
    assert not error <= conv.TOLERANCE
    assert f"row {place[2]}" in detail
    assert f"(image {place[0]}, channel {place[1]})" in detail


def test_a_large_convolution_is_checked_by_rows_and_says_so(monkeypatch):
    monkeypatch.setattr(conv, "MAX_COMPARED_FLOP", 1.0)
    context = context_of("compute.conv", image_size=16, iterations=1, device="cpu")
    conv.run(context)
    assert choice_of(context, "checked")[0] == "every row"
    assert said(context, "check")[0]["passed"]


def test_a_small_convolution_is_checked_by_values_and_needs_no_words():
    context = context_of("compute.conv", image_size=16, iterations=1, device="cpu")
    conv.run(context)
    assert not said(context, "choice", name="checked")


@pytest.mark.parametrize("seed", range(20))
def test_the_fault_of_a_large_convolution_is_always_found(seed, monkeypatch):
    monkeypatch.setattr(conv, "MAX_COMPARED_FLOP", 1.0)
    words = {"image_size": 9, "in_channels": 4, "iterations": 1, "warmup": 0, "seed": seed}
    context = context_of("compute.conv", "corrupt-result", device="cpu", **words)
    conv.run(context)
    assert not said(context, "check")[0]["passed"]


@pytest.mark.parametrize("name", ["compute.gemm", "compute.conv"])
def test_tf32_on_the_cpu_is_refused(name, monkeypatch):
    monkeypatch.setattr(choice, "explain_missing_gpu", lambda: "there is no GPU")
    with pytest.raises(ExceptionGroup) as refused:
        context_of(name, dtype="tf32", device="cpu")
    assert "tf32 needs a GPU, and device is cpu" in str(refused.value.exceptions[0])
    context = context_of(name, dtype="tf32")
    runner = gemm.run if name == "compute.gemm" else conv.run
    with pytest.raises(CannotRunError, match="tf32 needs a GPU, and the device is cpu"):
        runner(context)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 7])
def test_the_reference_convolution_is_torchs(kernel):
    generator = torch.Generator().manual_seed(kernel)
    images = torch.rand((2, 3, 9, 8), generator=generator, dtype=torch.float64)
    kernels = torch.rand((4, 3, kernel, kernel), generator=generator, dtype=torch.float64)
    low = (kernel - 1) // 2
    high = kernel // 2
    padded = torch.nn.functional.pad(images, (low, high, low, high))
    expected = torch.nn.functional.conv2d(padded, kernels)
    assert torch.allclose(conv.compute_reference(images, kernels), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("wrong", [1.0, float("nan")])
def test_a_wrong_value_of_a_convolution_is_named(wrong):
    expected = torch.zeros((1, 2, 3, 4), dtype=torch.float64)
    got = expected.float()
    assert conv.compare_values(got, expected) == (0.0, "")
    got[0, 1, 2, 3] += wrong
    error, detail = conv.compare_values(got, expected)
    assert not error <= conv.TOLERANCE
    assert "row 2, col 3 (image 0, channel 1)" in detail
