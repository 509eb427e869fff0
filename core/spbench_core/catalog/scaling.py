"""Scaling of a case: strong keeps the total work, weak the work per rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from spbench_core.catalog.benchmark import Benchmark, ParamError
from spbench_core.catalog.parameters import Params
from spbench_core.events.run_events import ScalingMode
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    ParamScaler = Callable[[Params, Params, "ScalingTarget"], Params]
    """Returns the parameters for a target, from those that a case sets and all of them."""


class ScalingTarget(NamedTuple):
    """The number of ranks to scale to, and the kind of scaling.

    Attributes:
        ranks: The number of ranks.
        base_ranks: The number of ranks of the case in the suite; None if it is unknown.
        work: The work that stays the same.
        param: The parameter that follows the ranks; None: the benchmark chooses it.
    """

    ranks: int
    base_ranks: int | None
    work: ScalingMode
    param: str | None = None

    # Plug-ins made for API version 1 use these names.
    @property
    def written(self) -> int | None:
        """The value of `base_ranks`."""
        return self.base_ranks

    @property
    def by(self) -> str | None:
        """The value of `param`."""
        return self.param


class ScalingError(ParamError):
    """A case that cannot be scaled to a number of ranks."""

    def __init__(self, message: str) -> None:
        super().__init__("scale", message)


def keep_params_weak_only(values: Params, _: Params, target: ScalingTarget) -> Params:
    """Return the parameters unchanged, for benchmarks with fixed work per rank.

    Raises:
        ScalingError: Scaling is strong, or the target names a parameter.
    """
    if target.work == "strong":
        raise ScalingError("each rank has work of its own: there is weak scaling alone")
    choose_scaled_param(target, ())
    return values


def keep_params(values: Params, _: Params, target: ScalingTarget) -> Params:
    """Return the parameters unchanged, for programs that divide their work themselves.

    Raises:
        ScalingError: The target names a parameter.
    """
    choose_scaled_param(target, ())
    return values


def choose_scaled_param(target: ScalingTarget, names: tuple[str, ...]) -> str:
    """Return the parameter that follows the ranks, by default the first name.

    Raises:
        ScalingError: The target's parameter is not one of ``names``.
    """
    if target.param is None or target.param in names:
        return target.param or (names[0] if names else "")
    hint = f"{', '.join(names)} can" if names else "no parameter does"
    raise ScalingError(f"{target.param} does not follow the number of ranks: {hint}")


def scale_exactly(name: str, value: int, factor: int, divisor: int) -> int:
    """Return ``value * factor / divisor``.

    Raises:
        ScalingError: The result is not a whole number.
    """
    if value * factor % divisor:
        scaled = value * factor / divisor
        raise ScalingError(f"{name} would be {scaled:g}, which is no whole number")
    return value * factor // divisor


def scale_with_ranks(name: str, value: int, target: ScalingTarget) -> int:
    """Return a quantity of the whole work, scaled so that it stays the same per rank.

    Raises:
        ScalingError: The result is not a whole number, or the case's number of ranks is unknown.
    """
    if target.base_ranks is None:
        raise ScalingError("np of the case is not known: write how many ranks its work is for")
    return scale_exactly(name, value, target.ranks, target.base_ranks)


@dataclass(frozen=True, slots=True)
class RankScaling:
    """The numbers of ranks of a suite entry; the parameter ``param`` scales with them."""

    rank_counts: Sequence[int]
    mode: ScalingMode
    param: str | None = None


class ScaledCase(NamedTuple):
    """A case on a number of ranks.

    Attributes:
        rank_count: The number of ranks.
        swept: The parameters that the benchmark sweeps.
        params: All parameters.
    """

    rank_count: int
    swept: Params
    params: Params


def scale_cases(
    benchmark: Benchmark, values: Params, np: int | None, scaling: RankScaling
) -> Iterator[ScaledCase]:
    """Yield the cases on each number of ranks.

    Args:
        benchmark: The benchmark.
        values: The parameters of the case in the suite.
        np: Its number of ranks, if the benchmark does not determine it.
        scaling: The numbers of ranks, and the kind of scaling.

    Raises:
        ExceptionGroup: of ParamError, if the case cannot be scaled to one of the numbers.
    """
    base_params = benchmark.complete(values)
    base_ranks = benchmark.ranks(base_params).exact or np
    errors: list[Exception] = []
    for rank_count in scaling.rank_counts:
        target = ScalingTarget(rank_count, base_ranks, scaling.mode, scaling.param)
        try:
            scaled_values = _scale_params(benchmark, values, base_params, target)
            for swept, params in benchmark.list_cases(scaled_values):
                yield ScaledCase(rank_count, swept, params)
        except ParamError as error:
            errors.append(error)
        except ExceptionGroup as group:
            errors += [_add_ranks(rank_count, error) for error in group.exceptions]
    if errors:
        error_by_message = {str(error): error for error in errors}
        raise ExceptionGroup(f"ranks of {benchmark.name}", list(error_by_message.values()))


def _scale_params(
    benchmark: Benchmark, values: Params, params: Params, target: ScalingTarget
) -> Params:
    if benchmark.scaled is None:
        raise ScalingError(f"{benchmark.name} does not go over to other numbers of ranks")
    try:
        return benchmark.scaled(values, params, target)
    except ScalingError as error:
        raise ScalingError(f"scale: {error}") from None


def _add_ranks(rank_count: int, error: Exception) -> Exception:
    """Return an error with the number of ranks in its message."""
    param = getattr(error, "param", None)
    return ParamError(param, f"on {format_quantity(rank_count, 'rank')}: {error}")


# Plug-ins made for API version 1 use these names.
Work = ScalingMode
AtRanks = ScalingTarget
own_work = keep_params_weak_only
any_work = keep_params
follow = choose_scaled_param
whole = scale_exactly
of_rank = scale_with_ranks
