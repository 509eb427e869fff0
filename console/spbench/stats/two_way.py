"""Two-way decomposition of what was measured between pairs: the share of each end, and the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from spbench.stats.summary import median

EndPair = tuple[int, int]
"""The two ends between which a value was measured."""
_MANY = 100
"""Of so many ends each has nearly the same partners: what is theirs is then the same in all."""
LEAST_SHARE = 2
"""An end must have been paired with one in so many of the others for its share to be known."""


@dataclass(frozen=True, slots=True)
class PairEffects:
    """Values of pairs, each the sum of a middle, the shares of both ends, and a rest.

    Attributes:
        ends: The share of each end; most of them are near 0.
        rests: What neither end explains, of each pair.
    """

    end_effects: Mapping[int, float]
    residuals: Mapping[EndPair, float]


def decompose_pairs(values: Mapping[EndPair, float]) -> PairEffects | None:
    """Decompose the values of pairs by medians.

    It is the median polish of Tukey (Exploratory Data Analysis, 1977), for a symmetric table.

    A few pairs that are far off do not move an end's share, nor a few ends those of their partners.
    None where ends have too few partners to tell an end from its pairs.
    """
    partners: dict[int, list[tuple[int, float]]] = defaultdict(list)
    middle = median(values.values())
    for (one, other), value in values.items():
        partners[one].append((other, value - middle))
        partners[other].append((one, value - middle))
    fewest = min(map(len, partners.values()))
    if fewest < 3 or fewest * LEAST_SHARE < len(partners) - 1:
        return None
    ends = dict.fromkeys(partners, 0.0)
    # Of few ends, a second pass takes off what the first has taken for a share of its partners'.
    for _ in range(1 if len(partners) >= _MANY else 2):
        shares = {
            end: median([value - ends[other] for other, value in pairs])
            for end, pairs in partners.items()
        }
        off = median(shares.values())
        ends = {end: share - off for end, share in shares.items()}
    rests = {pair: value - ends[pair[0]] - ends[pair[1]] for pair, value in values.items()}
    return PairEffects(ends, rests)
