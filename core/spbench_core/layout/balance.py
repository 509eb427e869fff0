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
        balance = tuple(parse_whole(word) for word in text.split(","))
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


def balance_layers(costs: Sequence[float], ranks: Sequence[int]) -> Balance:
    """Return the most even balance among those with the fastest slowest stage.

    The time of stage ``i`` is the sum of its layers' costs divided by ``ranks[i]``, because its
    tiles or members share the work. Among the balances with the least maximum time, it is one with
    the least sum of squared times.

    Args:
        costs: The measured or estimated costs of the layers, in any unit.
        ranks: The number of ranks of each stage.

    Raises:
        ValueError: There are more stages than layers.
    """
    check_stages(len(ranks), len(costs))
    sums = list(accumulate(costs, initial=0.0))
    limit = _minimize(sums, ranks, inf, squares=False)[-1][-1][0]
    return _walk_back(_minimize(sums, ranks, limit, squares=True))


def layer_ranges(balance: Sequence[int]) -> tuple[Interval, ...]:
    """Return the half-open interval of layers of each stage."""
    return tuple(pairwise(accumulate(balance, initial=0)))


_BestTable = list[list[tuple[float, int]]]
"""The best value, and the number of layers before the last stage, by stages and layers."""


def _minimize(
    sums: list[float], ranks: Sequence[int], limit: float, *, squares: bool
) -> _BestTable:
    """Return the best values by dynamic programming over the first stages and layers.

    The value is the longest time of a stage. With ``squares`` it is the sum of squared times, of
    balances without a stage that takes longer than ``limit``.
    """
    layers = len(sums) - 1
    best: _BestTable = [[(0.0, 0)] + [(inf, 0)] * layers]
    for stage_ranks in ranks:
        row = [(inf, 0)] * (layers + 1)
        for last in range(1, layers + 1):
            for first in range(last - 1, -1, -1):
                time = (sums[last] - sums[first]) / stage_ranks
                if time > limit or (not squares and time >= row[last][0]):
                    break  # more layers in the last stage only make it slower
                before = best[-1][first][0]
                value = before + time * time if squares else max(before, time)
                if value < row[last][0]:
                    row[last] = (value, first)
        best.append(row)
    return best


def _walk_back(best: _BestTable) -> Balance:
    """Return the balance of the last value of a table."""
    balance: list[int] = []
    last = len(best[0]) - 1
    for row in reversed(best[1:]):
        first = row[last][1]
        balance.append(last - first)
        last = first
    return tuple(reversed(balance))
