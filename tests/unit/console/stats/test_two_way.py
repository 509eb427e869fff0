"""Tests of decomposing pairs into effects of their ends and residuals."""

import random
from itertools import combinations

import pytest

from spbench.stats.two_way import decompose_pairs


def test_slow_end_differs_from_a_slow_pair():
    draw = random.Random(1)
    values = {pair: draw.gauss(0.0, 0.01) for pair in combinations(range(12), 2)}
    values |= {pair: value + 0.5 for pair, value in values.items() if 3 in pair}
    values[5, 8] += 0.7
    effects = decompose_pairs(values)
    assert effects.end_effects[3] == pytest.approx(0.5, abs=0.03)
    assert max(abs(share) for end, share in effects.end_effects.items() if end != 3) < 0.03
    assert effects.residuals[5, 8] == pytest.approx(0.7, abs=0.05)
    assert (
        max(abs(residual) for pair, residual in effects.residuals.items() if pair != (5, 8)) < 0.06
    )


def test_pairs_of_neighbours_cannot_be_decomposed():
    assert decompose_pairs({(rank, rank + 1): 1.0 for rank in range(12)}) is None
