"""Calls of checked operators, the protocol of checks, and a step's errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch

from spbench_parallel.verify.worst_error import WorstError


@dataclass(frozen=True, slots=True)
class ReferenceMoments:
    """Mean, variance and number of values per channel, over all ranks."""

    mean: torch.Tensor
    variance: torch.Tensor
    count: float


@dataclass(slots=True)
class OperatorCall:
    """One call of an operator: its input, its output, and the gradients of both.

    Attributes:
        pixels: The input, this rank's tile.
        output: The output.
        output_gradient: The gradient of the output; None in inference.
        input_gradient: The gradient of the input through this operator only; None in inference.
        parameter_gradients: Gradients of the parameters, summed over the tiles, by name.
        moments: In batch normalisation, the moments of the input, once they are known.
    """

    pixels: torch.Tensor
    output: torch.Tensor
    output_gradient: torch.Tensor | None = None
    input_gradient: torch.Tensor | None = None
    parameter_gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    moments: ReferenceMoments | None = None

    def release(self) -> None:
        """Release all tensors, because hooks keep the call until the whole step has ended."""
        self.pixels = self.output = torch.empty(0)
        self.output_gradient = self.input_gradient = None
        self.parameter_gradients = {}


class OperatorCheck(Protocol):
    """The check of an operator."""

    def check(self, call: OperatorCall) -> None:
        """Compute a call again, and compare.

        All ranks that share it must call this together.
        """


def new_worst_ratio() -> WorstError:
    """Return an accumulator of errors relative to their bounds."""
    return WorstError.with_tolerance(1.0)


@dataclass(frozen=True, slots=True)
class OperatorErrors:
    """The worst errors of operators, each relative to its bound.

    Attributes:
        worst_element: The worst error of a pixel, or of the gradient of a parameter.
        worst_scale: The worst error of the scale of a whole tensor.
    """

    worst_element: WorstError = field(default_factory=new_worst_ratio)
    worst_scale: WorstError = field(default_factory=new_worst_ratio)


@dataclass(frozen=True, slots=True)
class StepErrors:
    """The worst errors of a step, each relative to its bound.

    Attributes:
        operators: Those of operators.
        stage_boundaries: That of values between stages, which must be equal.
        gradient_sums: That of gradients, which are sums over micro-batches and ranks.
        weight_updates: That of weights after the step.
    """

    operators: OperatorErrors = field(default_factory=OperatorErrors)
    stage_boundaries: WorstError = field(default_factory=lambda: WorstError.with_tolerance(0.0))
    gradient_sums: WorstError = field(default_factory=new_worst_ratio)
    weight_updates: WorstError = field(default_factory=new_worst_ratio)

    def to_dict(self) -> dict[str, WorstError]:
        """Return the errors by the names of their checks."""
        return {
            "operators": self.operators.worst_element,
            "scales": self.operators.worst_scale,
            "joints": self.stage_boundaries,
            "sums": self.gradient_sums,
            "updates": self.weight_updates,
        }
