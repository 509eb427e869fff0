import random
from itertools import combinations

import pytest

from spbench.stats.two_way import two_way


def test_a_slow_end_and_a_slow_pair_are_told_apart():
    draw = random.Random(1)
    values = {pair: draw.gauss(0.0, 0.01) for pair in combinations(range(12), 2)}
    values |= {pair: value + 0.5 for pair, value in values.items() if 3 in pair}
    values[5, 8] += 0.7
    found = two_way(values)
    assert found.ends[3] == pytest.approx(0.5, abs=0.03)
    assert max(abs(share) for end, share in found.ends.items() if end != 3) < 0.03
    assert found.rests[5, 8] == pytest.approx(0.7, abs=0.05)
    assert max(abs(rest) for pair, rest in found.rests.items() if pair != (5, 8)) < 0.06


def test_pairs_of_neighbours_do_not_tell_an_end_from_its_links():
    assert two_way({(rank, rank + 1): 1.0 for rank in range(12)}) is None
