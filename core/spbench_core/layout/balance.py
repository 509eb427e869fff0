"""Balance of a pipeline: the layers of each stage, given or by cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf

from spbench_core.layout.tiles import Interval
from spbench_core.number_text import TooManyDigitsError, format_quantity, parse_whole

Balance = tuple[int, ...]
"""The number of layers of each stage, from the first to the last."""


def read_balance(text: str, stages: int, layers: int) -> Balance:
    """Parse ``a,b,c``: the number of layers of each stage.

    Raises:
        ValueError: The text does not have one number for each stage, or their sum is not the number
            of the model's layers.
    """
    try:
        balance = tuple(parse_whole(number) for number in text.split(","))
    except TooManyDigitsError:
        raise
    except ValueError:
        raise ValueError(f"{text!r} is no list of numbers of layers, such as 3,2") from None
    if len(balance) != stages:
        raise ValueError(
            f"{text} has {format_quantity(len(balance), 'number')}, "
            f"one for each of {stages} stages is needed"
        )
    if min(balance) < 1:
        raise ValueError(f"{text} leaves a stage without layers")
    if sum(balance) != layers:
        raise ValueError(f"{text} has {sum(balance)} layers, the model has {layers}")
    return balance


def check_stages(stages: int, layers: int) -> None:
    """Reject more stages than layers.

    Raises:
        ValueError: There are more stages than layers.
    """
    if stages > layers:
        raise ValueError(
            f"{stages} stages are more than the {layers} layers of the model: take {layers} at most"
        )


def balance_layers(costs: Sequence[float], rank_counts: Sequence[int]) -> Balance:
    """Return the most even balance among those with the fastest slowest stage.

    The time of stage ``i`` is the sum of its layers' costs divided by ``rank_counts[i]``, because
    its tiles or members share the work. Among the balances with the least maximum time, it is one
    with the least sum of squared times.

    Args:
        costs: The measured or estimated costs of the layers, in any unit.
        rank_counts: The number of ranks of each stage.

    Raises:
        ValueError: There are more stages than layers.
    """
    check_stages(len(rank_counts), len(costs))
    cumulative_costs = list(accumulate(costs, initial=0.0))
    min_slowest_time = _build_best_table(cumulative_costs, rank_counts, inf, sum_squares=False)[-1][
        -1
    ][0]
    return _trace_balance(
        _build_best_table(cumulative_costs, rank_counts, min_slowest_time, sum_squares=True)
    )


def list_layer_ranges(balance: Sequence[int]) -> tuple[Interval, ...]:
    """Return the half-open interval of layers of each stage."""
    return tuple(pairwise(accumulate(balance, initial=0)))


_BestTable = list[list[tuple[float, int]]]
"""The best objective, and the number of layers before the last stage, by stages and layers."""


def _build_best_table(
    cumulative_costs: list[float],
    rank_counts: Sequence[int],
    max_stage_time: float,
    *,
    sum_squares: bool,
) -> _BestTable:
    """Return the best objectives, by dynamic programming over stages and layers.

    The objective is the longest time of a stage. With ``sum_squares`` it is the sum of squared
    times, of balances without a stage that takes longer than ``max_stage_time``.
    """
    layers = len(cumulative_costs) - 1
    rows_by_stages: _BestTable = [[(0.0, 0)] + [(inf, 0)] * layers]
    for rank_count in rank_counts:
        best_by_layers = [(inf, 0)] * (layers + 1)
        for end in range(1, layers + 1):
            for start in range(end - 1, -1, -1):
                stage_time = (cumulative_costs[end] - cumulative_costs[start]) / rank_count
                if stage_time > max_stage_time or (
                    not sum_squares and stage_time >= best_by_layers[end][0]
                ):
                    break  # more layers in the last stage only make it slower
                previous_objective = rows_by_stages[-1][start][0]
                if sum_squares:
                    objective = previous_objective + stage_time * stage_time
                else:
                    objective = max(previous_objective, stage_time)
                if objective < best_by_layers[end][0]:
                    best_by_layers[end] = (objective, start)
        rows_by_stages.append(best_by_layers)
    return rows_by_stages


def _trace_balance(rows_by_stages: _BestTable) -> Balance:
    """Return the balance of the last objective of a table."""
    balance: list[int] = []
    end = len(rows_by_stages[0]) - 1
    for best_by_layers in reversed(rows_by_stages[1:]):
        start = best_by_layers[end][1]
        balance.append(end - start)
        end = start
    return tuple(reversed(balance))
