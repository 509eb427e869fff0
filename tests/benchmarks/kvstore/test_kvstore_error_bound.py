"""The bound holds for all optimizers, and is not wider than rounding requires."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_workers.benchmarks.kvstore.optimizers.registry import OPTIMIZERS, create_optimizer
from spbench_workers.benchmarks.kvstore.verification.error_bound import UNIT, ErrorBound
from spbench_workers.benchmarks.kvstore.verification.expectation import ReferenceWeight

COUNT = 400


def follow(name, rounds, spread=0.0):
    """Return the float32 value, its reference and the bound after some rounds.

    Each round is an array of shape (parts, count).
    """
    optimizer = create_optimizer(name, COUNT)
    value = np.zeros(COUNT, np.float32)
    replica = ReferenceWeight(name, COUNT)
    bound = ErrorBound(name, COUNT)
    for parts in rounds:
        total = np.zeros(COUNT, np.float32)
        for part in parts:
            total += part
        total *= np.float32(1 + spread)
        optimizer.update(value, total)
        exact = np.sum(parts, axis=0, dtype=np.float64)
        size = np.sum(np.abs(parts), axis=0, dtype=np.float64)
        replica.apply(exact)
        bound.apply(exact, len(parts) * UNIT * size, replica.weight)
    return value, replica.weight, bound.value


def draw_rounds(seed, rounds, ranks, scale=1.0, same=False):
    random = np.random.default_rng(seed)
    parts = [
        (scale * random.uniform(-1, 1, (ranks, COUNT))).astype(np.float32) for _ in range(rounds)
    ]
    return [parts[0]] * rounds if same else parts


@pytest.mark.parametrize("name", OPTIMIZERS)
@settings(max_examples=30)
@given(
    seed=st.integers(0, 1 << 30),
    rounds=st.integers(1, 12),
    ranks=st.integers(1, 9),
    scale=st.sampled_from([1.0, 1e-4, 300.0]),
    same=st.booleans(),
)
def test_the_bound_holds(name, seed, rounds, ranks, scale, same):
    value, reference, bound = follow(name, draw_rounds(seed, rounds, ranks, scale, same))
    assert (np.abs(value - reference) <= bound).all()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_errors_other_than_rounding_exceed_the_bound(name):
    rounds = draw_rounds(1, 6, 3)
    # If a rank is missing, most signs are the same.
    expected_share = 0.3 if name == "signum" else 0.9
    for wrong in ([part[:2] for part in rounds], rounds[:-1], [*rounds, rounds[0]]):
        value, _, _ = follow(name, wrong)
        _, reference, bound = follow(name, rounds)
        assert (np.abs(value - reference) > bound).mean() > expected_share


def test_the_bound_is_narrow():
    for name in OPTIMIZERS:
        _, reference, bound = follow(name, draw_rounds(2, 10, 4))
        # FTRL takes differences of roots; AdaDelta's steps determine its later ones.
        widest = 5e-5 if name in ("ftrl", "adadelta") else 2e-5
        assert np.median(bound / np.maximum(np.abs(reference), 1e-6)) < widest


def test_the_bound_of_zero_gradients_is_zero():
    zeros = [np.zeros((2, COUNT), np.float32)] * 3
    for name in OPTIMIZERS:
        value, reference, bound = follow(name, zeros)
        assert not value.any()
        assert not reference.any()
        assert not bound.any()
