"""Two-way decomposition of values of pairs: effects of the ends, and residuals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from spbench.stats.summary import median

EndPair = tuple[int, int]
"""The two ends between which a value was measured."""
_MANY_ENDS = 100
"""With this many ends, one pass suffices, because all have nearly the same partners."""
MAX_OTHERS_PER_PARTNER = 2
"""An end must have been paired with at least one in this many of the other ends."""


@dataclass(frozen=True, slots=True)
class PairEffects:
    """Values of pairs: each is the sum of the effects of its ends and a residual.

    Attributes:
        end_effects: The effect of each end; most of them are near 0.
        residuals: The part of each pair's value that the effects of its ends do not explain. Most
            of them are near the median of all values.
    """

    end_effects: Mapping[int, float]
    residuals: Mapping[EndPair, float]


def decompose_pairs(values: Mapping[EndPair, float]) -> PairEffects | None:
    """Decompose the values of pairs by medians; None if an end has too few partners.

    This is the median polish of Tukey (Exploratory Data Analysis, 1977), for a symmetric table. A
    few outlying pairs do not change the effect of an end, nor do a few outlying ends change the
    effects of their partners. With few partners, an end cannot be distinguished from its pairs.
    """
    deviations_by_end: dict[int, list[tuple[int, float]]] = defaultdict(list)
    middle_value = median(values.values())
    for (a, b), value in values.items():
        deviations_by_end[a].append((b, value - middle_value))
        deviations_by_end[b].append((a, value - middle_value))
    min_partners = min(map(len, deviations_by_end.values()))
    if min_partners < 3 or min_partners * MAX_OTHERS_PER_PARTNER < len(deviations_by_end) - 1:
        return None
    effect_by_end = dict.fromkeys(deviations_by_end, 0.0)
    # With few ends, the first pass attributes part of the partners' effects to an end. A second
    # pass corrects that.
    for _ in range(1 if len(deviations_by_end) >= _MANY_ENDS else 2):
        median_by_end = {
            end: median([deviation - effect_by_end[partner] for partner, deviation in deviations])
            for end, deviations in deviations_by_end.items()
        }
        offset = median(median_by_end.values())
        effect_by_end = {end: end_median - offset for end, end_median in median_by_end.items()}
    residual_by_pair = {
        (a, b): value - effect_by_end[a] - effect_by_end[b] for (a, b), value in values.items()
    }
    return PairEffects(effect_by_end, residual_by_pair)
