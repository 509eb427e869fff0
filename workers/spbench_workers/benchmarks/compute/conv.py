"""The benchmark ``compute.conv``: how fast each rank convolves images."""

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
    choose_spread,
    fill_uniform,
    insert_wide,
    largest_convolved,
    shows_tf32,
    whole_numbers,
)
from spbench_workers.single_rank_baseline import report_rate_and_limit
from spbench_workers.timing import measure

TOLERANCE = 0.25
"""The exact results are whole numbers, so that a wrong one is at least 1 away. Fast algorithms
(Winograd) multiply by fractions and round a little, below this: see `largest_convolved`."""
MAX_COMPARED_FLOP = 2e10
"""The most floating-point operations of a convolution whose every value is compared with an
independent one, in some seconds of a core. Above it rows are compared (Freivalds)."""
_VECTOR_MAX = 1 << 20
"""With sums of at most 2^14 and rows of up to 2^19 values, no number is above 2^53."""


class Convolution:
    """A convolution: images, kernels and the result, of as many rows and columns as the images."""

    def __init__(self, images: torch.Tensor, kernels: torch.Tensor) -> None:
        self.images = images
        self.kernels = kernels
        self.result = images

    @property
    def flop(self) -> float:
        """Floating-point operations of one convolution, the padding's among them."""
        batch, channels, height, width = self.images.shape
        return 2.0 * batch * channels * height * width * self.kernels[:, 0].numel()

    @property
    def terms(self) -> int:
        """Products that are added up for one value."""
        return self.kernels[0].numel()

    def convolve(self) -> None:
        """Compute the result, all of it, before returning."""
        self.result = functional.conv2d(self.images, self.kernels, padding="same")
        synchronize_stream(self.images.device)

    def convolve_and_corrupt(self) -> None:
        """Compute the result and change one value of it, by at least 1."""
        self.convolve()
        value = self.result[-1, -1, -1, -1]
        value.copy_(torch.where(value.abs() < 2, value + 4, torch.zeros_like(value)))


def run(context: Context) -> None:
    """Run the case."""
    # Even kernels pad one side more, for which torch copies the images, and says so.
    warnings.filterwarnings("ignore", message="Using padding='same' with even kernel")
    with (
        torch.no_grad(),
        autotune_convolutions(tf32=context.read_params(ConvParams).dtype == "tf32"),
    ):
        _run(context)


def _run(context: Context) -> None:
    convolution = _make(context)
    planted = context.planted("corrupt-result")
    body = convolution.convolve_and_corrupt if planted else convolution.convolve
    _give_choice(context, convolution)
    before = _check(context, body, convolution, "before")
    fill_uniform(context, "conv", (convolution.images, convolution.kernels))
    times = measure(context, body)
    after = _check(context, body, convolution, "after")
    error, detail = before if before[1] else after
    context.check("convolution", error, TOLERANCE, detail)
    amount = convolution.flop / 1e9
    report_rate_and_limit(context, convolution.convolve, times, rate="gflops", amount=amount)


def _make(context: Context) -> Convolution:
    params = context.read_params(ConvParams)
    height, width = params.image_size
    channels = params.in_channels
    kernel = params.kernel
    dtype = torch_dtype(params.dtype)
    place = choose_device(context, tf32=params.dtype == "tf32")
    images = (params.batch_size, channels, height, width)
    kernels = (params.out_channels, channels, kernel, kernel)
    return Convolution(
        torch.zeros(images, dtype=dtype, device=place),
        torch.zeros(kernels, dtype=dtype, device=place),
    )


def _check(
    context: Context, body: Callable[[], object], convolution: Convolution, when: str
) -> tuple[float, str]:
    """Convolve fresh images; return the largest error and, above the tolerance, its place."""
    context.progress("check", 0, 1)
    rank = context.world.rank
    seeds = [context.seed_for("conv", rank, when, part) for part in range(4)]
    images, kernels = draw_factors(
        convolution, seeds, tf32=context.read_params(ConvParams).dtype == "tf32"
    )
    convolution.images.copy_(images)
    convolution.kernels.copy_(kernels)
    body()
    got = convolution.result.cpu()
    if convolution.flop > MAX_COMPARED_FLOP:
        return compare_rows(got, images, kernels, seeds[2])
    return compare_values(got, compute_reference(images, kernels))


def _give_choice(context: Context, convolution: Convolution) -> None:
    """Record that rows are checked, where not every value is compared."""
    if context.world.rank == 0 and convolution.flop > MAX_COMPARED_FLOP:
        context.choice(
            "checked",
            "every row",
            f"{convolution.flop:.2g} operations, more than {MAX_COMPARED_FLOP:.0e}; rows are "
            "multiplied by a random vector",
        )


def draw_factors(
    convolution: Convolution, seeds: Sequence[int], *, tf32: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images and kernels of whole numbers, in float64, convolved exactly in their format.

    Where the sums have room for it, each window of the images has a number that TF32 would round,
    which would change the result.

    Args:
        convolution: The convolution, for its shapes and format.
        seeds: The seeds of the images, of the kernels, and last of those numbers.
        tf32: Whether they are multiplied as TF32, which must then represent them all.
    """
    size = convolution.kernels.shape[-1]
    images = convolution.images
    limit = largest_convolved(images.dtype, (size, size), gpu=is_gpu(images.device), tf32=tf32)
    wide = shows_tf32(limit)
    spread = choose_spread(convolution.terms, limit, wide=wide)
    pixels = whole_numbers(tuple(images.shape), spread, seeds[0])
    kernels = whole_numbers(tuple(convolution.kernels.shape), spread, seeds[1])
    if wide:
        insert_wide(pixels[:, :, ::size, ::size], 1, seeds[-1])
    return pixels, kernels


def compute_reference(images: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
    """Return the convolution as a sum of shifted images, tap by tap, in float64.

    Args:
        images: ``batch x in_channels x height x width``, float64.
        kernels: ``out_channels x in_channels x k x k``, float64.

    Returns:
        ``batch x out_channels x height x width``; an even kernel reaches one pixel further to the
        bottom and the right.
    """
    batch, channels, height, width = images.shape
    size = kernels.shape[-1]
    low = (size - 1) // 2
    padded = torch.zeros((batch, channels, height + size - 1, width + size - 1)).double()
    padded[:, :, low : low + height, low : low + width] = images
    total = torch.zeros((batch, kernels.shape[0], height, width)).double()
    for row in range(size):
        for col in range(size):
            shifted = padded[:, :, row : row + height, col : col + width]
            total += torch.einsum("bchw,oc->bohw", shifted, kernels[:, :, row, col])
    return total


def compare_values(got: torch.Tensor, expected: torch.Tensor) -> tuple[float, str]:
    """Compare every value; return the largest error and, above the tolerance, the first place."""
    error = (got.double() - expected).abs()
    # A NaN is not within the tolerance either.
    wrong = ~(error <= TOLERANCE)
    largest = float(error.max())
    if not bool(wrong.any()):
        return largest, ""
    image, channel, row, col = (int(index) for index in wrong.nonzero()[0])
    return largest, (
        f"row {row}, col {col} (image {image}, channel {channel}) is "
        f"{float(got[image, channel, row, col]):g}, "
        f"not {float(expected[image, channel, row, col]):g}"
    )


def compare_rows(
    got: torch.Tensor, images: torch.Tensor, kernels: torch.Tensor, seed: int
) -> tuple[float, str]:
    """Compare each row of the result, times a random vector, with the expected product (Freivalds).

    A row of the result is a sum of products of kernels and rows of the images, so that the images'
    rows can be multiplied by the vector first. The vector has whole numbers from 1 to
    `_VECTOR_MAX`, and float64 adds all this up without rounding: one wrong value of a row is
    always found, several are missed only where their errors cancel. Besides, each value must be
    near a whole number.

    Args:
        got: ``batch x out_channels x height x width``, on the CPU.
        images: As for `reference`.
        kernels: As for `reference`.
        seed: The seed of the vector.
    """
    generator = torch.Generator().manual_seed(seed)
    vector = torch.randint(1, _VECTOR_MAX + 1, (got.shape[3],), generator=generator).double()
    for index, (result, image) in enumerate(zip(got, images, strict=True)):
        whole = result.double().round_()
        off = (result - whole).abs()
        wrong = ~(off <= TOLERANCE)
        if bool(wrong.any()):
            channel, row, col = (int(place) for place in wrong.nonzero()[0])
            value = float(result[channel, row, col])
            return float(off.max()), (
                f"row {row}, col {col} (image {index}, channel {channel}) is {value:g}, "
                "no whole number"
            )
        error = (whole @ vector - _rows_times(image, kernels, vector)).abs()
        if bool((error != 0.0).any()):
            channel, row = (int(place) for place in (error != 0.0).nonzero()[0])
            return float(error.max()), (
                f"row {row} (image {index}, channel {channel}) is wrong (times a random vector)"
            )
    return 0.0, ""


def _rows_times(image: torch.Tensor, kernels: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Return the rows of an image's convolution times a vector, ``out_channels x height``."""
    channels, height, width = image.shape
    size = kernels.shape[-1]
    low = (size - 1) // 2
    rows = torch.zeros((channels, size, height + size - 1), dtype=torch.float64)
    for tap in range(size):
        # The tap reads column `first` of the image for column 0 of the result.
        first = tap - low
        inside = slice(max(0, first), max(0, min(width, width + first)))
        part = image[:, :, inside]
        start = max(0, -first)
        rows[:, tap, low : low + height] = part @ vector[start : start + part.shape[2]]
    total = torch.zeros((kernels.shape[0], height), dtype=torch.float64)
    for tap in range(size):
        total += torch.einsum("cjh,ocj->oh", rows[:, :, tap : tap + height], kernels[:, :, tap])
    return total
