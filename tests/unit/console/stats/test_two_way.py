import random
from itertools import combinations

import pytest

from spbench.stats.two_way import decompose_pairs


def test_a_slow_end_and_a_slow_pair_are_told_apart():
    draw = random.Random(1)
    values = {pair: draw.gauss(0.0, 0.01) for pair in combinations(range(12), 2)}
    values |= {pair: value + 0.5 for pair, value in values.items() if 3 in pair}
    values[5, 8] += 0.7
    found = decompose_pairs(values)
    assert found.end_effects[3] == pytest.approx(0.5, abs=0.03)
    assert max(abs(share) for end, share in found.end_effects.items() if end != 3) < 0.03
    assert found.residuals[5, 8] == pytest.approx(0.7, abs=0.05)
    assert max(abs(rest) for pair, rest in found.residuals.items() if pair != (5, 8)) < 0.06


def test_pairs_of_neighbours_do_not_tell_an_end_from_its_links():
    assert decompose_pairs({(rank, rank + 1): 1.0 for rank in range(12)}) is None
