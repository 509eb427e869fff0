"""Optimizers in place, compared with explicit values and the float64 reference."""

import math
import tracemalloc

import numpy as np
import pytest

from spbench_workers.benchmarks.kvstore.optimizers.blocks import BLOCK_ELEMENTS
from spbench_workers.benchmarks.kvstore.optimizers.registry import OPTIMIZERS, create_optimizer
from spbench_workers.benchmarks.kvstore.verification.expectation import ReferenceWeight

EPS32 = float(np.finfo(np.float32).eps)


def run(name, gradients):
    """Return values after each gradient, of a store's optimizer and of the reference."""
    elements = len(gradients[0])
    optimizer = create_optimizer(name, elements)
    replica = ReferenceWeight(name, elements)
    weight = np.zeros(elements, np.float32)
    values = []
    expected = []
    for gradient in gradients:
        optimizer.update(weight, np.asarray(gradient, np.float32))
        values.append(weight.copy())
        expected.append(replica.apply(np.asarray(gradient)).copy())
    return np.array(values), np.array(expected)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("none", [10.0, 10.0, 10.0]),
        ("sgd", [-0.1, -0.2, -0.3]),
        ("momentum", [-0.1, -0.29, -0.561]),
        ("adam", [-0.001, -0.002, -0.003]),
        # By sqrt(.1 * 100), sqrt(.19 * 100) and sqrt(.271 * 100).
        ("rmsprop", [-0.00316227766, -0.00545643491, -0.00737738187]),
        ("adagrad", [-0.01, -0.0170710678, -0.0228445705]),
        # At first only by epsilon: sqrt(1e-5) / sqrt(10.00001) * 10.
        ("adadelta", [-0.00999999500, -0.0202597733, -0.0306978325]),
        ("nag", [-0.19, -0.461, -0.8049]),
        # (.01 - 10) / 110, then z = 20 + 41.42136 * .09081818 over 10 + 141.42136, and so on.
        ("ftrl", [-0.0908181818, -0.156859064, -0.211442703]),
        ("signum", [-0.01, -0.02, -0.03]),
    ],
)
def test_optimizers_give_explicit_values(name, values):
    updated, expected = run(name, [[10.0]] * 3)
    assert updated[:, 0] == pytest.approx(values, rel=1e-6)
    assert expected[:, 0] == pytest.approx(values, rel=1e-7)


def test_adam_gives_explicit_values_for_changing_gradients():
    # After 1 and then 3: m = .9 * .1 + .3 = .39, v = .999 * .001 + .009 = .009999.
    values, expected = run("adam", [[1.0], [3.0]])
    rate = 0.001 * math.sqrt(1 - 0.999**2) / (1 - 0.9**2)
    explicit = -0.001 / (1 + 1e-8 / math.sqrt(0.001)) - rate * 0.39 / (math.sqrt(0.009999) + 1e-8)
    assert expected[1, 0] == pytest.approx(explicit, rel=1e-9)
    assert values[1, 0] == pytest.approx(explicit, rel=1e-6)


def test_epsilon_is_outside_of_the_root_like_in_mxnet():
    # A gradient as small as epsilon: the first root is 1e-8 * sqrt(.001), not 1e-8.
    values, expected = run("adam", [[1e-8]])
    root = math.sqrt(0.001)
    assert expected[0, 0] == pytest.approx(-0.001 * root / (root + 1), rel=1e-9)
    assert values[0, 0] == pytest.approx(-0.001 * root / (root + 1), rel=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("elements", [0, 1, 7, BLOCK_ELEMENTS + 1])
def test_optimizers_agree_with_the_reference(name, elements):
    draw = np.random.default_rng(elements)
    gradients = [draw.uniform(-4, 4, elements).astype(np.float32) for _ in range(12)]
    values, expected = run(name, gradients)
    assert values.dtype == np.float32
    assert expected.dtype == np.float64
    assert np.allclose(values, expected, rtol=64 * EPS32, atol=64 * EPS32 * 0.05)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_reference_detects_lost_and_double_gradients(name):
    gradients = np.random.default_rng(3).uniform(-4, 4, (6, 50)).astype(np.float32)
    values, _ = run(name, gradients)
    for wrong in (gradients[:-1], [*gradients, 2 * gradients[-1]], [2 * gradients[0]]):
        _, expected = run(name, wrong)
        assert not np.allclose(values[-1], expected[-1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "none"])
def test_every_pair_of_optimizers_differs(name):
    gradients = np.random.default_rng(4).uniform(-4, 4, (3, 50)).astype(np.float32)
    values, _ = run(name, gradients)
    for other in set(OPTIMIZERS) - {name}:
        assert not np.allclose(values, run(other, gradients)[1], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_change_no_gradient_and_allocate_nothing(name):
    elements = 100_000
    optimizer = create_optimizer(name, elements)
    weight = np.zeros(elements, np.float32)
    gradient = np.random.default_rng(5).uniform(-1, 1, elements).astype(np.float32)
    before = gradient.copy()
    optimizer.update(weight, gradient)
    tracemalloc.start()
    optimizer.update(weight, gradient)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4096
    assert np.array_equal(gradient, before)


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_shards_are_updated_like_the_complete_key(name):
    gradients = np.random.default_rng(6).uniform(-4, 4, (4, 90)).astype(np.float32)
    complete, _ = run(name, gradients)
    parts = [run(name, gradients[:, part])[0] for part in (slice(0, 31), slice(31, 90))]
    assert np.array_equal(complete, np.concatenate(parts, axis=1))


def test_rejects_an_unknown_name():
    with pytest.raises(KeyError):
        create_optimizer("lamb", 3)
