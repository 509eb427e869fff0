"""The benchmark ``compute.conv``: how fast each rank convolves images."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch.nn import functional

from spbench_workers.alone import give_rate_and_limit
from spbench_workers.compute.whole_numbers import whole_numbers
from spbench_workers.context import Context
from spbench_workers.device.choice import device_of
from spbench_workers.device.formats import TORCH_DTYPES, tuned_convolutions
from spbench_workers.device.streams import synchronize
from spbench_workers.layout import parse_pair
from spbench_workers.timing import measure

TOLERANCE = 0.25
"""The exact results are whole numbers, so that a wrong one is at least 1 away. Fast algorithms
(Winograd) multiply by fractions and round a little, far below this."""


class Convolution:
    """Images, kernels and the result, with as many rows and columns as the images."""

    def __init__(self, images: torch.Tensor, kernels: torch.Tensor) -> None:
        self.images, self.kernels = images, kernels
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
        synchronize(self.images.device)

    def convolve_and_corrupt(self) -> None:
        """Compute the result and change one value of it, by at least 1."""
        self.convolve()
        value = self.result[-1, -1, -1, -1]
        value.copy_(torch.where(value.abs() < 2, value + 4, torch.zeros_like(value)))


def run(context: Context) -> None:
    """Run the case."""
    # Even kernels pad one side more, for which torch copies the images, and says so.
    warnings.filterwarnings("ignore", message="Using padding='same' with even kernel")
    with torch.no_grad(), tuned_convolutions():
        _run(context)


def _run(context: Context) -> None:
    convolution = _make(context)
    planted = context.planted("corrupt-result")
    body = convolution.convolve_and_corrupt if planted else convolution.convolve
    before = _check(context, body, convolution, "before")
    place = convolution.images.device
    for index, tensor in enumerate((convolution.images, convolution.kernels)):
        seed = context.seed_for("conv", context.world.rank, index)
        tensor.uniform_(-1.0, 1.0, generator=torch.Generator(place).manual_seed(seed))
    times = measure(context, body)
    after = _check(context, body, convolution, "after")
    error, detail = before if before[1] else after
    context.check("convolution", error, TOLERANCE, detail)
    amount = convolution.flop / 1e9
    give_rate_and_limit(context, convolution.convolve, times, rate="gflops", amount=amount)


def _make(context: Context) -> Convolution:
    params = context.params
    height, width = parse_pair(params["image_size"])
    channels, kernel = params["in_channels"], params["kernel"]
    dtype = TORCH_DTYPES[params["dtype"]]
    place = device_of(context)
    images = (params["batch_size"], channels, height, width)
    kernels = (params["out_channels"], channels, kernel, kernel)
    return Convolution(
        torch.zeros(images, dtype=dtype, device=place),
        torch.zeros(kernels, dtype=dtype, device=place),
    )


def _check(
    context: Context, body: Callable[[], object], convolution: Convolution, when: str
) -> tuple[float, str]:
    """Convolve fresh images; return the largest error and, if it is too large, where it is."""
    context.progress("check", 0, 1)
    images, kernels = (
        whole_numbers(
            tuple(tensor.shape),
            convolution.terms,
            tensor.dtype,
            context.seed_for("conv", context.world.rank, when, part),
        )
        for part, tensor in enumerate((convolution.images, convolution.kernels))
    )
    convolution.images.copy_(images)
    convolution.kernels.copy_(kernels)
    body()
    return compare(convolution.result.cpu(), reference(images, kernels))


def reference(images: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
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


def compare(got: torch.Tensor, expected: torch.Tensor) -> tuple[float, str]:
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
