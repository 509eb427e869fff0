"""Estimates of the work of a case, from its parameters and its number of ranks.

They serve to tell seconds from hours before a run, and to see that a case needs more memory than a
machine has. Times are right within a factor of about 5. Memory is what the ranks need at least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spbench_core.catalog.parameters import Params
from spbench_core.layout.tiles import parse_pair

_ITEM_BYTES = {"fp64": 8, "int64": 8, "fp16": 2, "bf16": 2}
"""Bytes of a number by its format; 4 for the others."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one repeat of a case: timed iterations, warm-up, checks and set-up.

    Attributes:
        flops: Floating-point operations of all ranks together.
        single_flops: The same of work that one rank does while the others wait.
        bytes: Bytes that all ranks together copy or send.
        messages: Messages or barriers one after another, on the rank with the most.
        calls: Calls of torch's operators on all ranks together.
        seconds: Time that does not depend on the machine, or waiting.
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
"""From complete parameters and the number of ranks to the work; None if it is unknown."""


def item_bytes(params: Params) -> int:
    """Return the bytes of a number of the case's data."""
    return _ITEM_BYTES.get(params.get("dtype") or "fp32", 4)


def loops(params: Params) -> int:
    """Return the iterations of a case, with those of its warm-up."""
    return int(params["iterations"] + params["warmup"])


def image_values(params: Params, channels: str = "in_channels") -> float:
    """Return the numbers of all images of a case, with the channels of that parameter."""
    height, width = parse_pair(params["image_size"])
    return float(height * width * params[channels] * params["batch_size"])
