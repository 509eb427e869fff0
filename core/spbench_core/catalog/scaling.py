"""A case at other numbers of ranks: strong scaling keeps its work, weak scaling a rank's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from spbench_core.catalog.benchmark import ParamError
from spbench_core.catalog.parameters import Params

if TYPE_CHECKING:
    from collections.abc import Callable

    ParamScaler = Callable[[Params, Params, "ScalingTarget"], Params]
    """From the parameters that a case is given, and all of them, to those at other ranks."""

ScalingMode = Literal["strong", "weak"]
"""The work that stays the same over all numbers of ranks: the whole, or that of a rank."""


class ScalingTarget(NamedTuple):
    """The number of ranks to go over to, and how.

    Attributes:
        written: The ranks of the case as the suite has it; None where nothing says.
        by: The parameter that follows the ranks; None leaves it to the benchmark.
    """

    ranks: int
    base_ranks: int | None
    work: ScalingMode
    param: str | None = None


class ScalingError(ParamError):
    """The error of a case that does not go over to a number of ranks."""

    def __init__(self, message: str) -> None:
        super().__init__(None, message)


def scale_work_per_rank(given: Params, _: Params, to: ScalingTarget) -> Params:
    """Return the parameters as they are: each rank has work of its own, whatever their number.

    Raises:
        ScalingError: The work of all is to stay the same, or a parameter to follow the ranks.
    """
    if to.work == "strong":
        raise ScalingError("each rank has work of its own: there is weak scaling alone")
    choose_scaled_param(to, ())
    return given


def scale_unchanged(given: Params, _: Params, to: ScalingTarget) -> Params:
    """Return the parameters as they are: what is run shares its work out by itself.

    Raises:
        ScalingError: A parameter is to follow the ranks.
    """
    choose_scaled_param(to, ())
    return given


def choose_scaled_param(to: ScalingTarget, names: tuple[str, ...]) -> str:
    """Return the parameter that follows the ranks, the first of ``names`` unless another is asked.

    Raises:
        ScalingError: What is asked for is none of them.
    """
    if to.param is None or to.param in names:
        return to.param or (names[0] if names else "")
    follows = f"{', '.join(names)} can" if names else "no parameter does"
    raise ScalingError(f"{to.param} does not follow the number of ranks: {follows}")


def scale_exactly(name: str, value: int, times: int, over: int) -> int:
    """Return ``value * times / over``.

    Raises:
        ScalingError: It is no whole number.
    """
    if value * times % over:
        raise ScalingError(f"{name} would be {value * times / over:g}, which is no whole number")
    return value * times // over


def scale_with_ranks(name: str, value: int, to: ScalingTarget) -> int:
    """Return a quantity of the whole work that stays the same for a rank.

    Raises:
        ScalingError: It is no whole number, or nothing says of how many ranks the case is.
    """
    if to.base_ranks is None:
        raise ScalingError("np of the case is not known: write how many ranks its work is for")
    return scale_exactly(name, value, to.ranks, to.base_ranks)
