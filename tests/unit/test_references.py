"""The references of the checks: right where the result is right, and blind to nothing."""

from itertools import pairwise

import pytest
import torch

from spbench_workers.compute import conv, gemm
from spbench_workers.compute.whole_numbers import largest_sum, whole_numbers
from spbench_workers.device.formats import TORCH_DTYPES
from spbench_workers.halo.compare import Mismatch, compare_pixels, compare_values
from spbench_workers.layout import Box
from spbench_workers.spatial.pixels import Image, WholeImage

IMAGE = Image(batch=2, channels=3, height=40, width=30, seed=12345)
WHOLE = Box((0, 40), (0, 30))


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
def test_a_box_of_an_image_is_that_part_of_it(dtype):
    whole = IMAGE.box(WHOLE, 1, dtype)
    part = IMAGE.box(Box((7, 19), (5, 6)), 1, dtype)
    assert part.dtype == dtype
    assert part.shape == (2, 3, 12, 1)
    assert torch.equal(part, whole[:, :, 7:19, 5:6])


def test_every_format_holds_the_values_exactly():
    wide = IMAGE.box(WHOLE, 3, torch.float64)
    assert bool(((wide.abs() >= 1 / 16) & (wide.abs() < 16)).all())
    for dtype in TORCH_DTYPES.values():
        assert torch.equal(IMAGE.box(WHOLE, 3, dtype).double(), wide)


def test_successive_rounds_differ_in_every_value():
    rounds = [IMAGE.box(WHOLE, number, torch.float32) for number in range(4)]
    for before, after in pairwise(rounds):
        assert bool((before != after).all())


def test_values_are_spread():
    values = IMAGE.box(WHOLE, 0, torch.float32)
    assert values.unique().numel() > 900
    assert abs(float((values > 0).float().mean()) - 0.5) < 0.03
    other = Image(2, 3, 40, 30, seed=12346).box(WHOLE, 0, torch.float32)
    assert float((values == other).float().mean()) < 0.01


def test_large_images_are_made_in_parts():
    image = Image(1, 1, 3, 1 << 20, seed=1)
    whole = image.box(Box((0, 3), (0, 1 << 20)), 0, torch.float16)
    assert torch.equal(whole[:, :, 2:3, 7:9], image.box(Box((2, 3), (7, 9)), 0, torch.float16))


def test_the_first_wrong_pixel_is_named_in_global_coordinates():
    box = Box((10, 14), (20, 25))
    expected = IMAGE.box(box, 0, torch.float32)
    assert compare_pixels(expected.clone(), expected, box).error == 0.0
    got = expected.clone()
    got[1, 2, 3, 4] += 1
    got[1, 2, 3, 3] = float("nan")
    found = compare_pixels(got, expected, box)
    assert found.wrong
    assert found.error != found.error
    assert "2 of 120 values are wrong, the first at row 13, col 23 (image 1, channel 2)" in (
        found.detail
    )


def test_a_value_within_the_tolerance_is_not_wrong_and_a_nan_always_is():
    expected = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    near = compare_values("w", expected + 0.25, expected, 0.25)
    assert (near.wrong, near.error, near.detail) == (False, 0.25, "")
    far = compare_values("w", expected + torch.tensor([0.0, 0.5]), expected, 0.25)
    assert far.wrong
    assert far.detail == "2 of 4 values of w are wrong, the first at [0, 1]: 2.5, not 2"
    nan = compare_values("w", expected * float("nan"), expected, 1e9)
    assert nan.wrong


def test_the_worst_of_several_comparisons_is_kept():
    small, large, wrong = Mismatch(0.1, 1.0), Mismatch(0.2, 1.0), Mismatch(0.15, 0.1, "here")
    assert small.worse(large) is large
    assert large.worse(wrong) is wrong
    assert wrong.worse(large) is wrong
    assert Mismatch(float("nan"), 1.0).worse(large).wrong


def test_whole_images_hold_whole_numbers_of_the_size_and_share_asked_for():
    image = WholeImage(2, 3, 40, 30, seed=7, largest=3)
    values = image.box(WHOLE, 1, torch.float32)
    assert torch.equal(values, values.round())
    assert sorted(values.unique().tolist()) == [-3, -2, -1, 0, 1, 2, 3]
    assert torch.equal(image.box(Box((5, 9), (3, 4)), 1, torch.float32), values[:, :, 5:9, 3:4])
    sparse = WholeImage(2, 3, 40, 30, seed=7, largest=1, share=1 << 12)
    share = float((sparse.box(WHOLE, 1, torch.float32) != 0).float().mean())
    assert 0.02 < share < 0.07


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
@pytest.mark.parametrize("terms", [1, 9, 300, 5000, 65536])
def test_sums_of_whole_numbers_are_exact(dtype, terms):
    one, other = (whole_numbers((4, terms), terms, dtype, seed) for seed in (1, 2))
    sums = (one.abs() * other.abs()).sum(1)
    assert bool((sums > 0).any())
    assert float(sums.max()) <= largest_sum(dtype)
    for exact in (one, other, sums):
        assert torch.equal(exact.to(dtype).double(), exact)


def product(n, dtype=torch.float32):
    left, right = (whole_numbers((n, n), n, dtype, seed) for seed in (1, 2))
    return left, right, (left @ right).to(dtype)


@pytest.mark.parametrize("n", [1, 2, 33, 300])
def test_a_right_product_is_right(n):
    left, right, result = product(n)
    assert gemm.wrong_row(left, right, result, seed=3) == (0.0, "")
    assert gemm.wrong_value(left, right, result, seed=3) == (0.0, "")


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=str)
@pytest.mark.parametrize("place", [(0, 0), (5, 64), (64, 0), (64, 64)])
@pytest.mark.parametrize("wrong", [1.0, -1.0, float("nan")])
def test_any_one_wrong_value_of_a_product_is_found(dtype, place, wrong):
    left, right, result = product(65, dtype)
    result[place] += wrong
    error, detail = gemm.wrong_row(left, right, result, seed=4)
    assert not error <= 0.0
    assert f"row {place[0]} " in detail


def test_a_product_of_other_matrices_is_found_by_both_ways():
    left, right, result = product(20)
    assert gemm.wrong_row(left, right, result.T, seed=5)[0] > 0
    assert gemm.wrong_value(left, right, result.T + 1, seed=5)[0] > 0


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 7])
def test_the_reference_convolution_is_torchs(kernel):
    generator = torch.Generator().manual_seed(kernel)
    images = torch.rand((2, 3, 9, 8), generator=generator, dtype=torch.float64)
    kernels = torch.rand((4, 3, kernel, kernel), generator=generator, dtype=torch.float64)
    low, high = (kernel - 1) // 2, kernel // 2
    padded = torch.nn.functional.pad(images, (low, high, low, high))
    expected = torch.nn.functional.conv2d(padded, kernels)
    assert torch.allclose(conv.reference(images, kernels), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("wrong", [1.0, float("nan")])
def test_a_wrong_value_of_a_convolution_is_named(wrong):
    expected = torch.zeros((1, 2, 3, 4), dtype=torch.float64)
    got = expected.float()
    assert conv.compare(got, expected) == (0.0, "")
    got[0, 1, 2, 3] += wrong
    error, detail = conv.compare(got, expected)
    assert not error <= conv.TOLERANCE
    assert "row 2, col 3 (image 0, channel 1)" in detail
