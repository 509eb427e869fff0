"""Compressed gradients: every bit agrees with a reference, and no value is lost."""

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from spbench_workers.benchmarks.kvstore.compression import (
    COMPRESSIONS,
    OneBit,
    TwoBit,
    create_compression,
)

kinds = st.sampled_from(list(COMPRESSIONS))
thresholds = st.sampled_from([0.5, 0.1, 2.0, 1e-3])
finite = st.floats(-4, 4, width=32) | st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.0, 0.1])
counts = st.integers(0, 70)
SMALL_BLOCKS = {"block_elements": 32}
"""Blocks that a few elements fill."""


@st.composite
def draw_rounds(draw):
    """Draw gradients of a few rounds, one row per round."""
    count = draw(counts)
    return draw(arrays(np.float32, (draw(st.integers(1, 4)), count), elements=finite))


class PlainReference:
    """The rules, element by element and bit by bit."""

    def __init__(self, kind, threshold, count):
        self.bits, self.word = {"2bit": (2, 16), "1bit": (1, 32)}[kind]
        self.kind = kind
        self.threshold = np.float32(threshold)
        self.residual = [np.float32(0)] * count

    def choose(self, owed):
        if self.kind == "1bit":
            return ("1", np.float32(1)) if owed > self.threshold else ("0", np.float32(-1))
        if owed >= self.threshold:
            return "11", self.threshold
        return ("10", -self.threshold) if owed <= -self.threshold else ("00", np.float32(0))

    def encode(self, gradient):
        text = ""
        values = []
        for index, element in enumerate(gradient):
            owed = self.residual[index] + element
            bits, value = self.choose(owed)
            self.residual[index] = owed - value
            text += bits
            values.append(value)
        text += "0" * (-len(text) % 32)
        code = bytes(int(text[index : index + 8], 2) for index in range(0, len(text), 8))
        return code, values


def encode(kind, gradient, residual):
    code = np.full(kind.nbytes(len(gradient)), 0xA5, np.uint8)
    kind.encode(gradient, residual, code)
    return code


def decode(kind, code, count):
    decoded = np.full(count, 77, np.float32)
    kind.decode(code, decoded)
    return decoded


def list_deliveries(kind, gradient, times):
    """Return the values that one element delivers in rounds of the same gradient."""
    residual = np.zeros(1, np.float32)
    gradients = np.array([gradient], np.float32)
    return [float(decode(kind, encode(kind, gradients, residual), 1)[0]) for _ in range(times)]


@pytest.mark.slow
@settings(max_examples=150)
@given(kinds, thresholds, draw_rounds())
def test_every_bit_follows_the_plain_rules(name, threshold, gradients):
    kind = create_compression(name, threshold, **SMALL_BLOCKS)
    count = gradients.shape[1]
    plain = PlainReference(name, threshold, count)
    residual = np.zeros(count, np.float32)
    for gradient in gradients:
        before = gradient.copy()
        code = encode(kind, gradient, residual)
        expected, values = plain.encode(gradient)
        assert code.tobytes() == expected
        assert residual.tobytes() == np.array(plain.residual, np.float32).tobytes()
        assert np.array_equal(decode(kind, code, count), np.array(values, np.float32))
        assert np.array_equal(gradient, before)


def is_conserved(delivered, residual, sums, scale):
    """Return whether delivered values and residuals equal the sums, except rounding."""
    tolerance = 16 * float(np.finfo(np.float32).eps) * scale
    parts = zip(delivered, residual, sums, strict=True)
    return all(abs(Fraction(float(d)) + Fraction(float(r)) - g) <= tolerance for d, r, g in parts)


@pytest.mark.slow
@settings(max_examples=100)
@given(kinds, thresholds, draw_rounds(), st.data())
def test_delivered_and_owed_values_equal_the_given(name, threshold, gradients, data):
    kind = create_compression(name, threshold, **SMALL_BLOCKS)
    count = gradients.shape[1]
    residual = np.zeros(count, np.float32)
    delivered = np.zeros(count, np.float32)
    codes = [encode(kind, gradient, residual) for gradient in gradients]
    for code in codes:
        kind.decode_add(code, delivered)
    sums = [sum(map(Fraction, map(float, column))) for column in gradients.T]
    scale = 4.0 * len(gradients) + threshold + 1
    assert is_conserved(delivered, residual, sums, scale)
    if count:
        # A negative control: another code at one index gives another sum.
        index = data.draw(st.integers(0, count - 1))
        bits = 32 // kind.word
        broken = codes[-1].copy()
        broken[index * bits // 8] ^= 1 << (8 - bits - index * bits % 8)
        wrong = delivered - decode(kind, codes[-1], count) + decode(kind, broken, count)
        assert not np.array_equal(wrong, delivered, equal_nan=False)
        if threshold >= 0.1:
            assert not math.isclose(float(wrong[index]), float(delivered[index]), abs_tol=0.05)


def test_two_bit_codes_start_at_the_top():
    gradient = np.array([1, -1, 0, 1, -1, 0.5, -0.5, 0.49] + [0] * 8 + [1], np.float32)
    code = encode(TwoBit(**SMALL_BLOCKS), gradient, np.zeros(17, np.float32))
    assert code.tolist() == [0b11100011, 0b10111000, 0, 0, 0b11000000, 0, 0, 0]


def test_one_bit_codes_start_at_the_top():
    gradient = np.array([1, 0.5, 0, 0.6, -1, 2, 2, -2] + [0] * 24 + [1], np.float32)
    code = encode(OneBit(**SMALL_BLOCKS), gradient, np.zeros(33, np.float32))
    assert code.tolist() == [0b10010110, 0, 0, 0, 0b10000000, 0, 0, 0]


@pytest.mark.parametrize(("name", "word"), [("2bit", 16), ("1bit", 32)])
def test_sizes_are_multiples_of_words(name, word):
    kind = create_compression(name)
    assert [kind.count_words(n) for n in (0, 1, word, word + 1)] == [0, 1, 1, 2]
    assert kind.nbytes(word + 1) == 8


def test_resnet_50_is_6_376_mb():
    assert TwoBit().nbytes(25_504_000) == 6_376_000


@pytest.mark.parametrize(
    ("gradient", "expected"),
    [
        (0.3, [0.0, 0.5, 0.0, 0.5]),
        (-0.3, [0.0, -0.5, 0.0, -0.5]),
        (0.6, [0.5, 0.5, 0.5, 0.5]),
        (1.7, [0.5, 0.5, 0.5, 0.5]),
        (0.0, [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_two_bits_alternate_like_mxnet(gradient, expected):
    assert list_deliveries(TwoBit(0.5), gradient, 4) == expected


def test_one_bit_alternates_around_zero():
    assert list_deliveries(OneBit(0.5), 0.0, 5) == [-1.0, 1.0, -1.0, 1.0, -1.0]
    assert list_deliveries(OneBit(0.5), 1.5, 3) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_gradient_above_the_step_saturates(name):
    kind = create_compression(name, 0.5, **SMALL_BLOCKS)
    count = 100
    residual = np.zeros(count, np.float32)
    gradient = np.full(count, kind.step, np.float32)
    for _ in range(20):
        encode(kind, gradient, residual)
        assert kind.count_saturated(residual) == 0
    gradient[:7] *= -3
    gradient[7:9] *= 3
    for _ in range(3):
        encode(kind, gradient, residual)
    assert kind.count_saturated(residual) == 9
    residual[50] = np.nan
    assert kind.count_saturated(residual) == 10


@pytest.mark.parametrize(
    ("name", "unsaturated", "saturated"),
    [("2bit", [-0.49, 0.0, 0.49], [-0.5, 0.5]), ("1bit", [-0.49, 0.0, 1.5], [-0.5, 1.51])],
)
def test_saturation_starts_above_reachable_residuals(name, unsaturated, saturated):
    kind = create_compression(name, 0.5)
    assert kind.count_saturated(np.array(unsaturated, np.float32)) == 0
    assert kind.count_saturated(np.array(saturated + unsaturated, np.float32)) == len(saturated)


@given(kinds, st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=40))
def test_gradients_within_the_step_never_saturate(name, gradients):
    kind = create_compression(name, 0.5)
    residual = np.zeros(1, np.float32)
    for gradient in gradients:
        encode(kind, np.array([gradient * kind.step], np.float32), residual)
        assert kind.count_saturated(residual) == 0


def test_an_invalid_code_is_nan():
    decoded = decode(TwoBit(0.5), np.array([0b11010010, 0, 0, 0], np.uint8), 5)
    assert decoded[[0, 2, 3, 4]].tolist() == [0.5, 0.0, -0.5, 0.0]
    assert np.isnan(decoded[1])


def test_the_threshold_is_a_float32():
    residual = np.zeros(1, np.float32)
    code = encode(TwoBit(0.1), np.array([0.1], np.float32), residual)
    assert code[0] == 0b11000000
    assert residual[0] == 0.0
    assert TwoBit(0.1).threshold == TwoBit(0.1).step == float(np.float32(0.1))


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan, math.inf])
def test_rejects_a_threshold_that_is_not_positive(threshold, messages):
    for name in COMPRESSIONS:
        with messages.raises(ValueError):
            create_compression(name, threshold)


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_no_call_allocates_more_than_views(name):
    kind = create_compression(name)
    count = 300_001
    gradient = np.random.default_rng(1).uniform(-1, 1, count).astype(np.float32)
    residual = np.zeros(count, np.float32)
    decoded = np.zeros(count, np.float32)
    code = np.zeros(kind.nbytes(count), np.uint8)
    tracemalloc.start()
    kind.encode(gradient, residual, code)
    kind.decode(code, decoded)
    kind.decode_add(code, decoded)
    kind.count_saturated(residual)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8192
