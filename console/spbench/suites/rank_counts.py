"""The cases of an entry with ``scale:``, one or more on each number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spbench_core.catalog.benchmark import Benchmark, ParamError
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.scaling import ScalingError, ScalingMode, ScalingTarget
from spbench_core.number_text import format_quantity


@dataclass(frozen=True, slots=True)
class RankCounts:
    """The numbers of ranks of an entry; the parameter ``param`` scales with them."""

    np: Sequence[int]
    work: ScalingMode
    param: str | None = None


def scale_cases(
    benchmark: Benchmark, values: Params, np: int | None, counts: RankCounts
) -> Iterator[tuple[int, Params, Params]]:
    """Yield the cases on each number of ranks.

    Each has the number of ranks, the parameters that the benchmark sweeps, and all parameters.

    Args:
        benchmark: The benchmark.
        values: The parameters of the case in the suite.
        np: Its number of ranks, if the benchmark does not determine it.
        counts: The numbers of ranks.

    Raises:
        ExceptionGroup: of ParamError, if the case cannot be scaled to one of the numbers.
    """
    params = benchmark.complete(values)
    base_ranks = benchmark.ranks(params).exact or np
    errors: list[Exception] = []
    for count in counts.np:
        target = ScalingTarget(count, base_ranks, counts.work, counts.param)
        try:
            scaled = _scale_params(benchmark, values, params, target)
            for swept, complete in benchmark.list_cases(scaled):
                yield count, swept, complete
        except ParamError as error:
            errors.append(error)
        except ExceptionGroup as group:
            errors += [_add_ranks(count, error) for error in group.exceptions]
    if errors:
        unique = list({str(error): error for error in errors}.values())
        raise ExceptionGroup(f"ranks of {benchmark.name}", unique)


def _scale_params(
    benchmark: Benchmark, values: Params, params: Params, target: ScalingTarget
) -> Params:
    if benchmark.scaled is None:
        raise ScalingError(f"{benchmark.name} does not go over to other numbers of ranks")
    try:
        return benchmark.scaled(values, params, target)
    except ScalingError as error:
        raise ScalingError(f"scale: {error}") from None


def _add_ranks(count: int, error: Exception) -> Exception:
    """Return an error with the number of ranks in its message."""
    param = getattr(error, "param", None)
    return ParamError(param, f"on {format_quantity(count, 'rank')}: {error}")
