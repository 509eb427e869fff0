"""Balance of a pipeline: the layers of each stage, as the user says or by their costs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf

from spbench_core.layout.tiles import Interval
from spbench_core.quantities import format_quantity
from spbench_core.whole_numbers import TooManyDigitsError, parse_whole

Balance = tuple[int, ...]
"""Layers a stage, from the first stage to the last."""


def read_balance(text: str, stages: int, layers: int) -> Balance:
    """Read ``a,b,c``: the number of layers of each stage.

    Raises:
        ValueError: The text is not one number for each stage, or these do not add up to the model's
            layers.
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
    """Refuse more stages than layers.

    Raises:
        ValueError: There are more stages than layers.
    """
    if stages > layers:
        raise ValueError(
            f"{stages} stages are more than the {layers} layers of the model: take {layers} at most"
        )


def balance_layers(costs: Sequence[float], ranks: Sequence[int]) -> Balance:
    """Return the balance whose slowest stage is the quickest there is, and is the most even so.

    Stage ``i`` takes the sum of its layers' costs over ``ranks[i]``: its tiles or members share
    the work. Among the balances with the least such maximum, it is one with the least sum of
    squares, so that no stage does more than it must for nothing.

    Args:
        costs: The costs of the layers, in any one unit; measured or estimated.
        ranks: The number of ranks of each stage.

    Raises:
        ValueError: There are more stages than layers.
    """
    check_stages(len(ranks), len(costs))
    sums = list(accumulate(costs, initial=0.0))
    limit = _least(sums, ranks, inf, squares=False)[-1][-1][0]
    return _walk_back(_least(sums, ranks, limit, squares=True))


def layer_ranges(balance: Sequence[int]) -> tuple[Interval, ...]:
    """Return the half-open interval of layers of each stage."""
    return tuple(pairwise(accumulate(balance, initial=0)))


Best = list[list[tuple[float, int]]]
"""By number of stages and of layers: the best value, and the layers before the last stage."""


def _least(sums: list[float], ranks: Sequence[int], limit: float, *, squares: bool) -> Best:
    """Return the best values by dynamic programming over the first stages and layers.

    The value is the largest stage's time, or the sum of squares where no stage is over ``limit``.
    """
    layers = len(sums) - 1
    best: Best = [[(0.0, 0)] + [(inf, 0)] * layers]
    for shared_by in ranks:
        row = [(inf, 0)] * (layers + 1)
        for last in range(1, layers + 1):
            for first in range(last - 1, -1, -1):
                time = (sums[last] - sums[first]) / shared_by
                if time > limit or (not squares and time >= row[last][0]):
                    break  # further layers only add to it
                before = best[-1][first][0]
                value = before + time * time if squares else max(before, time)
                if value < row[last][0]:
                    row[last] = (value, first)
        best.append(row)
    return best


def _walk_back(best: Best) -> Balance:
    balance: list[int] = []
    last = len(best[0]) - 1
    for row in reversed(best[1:]):
        first = row[last][1]
        balance.append(last - first)
        last = first
    return tuple(reversed(balance))
