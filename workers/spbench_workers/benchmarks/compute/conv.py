"""Benchmark ``compute.conv``: the speed of each rank's convolutions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from spbench_parallel.device.formats import autotune_convolutions, torch_dtype
from spbench_parallel.device.streams import is_gpu, synchronize_stream
from spbench_workers.benchmarks.compute.entry import ConvParams
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device
from spbench_workers.exact_numbers import (
    choose_distribution,
    compute_largest_convolved_sum,
    draw_whole_numbers,
    fill_uniform,
    insert_wide,
    shows_tf32,
)
from spbench_workers.single_rank_baseline import report_rate_and_limit
from spbench_workers.timing import measure

TOLERANCE = 0.25
"""Exact results are whole numbers, so a wrong one is off by at least 1. Fast algorithms (Winograd)
multiply by fractions; their rounding stays below this tolerance; see
`compute_largest_convolved_sum`."""
MAX_COMPARED_FLOP = 2e10
"""The most floating-point operations of a convolution for which every value is compared, in some
seconds of a core. Larger convolutions are compared by rows (Freivalds)."""
_VECTOR_MAX = 1 << 20
"""Keeps numbers at most 2^53, with sums of at most 2^14 and rows of up to 2^19 values."""


class Convolution:
    """A convolution of images with kernels; the result is as large as the images."""

    def __init__(self, images: torch.Tensor, kernels: torch.Tensor) -> None:
        self.images = images
        self.kernels = kernels
        self.result = images

    @property
    def flop(self) -> float:
        """Floating-point operations of one convolution, including the padding."""
        batch, channels, height, width = self.images.shape
        return 2.0 * batch * channels * height * width * self.kernels[:, 0].numel()

    @property
    def terms(self) -> int:
        """Products in the sum of one value."""
        return self.kernels[0].numel()

    def convolve(self) -> None:
        """Compute the result, and wait until it is complete."""
        self.result = functional.conv2d(self.images, self.kernels, padding="same")
        synchronize_stream(self.images.device)

    def convolve_and_corrupt(self) -> None:
        """Compute the result and change one value of it, by at least 1."""
        self.convolve()
        value = self.result[-1, -1, -1, -1]
        value.copy_(torch.where(value.abs() < 2, value + 4, torch.zeros_like(value)))


def run(context: Context, *, max_compared_flop: float = MAX_COMPARED_FLOP) -> None:
    """Run the case."""
    # torch warns that it copies the images to pad them for an even kernel. A user's convolution
    # makes this copy too, so it is part of the measured time.
    warnings.filterwarnings("ignore", message="Using padding='same' with even kernel")
    with (
        torch.no_grad(),
        autotune_convolutions(tf32=context.read_params(ConvParams).dtype == "tf32"),
    ):
        _run(context, max_compared_flop)


def _run(context: Context, max_compared_flop: float) -> None:
    convolution = _make_convolution(context)
    compares_rows = convolution.flop > max_compared_flop
    planted = context.planted("corrupt-result")
    body = convolution.convolve_and_corrupt if planted else convolution.convolve
    if compares_rows and context.world.rank == 0:
        _report_row_checks(context, convolution, max_compared_flop)
    before = _check(context, body, convolution, "before", compares_rows=compares_rows)
    fill_uniform(context, "conv", (convolution.images, convolution.kernels))
    times_ms = measure(context, body)
    after = _check(context, body, convolution, "after", compares_rows=compares_rows)
    error, detail = before if before[1] else after
    context.check("convolution", error, TOLERANCE, detail)
    gflop = convolution.flop / 1e9
    report_rate_and_limit(
        context,
        convolution.convolve,
        times_ms,
        rate="gflops",
        work_per_iteration=gflop,
    )


def _make_convolution(context: Context) -> Convolution:
    params = context.read_params(ConvParams)
    height, width = params.image_size
    channels = params.in_channels
    kernel = params.kernel
    dtype = torch_dtype(params.dtype)
    device = choose_device(context, tf32=params.dtype == "tf32")
    images_shape = (params.batch_size, channels, height, width)
    kernels_shape = (params.out_channels, channels, kernel, kernel)
    return Convolution(
        torch.zeros(images_shape, dtype=dtype, device=device),
        torch.zeros(kernels_shape, dtype=dtype, device=device),
    )


def _check(
    context: Context,
    body: Callable[[], object],
    convolution: Convolution,
    phase: str,
    *,
    compares_rows: bool,
) -> tuple[float, str]:
    """Convolve fresh images; return the largest error and a wrong value's position."""
    context.progress("check", 0, 1)
    rank = context.world.rank
    seeds = [context.seed_for("conv", rank, phase, part) for part in range(4)]
    images, kernels = draw_factors(
        convolution, seeds, tf32=context.read_params(ConvParams).dtype == "tf32"
    )
    convolution.images.copy_(images)
    convolution.kernels.copy_(kernels)
    body()
    actual = convolution.result.cpu()
    if compares_rows:
        return compare_rows(actual, images, kernels, seeds[2])
    return compare_values(actual, compute_reference(images, kernels))


def _report_row_checks(
    context: Context, convolution: Convolution, max_compared_flop: float
) -> None:
    context.choice(
        "checked",
        "every row",
        f"{convolution.flop:.2g} operations, more than {max_compared_flop:.0e}; rows are "
        "multiplied by a random vector",
    )


def draw_factors(
    convolution: Convolution, seeds: Sequence[int], *, tf32: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return float64 images and kernels of whole numbers that are convolved exactly.

    If the sums leave enough range, each window of the images has a number that TF32 would round,
    so that TF32 changes the result.

    Args:
        convolution: The convolution, for its shapes and format.
        seeds: The seeds of the images, of the kernels, and last of the numbers that TF32 rounds.
        tf32: Whether the device multiplies in TF32, which must then represent all numbers.
    """
    kernel_size = convolution.kernels.shape[-1]
    images = convolution.images
    max_exact_sum = compute_largest_convolved_sum(
        images.dtype, (kernel_size, kernel_size), gpu=is_gpu(images.device), tf32=tf32
    )
    has_wide_values = shows_tf32(max_exact_sum)
    distribution = choose_distribution(convolution.terms, max_exact_sum, wide=has_wide_values)
    pixels = draw_whole_numbers(tuple(images.shape), distribution, seeds[0])
    kernels = draw_whole_numbers(tuple(convolution.kernels.shape), distribution, seeds[1])
    if has_wide_values:
        insert_wide(pixels[:, :, ::kernel_size, ::kernel_size], 1, seeds[-1])
    return pixels, kernels


def compute_reference(images: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
    """Return the convolution as a sum of shifted images per tap, in float64.

    Args:
        images: ``batch x in_channels x height x width``, float64.
        kernels: ``out_channels x in_channels x k x k``, float64.

    Returns:
        ``batch x out_channels x height x width``; an even kernel extends one pixel further to the
        bottom and to the right.
    """
    batch, channels, height, width = images.shape
    kernel_size = kernels.shape[-1]
    padding = (kernel_size - 1) // 2
    padded = torch.zeros(
        (batch, channels, height + kernel_size - 1, width + kernel_size - 1)
    ).double()
    padded[:, :, padding : padding + height, padding : padding + width] = images
    total = torch.zeros((batch, kernels.shape[0], height, width)).double()
    for row in range(kernel_size):
        for col in range(kernel_size):
            shifted = padded[:, :, row : row + height, col : col + width]
            total += torch.einsum("bchw,oc->bohw", shifted, kernels[:, :, row, col])
    return total


def compare_values(actual: torch.Tensor, expected: torch.Tensor) -> tuple[float, str]:
    """Compare every value; return the largest error and the first wrong position."""
    errors = (actual.double() - expected).abs()
    # The negation also finds NaN.
    is_wrong = ~(errors <= TOLERANCE)
    max_error = float(errors.max())
    if not bool(is_wrong.any()):
        return max_error, ""
    image, channel, row, col = (int(index) for index in is_wrong.nonzero()[0])
    return max_error, (
        f"row {row}, col {col} (image {image}, channel {channel}) is "
        f"{float(actual[image, channel, row, col]):g}, "
        f"not {float(expected[image, channel, row, col]):g}"
    )


def compare_rows(
    actual: torch.Tensor, images: torch.Tensor, kernels: torch.Tensor, seed: int
) -> tuple[float, str]:
    """Compare each row of the result, multiplied by a random vector (Freivalds).

    A row of the result is a sum of products of kernels and rows of the images, so the images' rows
    can be multiplied by the vector first. The vector has whole numbers from 1 to `_VECTOR_MAX`, and
    float64 adds these products without rounding. One wrong value of a row is always found; several
    are missed only if their errors cancel. Each value must also be near a whole number.

    Args:
        actual: ``batch x out_channels x height x width``, on the CPU.
        images: Like those of `compute_reference`.
        kernels: Like those of `compute_reference`.
        seed: The seed of the vector.
    """
    generator = torch.Generator().manual_seed(seed)
    vector = torch.randint(1, _VECTOR_MAX + 1, (actual.shape[3],), generator=generator).double()
    for index, (result, image) in enumerate(zip(actual, images, strict=True)):
        rounded = result.double().round_()
        distances = (result - rounded).abs()
        is_wrong = ~(distances <= TOLERANCE)
        if bool(is_wrong.any()):
            channel, row, col = (int(position) for position in is_wrong.nonzero()[0])
            value = float(result[channel, row, col])
            return float(distances.max()), (
                f"row {row}, col {col} (image {index}, channel {channel}) is {value:g}, "
                "no whole number"
            )
        errors = (rounded @ vector - _multiply_rows(image, kernels, vector)).abs()
        if bool((errors != 0.0).any()):
            channel, row = (int(position) for position in (errors != 0.0).nonzero()[0])
            return float(errors.max()), (
                f"row {row} (image {index}, channel {channel}) is wrong (times a random vector)"
            )
    return 0.0, ""


def _multiply_rows(
    image: torch.Tensor, kernels: torch.Tensor, vector: torch.Tensor
) -> torch.Tensor:
    """Return the rows of a convolution times a vector, ``out_channels x height``."""
    channels, height, width = image.shape
    kernel_size = kernels.shape[-1]
    padding = (kernel_size - 1) // 2
    row_products = torch.zeros(
        (channels, kernel_size, height + kernel_size - 1), dtype=torch.float64
    )
    for tap in range(kernel_size):
        # For column 0 of the result, the tap reads column `first` of the image.
        shift = tap - padding
        inside = slice(max(0, shift), max(0, min(width, width + shift)))
        part = image[:, :, inside]
        start = max(0, -shift)
        row_products[:, tap, padding : padding + height] = (
            part @ vector[start : start + part.shape[2]]
        )
    total = torch.zeros((kernels.shape[0], height), dtype=torch.float64)
    for tap in range(kernel_size):
        total += torch.einsum(
            "cjh,ocj->oh", row_products[:, :, tap : tap + height], kernels[:, :, tap]
        )
    return total
