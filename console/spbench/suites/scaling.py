"""The key ``scale:`` of a case entry: its case on several numbers of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spbench_core.catalog.benchmark import Benchmark, ParamError
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.scaling import ScalingError, ScalingMode, ScalingTarget
from spbench_core.number_text import format_quantity


@dataclass(frozen=True, slots=True)
class RankCounts:
    """The numbers of ranks that an entry's cases run on; ``by`` is the parameter to follow them."""

    np: Sequence[int]
    work: ScalingMode
    by: str | None = None


def scale_cases(
    benchmark: Benchmark, given: Params, np: int | None, counts: RankCounts
) -> Iterator[tuple[int, Params, Params]]:
    """Yield the cases on each number of ranks: that number, what differs, and all parameters.

    Args:
        benchmark: The benchmark.
        given: The parameters of the case as the suite has it.
        np: Its ranks, where the benchmark cannot tell.
        counts: The numbers of ranks.

    Raises:
        ExceptionGroup: of ParamError, where the case does not go over to one of them.
    """
    params = benchmark.complete(given)
    written = benchmark.ranks(params).exact or np
    errors: list[Exception] = []
    for count in counts.np:
        to = ScalingTarget(count, written, counts.work, counts.by)
        try:
            for differs, complete in benchmark.list_cases(_scaled(benchmark, given, params, to)):
                yield count, differs, complete
        except ParamError as error:
            errors.append(error)
        except ExceptionGroup as group:
            errors += [_at(count, error) for error in group.exceptions]
    if errors:
        raise ExceptionGroup(f"ranks of {benchmark.name}", _each_once(errors))


def _scaled(benchmark: Benchmark, given: Params, params: Params, to: ScalingTarget) -> Params:
    if benchmark.scaled is None:
        raise ScalingError(f"{benchmark.name} does not go over to other numbers of ranks")
    try:
        return benchmark.scaled(given, params, to)
    except ScalingError as error:
        raise ScalingError(f"scale: {error}") from None


def _at(count: int, error: Exception) -> Exception:
    return ParamError(
        getattr(error, "param", None), f"on {format_quantity(count, 'rank')}: {error}"
    )


def _each_once(errors: list[Exception]) -> list[Exception]:
    return list({str(error): error for error in errors}.values())
