"""Estimates of the work of a case, from its parameters and its number of ranks.

Before a run they distinguish seconds from hours, and show whether a case needs more memory than a
machine has. Times are right within a factor of about 5. Memory is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from spbench_core.catalog.parameters import Params
from spbench_core.catalog.typed_params import ParamsT, read_params

_ITEM_BYTES = {"fp64": 8, "int64": 8, "fp16": 2, "bf16": 2}
"""Bytes of a number by its format; other formats have 4."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one repeat of a case: timed iterations, warm-up, checks and set-up.

    Attributes:
        flops: Floating-point operations of all ranks together.
        single_flops: Floating-point operations that one rank does while the others wait.
        bytes: Bytes that all ranks together copy or send.
        messages: Successive messages or barriers, on the rank with the most.
        calls: Calls of torch operators on all ranks together.
        seconds: Time that does not depend on the machine, such as waiting.
        memory: Bytes that the data of all ranks together needs at least.
    """

    flops: float = 0.0
    single_flops: float = 0.0
    bytes: float = 0.0
    messages: float = 0.0
    calls: float = 0.0
    seconds: float = 0.0
    memory: float = 0.0


WorkEstimate = Callable[[Params, int], "Work | None"]
"""Returns the work for complete parameters and a number of ranks; None if it is unknown."""


class TimedLoop(Protocol):
    """Parameters of a timed loop."""

    @property
    def warmup(self) -> int: ...
    @property
    def iterations(self) -> int: ...


class ImageParams(Protocol):
    """Parameters of images."""

    @property
    def image_size(self) -> tuple[int, int]: ...
    @property
    def batch_size(self) -> int: ...


def make_estimate(
    cls: type[ParamsT], estimate: Callable[[ParamsT, int], Work | None]
) -> WorkEstimate:
    """Return the estimate of an entry, which reads its parameters as a dataclass.

    Args:
        cls: The dataclass of the parameters.
        estimate: Returns the work for an instance of it and a number of ranks.
    """
    return partial(_estimate_work, cls, estimate)


def _estimate_work(
    cls: type[ParamsT], estimate: Callable[[ParamsT, int], Work | None], params: Params, np: int
) -> Work | None:
    return estimate(read_params(cls, params), np)


def item_bytes(dtype: str) -> int:
    """Return the bytes of a number of a format."""
    return _ITEM_BYTES.get(dtype, 4)


def count_iterations(params: TimedLoop) -> int:
    """Return the number of iterations of a case, including its warm-up."""
    return params.iterations + params.warmup


def count_image_values(params: ImageParams, channels: int) -> float:
    """Return the number of values in the images of a case, given their channels."""
    height, width = params.image_size
    return float(height * width * channels * params.batch_size)


# Plug-ins made for API version 1 use these names.
estimate_from = make_estimate
loops = count_iterations
image_values = count_image_values
