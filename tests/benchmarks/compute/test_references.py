"""References of checks: they accept correct results and detect each wrong value."""

import math
from itertools import pairwise

import pytest
import torch

from spbench_core.layout.tiles import Box
from spbench_parallel.device.formats import TORCH_DTYPES
from spbench_parallel.errors import CannotRunError
from spbench_parallel.spatial.pixels import IntegerImage, RandomImage
from spbench_workers import device_choice as choice
from spbench_workers.benchmarks.compute import conv, gemm
from spbench_workers.benchmarks.halo.compare import compare_pixels, compare_values
from spbench_workers.benchmarks.halo.fused import estimate_tolerances
from spbench_workers.exact_numbers import (
    WIDE,
    choose_distribution,
    compute_largest_convolved_sum,
    compute_largest_sum,
    draw_whole_numbers,
    insert_wide,
    shows_tf32,
)
from standins.late_device import install
from standins.winograd import winograd
from support.recording_context import find_events, get_choice, make_context

IMAGE = RandomImage(batch=2, channels=3, height=40, width=30, seed=12345)
WHOLE_NUMBERS = IntegerImage(2, 3, 40, 30, seed=7, largest=3)
WHOLE = Box((0, 40), (0, 30))
install()
GPU = torch.device("late")


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
def test_a_box_of_an_image_equals_that_part(dtype):
    complete = IMAGE.make_box(WHOLE, 1, dtype)
    part = IMAGE.make_box(Box((7, 19), (5, 6)), 1, dtype)
    assert part.dtype == dtype
    assert part.shape == (2, 3, 12, 1)
    assert torch.equal(part, complete[:, :, 7:19, 5:6])


def test_every_format_represents_the_values_exactly():
    wide = IMAGE.make_box(WHOLE, 3, torch.float64)
    assert bool(((wide.abs() >= 1 / 16) & (wide.abs() < 16)).all())
    for dtype in TORCH_DTYPES.values():
        assert torch.equal(IMAGE.make_box(WHOLE, 3, dtype).double(), wide)


def test_successive_rounds_differ_in_every_value():
    rounds = [IMAGE.make_box(WHOLE, number, torch.float32) for number in range(4)]
    for before, after in pairwise(rounds):
        assert bool((before != after).all())


def test_values_are_different_and_balanced():
    values = IMAGE.make_box(WHOLE, 0, torch.float32)
    assert values.unique().numel() > 900
    assert abs(float((values > 0).float().mean()) - 0.5) < 0.03
    other = RandomImage(2, 3, 40, 30, seed=12346).make_box(WHOLE, 0, torch.float32)
    assert float((values == other).float().mean()) < 0.01


def test_parts_of_large_images_equal_the_complete_image():
    image = RandomImage(1, 1, 3, 1 << 20, seed=1)
    complete = image.make_box(Box((0, 3), (0, 1 << 20)), 0, torch.float16)
    assert torch.equal(
        complete[:, :, 2:3, 7:9], image.make_box(Box((2, 3), (7, 9)), 0, torch.float16)
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
@pytest.mark.parametrize("image", [IMAGE, WHOLE_NUMBERS], ids=["random", "whole"])
def test_a_device_computes_the_values_of_the_host(image, dtype):
    late_image = image.make_box(WHOLE, 3, dtype, GPU, chunk_values=100)
    assert late_image.device.type == GPU.type
    assert torch.equal(late_image.cpu(), image.make_box(WHOLE, 3, dtype))


def test_reports_the_first_wrong_pixel_in_global_coordinates(messages):
    box = Box((10, 14), (20, 25))
    expected = IMAGE.make_box(box, 0, torch.float32)
    assert compare_pixels(expected.clone(), expected, box).error == 0.0
    computed = expected.clone()
    computed[1, 2, 3, 4] += 1
    computed[1, 2, 3, 3] = float("nan")
    worst = compare_pixels(computed, expected, box)
    assert worst.exceeds
    assert worst.error == math.inf
    messages.check(worst.detail)


def test_accepts_values_in_the_tolerance_and_no_nan(messages):
    expected = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    inside = compare_values("w", expected + 0.25, expected, 0.25)
    assert (inside.exceeds, inside.error, inside.detail) == (False, 0.25, "")
    outside = compare_values("w", expected + torch.tensor([0.0, 0.5]), expected, 0.25)
    assert outside.exceeds
    messages.check(outside.detail)
    nan = compare_values("w", expected * float("nan"), expected, 1e9)
    assert nan.exceeds


def test_integer_images_have_the_requested_range_and_share():
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
def test_sums_of_integers_are_exact(dtype, terms):
    limit = compute_largest_sum(dtype)
    distribution = choose_distribution(terms, limit, wide=shows_tf32(limit))
    left, right = (draw_whole_numbers((4, terms), distribution, seed) for seed in (1, 2))
    if shows_tf32(limit):
        insert_wide(left, 1, 3)
    sums = (left.abs() * right.abs()).sum(1)
    assert bool((sums > 0).any())
    assert float(sums.max()) <= limit
    for exact in (left, right, sums):
        assert torch.equal(exact.to(dtype).double(), exact)


def make_product(n, dtype=torch.float32):
    left, right = gemm.draw_factors(n, dtype, [1, 2, 3])
    return left, right, (left @ right).to(dtype)


@pytest.mark.parametrize("n", [1, 2, 33, 300])
def test_accepts_a_correct_product(n):
    left, right, result = make_product(n)
    assert gemm.check_rows(left, right, result, seed=3) == (0.0, "")
    assert gemm.check_values(left, right, result, seed=3) == (0.0, "")


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
@pytest.mark.parametrize("position", [(0, 0), (5, 64), (64, 0), (64, 64)])
@pytest.mark.parametrize("wrong", [1.0, -1.0, float("nan")])
def test_detects_any_wrong_value_of_a_product(dtype, position, wrong):
    left, right, result = make_product(65, dtype)
    result[position] += wrong
    error, detail = gemm.check_rows(left, right, result, seed=4)
    assert not error <= 0.0
    assert f"row {position[0]} " in detail


def test_both_checks_detect_a_product_of_other_matrices():
    left, right, result = make_product(20)
    assert gemm.check_rows(left, right, result.T, seed=5)[0] > 0
    assert gemm.check_values(left, right, result.T + 1, seed=5)[0] > 0


def round_to_tf32(tensor):
    """Stand in for tensor cores: return fp32 with its mantissa rounded to ten bits."""
    bits = tensor.float().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def test_the_stand_in_rounds_like_tf32():
    values = torch.tensor(
        [1.0, 2047.0, 2048.0, 2049.0, 2051.0, -2051.0, 1 + 2.0**-10, 1 + 2.0**-11]
    )
    expected = [1.0, 2047.0, 2048.0, 2048.0, 2052.0, -2052.0, 1 + 2.0**-10, 1.0]
    assert round_to_tf32(values).tolist() == expected
    assert all(
        abs(round_to_tf32(torch.tensor(float(number))).item() - number) == 1 for number in WIDE
    )


def check_products(monkeypatch, **params):
    """Return the results of the check for a correct and for a rounded product."""
    context = make_context("compute.gemm", device="cpu", **params)
    multiply = torch.mm
    multiply_rounded = lambda a, b, out: multiply(round_to_tf32(a), round_to_tf32(b), out=out)  # noqa: E731
    matrices = gemm.Matrices(*(torch.empty((params["n"], params["n"])) for _ in range(3)))
    right = gemm.check_product(context, matrices.multiply, matrices, "before")
    monkeypatch.setattr(torch, "mm", multiply_rounded)
    return right, gemm.check_product(context, matrices.multiply, matrices, "before")


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 64, 300, 2000])
def test_detects_an_fp32_product_in_tf32(n, monkeypatch, messages):
    right, rounded = check_products(monkeypatch, n=n)
    assert right == (0.0, "")
    assert rounded[0] >= 1
    messages.check(rounded[1])


def test_accepts_a_product_of_tf32():
    left, right = gemm.draw_factors(300, torch.float32, [1, 2, 3], tf32=True)
    for factor in (left, right):
        assert torch.equal(round_to_tf32(factor).double(), factor)
    assert gemm.check_rows(left, right, round_to_tf32(left) @ round_to_tf32(right), seed=3) == (
        0.0,
        "",
    )


def make_convolution(
    kernel, channels, dtype=torch.float32, size=40, batch=2, tf32=False, device="cpu"
):
    """Return a convolution and its factors; on `meta`, they are those of a GPU."""
    shapes = (batch, channels, size, size), (3, channels, kernel, kernel)
    tensors = (torch.zeros(shape, dtype=dtype, device=device) for shape in shapes)
    convolution = conv.Convolution(*tensors)
    return convolution, *conv.draw_factors(convolution, [1, 2, 3], tf32=tf32)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(("kernel", "channels"), [(1, 8), (3, 1), (3, 32), (4, 5), (7, 3)])
def test_detects_an_fp32_convolution_in_tf32(kernel, channels):
    convolution, images, kernels = make_convolution(kernel, channels)
    expected = conv.compute_reference(images, kernels)
    convolution.images.copy_(images)
    convolution.kernels.copy_(kernels)
    convolution.convolve()
    assert conv.compare_values(convolution.result, expected) == (0.0, "")
    convolution.images.copy_(round_to_tf32(images))
    convolution.convolve()
    assert conv.compare_values(convolution.result, expected)[0] >= 1
    assert conv.compare_rows(convolution.result, images, kernels, 4)[0] >= 1


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_factors_of_a_tf32_convolution_are_exact(kernel):
    _, images, kernels = make_convolution(kernel, 16, tf32=True)
    for factor in (images, kernels):
        assert torch.equal(round_to_tf32(factor).double(), factor)


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
@pytest.mark.parametrize(("kernel", "channels"), [(1, 1), (3, 1), (3, 64), (5, 16), (7, 8)])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_sums_of_a_convolution_stay_below_the_limit(dtype, kernel, channels, device):
    _, images, kernels = make_convolution(kernel, channels, dtype, device=device)
    sums = torch.nn.functional.conv2d(images.abs(), kernels.abs(), padding="same")
    limit = compute_largest_convolved_sum(dtype, (kernel, kernel), gpu=device == "meta")
    assert 0 < float(sums.max()) <= limit


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5)])
def test_only_a_gpu_lowers_the_limit_of_sums(dtype, kernel):
    assert compute_largest_convolved_sum(dtype, kernel, gpu=False) == compute_largest_sum(dtype)
    if dtype != torch.bfloat16:
        assert compute_largest_convolved_sum(dtype, kernel, gpu=True) < compute_largest_sum(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("channels", [1, 3, 16, 64, 256])
def test_winograd_errors_allow_exact_rounding(dtype, channels):
    _, images, kernels = make_convolution(3, channels, dtype, size=98, batch=1, device="meta")
    exact = torch.nn.functional.conv2d(images, kernels)
    rounded = winograd(images, kernels, dtype).double()
    assert 0 < float((rounded - exact).abs().max()) < conv.TOLERANCE / 2


def test_larger_sums_in_fp16_prevent_exact_rounding():
    distribution = choose_distribution(27, compute_largest_sum(torch.float16))
    images, kernels = (
        draw_whole_numbers(shape, distribution, seed)
        for seed, shape in enumerate([(1, 3, 98, 98), (3, 3, 3, 3)])
    )
    exact = torch.nn.functional.conv2d(images, kernels)
    rounded = winograd(images, kernels, torch.float16).double()
    assert float((rounded - exact).abs().max()) > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_winograd_in_sequence_meets_the_tolerance_of_a_gpu(layers, dtype):
    pixels = exact = torch.randint(
        -2, 3, (1, 16, 130, 130), generator=make_generator(layers)
    ).double()
    for _ in range(layers):
        weights = (
            torch.rand((exact.shape[1], exact.shape[1], 3, 3), generator=make_generator(7)) - 0.5
        )
        weights = (weights / 6).to(dtype).double()
        size = (pixels.shape[2] - 2) // 4 * 4 + 2
        pixels = winograd(pixels[:, :, :size, :size], weights, dtype).to(dtype).double()
        exact = torch.nn.functional.conv2d(exact, weights)
    exact = exact[:, :, : pixels.shape[2], : pixels.shape[3]]
    error = float((pixels - exact).abs().max())
    assert error < estimate_tolerances(layers, dtype, gpu=True).output.max_error(exact)
    allowed = estimate_tolerances(layers, dtype, gpu=False).output.max_error(exact)
    assert (error > allowed) == (dtype == torch.float32 and layers < 4)


def make_generator(number):
    return torch.Generator().manual_seed(number)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
def test_accepts_rows_of_a_correct_convolution(kernel, dtype):
    _, images, kernels = make_convolution(kernel, 4, dtype, size=9)
    computed = conv.compute_reference(images, kernels).to(dtype)
    assert conv.compare_rows(computed, images, kernels, 5) == (0.0, "")


def test_accepts_rows_narrower_than_the_kernel():
    _, images, kernels = make_convolution(7, 2, size=2)
    expected = conv.compute_reference(images, kernels)
    assert conv.compare_rows(expected, images, kernels, 5) == (0.0, "")


@pytest.mark.parametrize("position", [(0, 0, 0, 0), (1, 2, 39, 39), (0, 1, 17, 3), (1, 0, 0, 39)])
@pytest.mark.parametrize("wrong", [1.0, -2.0, 0.3, float("nan")])
def test_detects_any_wrong_value_of_a_large_convolution(position, wrong):
    _, images, kernels = make_convolution(3, 4)
    computed = conv.compute_reference(images, kernels).float()
    computed[position] += wrong
    error, detail = conv.compare_rows(computed, images, kernels, 6)
    assert not error <= conv.TOLERANCE
    assert f"row {position[2]}" in detail
    assert f"(image {position[0]}, channel {position[1]})" in detail


def test_checks_a_large_convolution_by_rows():
    context = make_context("compute.conv", image_size=16, iterations=1, device="cpu")
    conv.run(context, max_compared_flop=1.0)
    assert get_choice(context, "checked")[0] == "every row"
    assert find_events(context, "check")[0]["passed"]


def test_checks_a_small_convolution_by_values():
    context = make_context("compute.conv", image_size=16, iterations=1, device="cpu")
    conv.run(context)
    assert not find_events(context, "choice", name="checked")


@pytest.mark.parametrize("seed", range(20))
def test_always_detects_the_fault_of_a_large_convolution(seed):
    params = {"image_size": 9, "in_channels": 4, "iterations": 1, "warmup": 0, "seed": seed}
    context = make_context("compute.conv", "corrupt-result", device="cpu", **params)
    conv.run(context, max_compared_flop=1.0)
    assert not find_events(context, "check")[0]["passed"]


@pytest.mark.parametrize("name", ["compute.gemm", "compute.conv"])
def test_rejects_tf32_on_the_cpu(name, monkeypatch, messages):
    monkeypatch.setattr(choice, "explain_missing_gpu", lambda: "there is no GPU")
    with pytest.raises(ExceptionGroup) as caught:
        make_context(name, dtype="tf32", device="cpu")
    messages.check(str(caught.value.exceptions[0]))
    context = make_context(name, dtype="tf32")
    runner = gemm.run if name == "compute.gemm" else conv.run
    with messages.raises(CannotRunError):
        runner(context)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 7])
def test_the_reference_convolution_agrees_with_torch(kernel):
    generator = torch.Generator().manual_seed(kernel)
    images = torch.rand((2, 3, 9, 8), generator=generator, dtype=torch.float64)
    kernels = torch.rand((4, 3, kernel, kernel), generator=generator, dtype=torch.float64)
    low = (kernel - 1) // 2
    high = kernel // 2
    padded = torch.nn.functional.pad(images, (low, high, low, high))
    expected = torch.nn.functional.conv2d(padded, kernels)
    assert torch.allclose(conv.compute_reference(images, kernels), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("wrong", [1.0, float("nan")])
def test_reports_a_wrong_value_of_a_convolution(wrong, messages):
    expected = torch.zeros((1, 2, 3, 4), dtype=torch.float64)
    computed = expected.float()
    assert conv.compare_values(computed, expected) == (0.0, "")
    computed[0, 1, 2, 3] += wrong
    error, detail = conv.compare_values(computed, expected)
    assert not error <= conv.TOLERANCE
    messages.check(detail)
