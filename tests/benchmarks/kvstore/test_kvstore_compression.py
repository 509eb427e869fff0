"""Compressed gradients: every bit against a plain reference, and that nothing is lost."""

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from spbench_workers.benchmarks.kvstore import compression
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


@st.composite
def rounds(draw):
    """Gradients of a few rounds, a row each."""
    count = draw(counts)
    return draw(arrays(np.float32, (draw(st.integers(1, 4)), count), elements=finite))


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """Blocks so short that a few elements fill several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "_BLOCK", 32)
        yield


class Plain:
    """The rules, element by element and bit by bit."""

    def __init__(self, kind, threshold, count):
        self.bits, self.word = {"2bit": (2, 16), "1bit": (1, 32)}[kind]
        self.kind = kind
        self.t = np.float32(threshold)
        self.residual = [np.float32(0)] * count

    def choose(self, owed):
        if self.kind == "1bit":
            return ("1", np.float32(1)) if owed > self.t else ("0", np.float32(-1))
        if owed >= self.t:
            return "11", self.t
        return ("10", -self.t) if owed <= -self.t else ("00", np.float32(0))

    def encode(self, gradient):
        text = ""
        sent = []
        for index, element in enumerate(gradient):
            owed = self.residual[index] + element
            bits, value = self.choose(owed)
            self.residual[index] = owed - value
            text += bits
            sent.append(value)
        text += "0" * (-len(text) % 32)
        return bytes(int(text[at : at + 8], 2) for at in range(0, len(text), 8)), sent


def encoded(kind, gradient, residual):
    code = np.full(kind.nbytes(len(gradient)), 0xA5, np.uint8)
    kind.encode(gradient, residual, code)
    return code


def decoded(kind, code, count):
    got = np.full(count, 77, np.float32)
    kind.decode(code, got)
    return got


def deliveries(kind, gradient, times):
    """Values that one element delivers in each of several rounds of the same gradient."""
    residual = np.zeros(1, np.float32)
    given = np.array([gradient], np.float32)
    return [float(decoded(kind, encoded(kind, given, residual), 1)[0]) for _ in range(times)]


@pytest.mark.slow
@settings(max_examples=150)
@given(kinds, thresholds, rounds())
def test_every_bit_is_as_the_plain_rules_have_it(name, threshold, gradients):
    kind = create_compression(name, threshold)
    count = gradients.shape[1]
    plain = Plain(name, threshold, count)
    residual = np.zeros(count, np.float32)
    for gradient in gradients:
        before = gradient.copy()
        code = encoded(kind, gradient, residual)
        expected, sent = plain.encode(gradient)
        assert code.tobytes() == expected
        assert residual.tobytes() == np.array(plain.residual, np.float32).tobytes()
        assert np.array_equal(decoded(kind, code, count), np.array(sent, np.float32))
        assert np.array_equal(gradient, before)


def conserved(delivered, residual, given_sums, scale):
    """True if what was delivered and what is owed are what was given, up to rounding."""
    room = 16 * float(np.finfo(np.float32).eps) * scale
    parts = zip(delivered, residual, given_sums, strict=True)
    return all(abs(Fraction(float(d)) + Fraction(float(r)) - g) <= room for d, r, g in parts)


@pytest.mark.slow
@settings(max_examples=100)
@given(kinds, thresholds, rounds(), st.data())
def test_what_is_delivered_and_owed_is_what_was_given(name, threshold, gradients, data):
    kind = create_compression(name, threshold)
    count = gradients.shape[1]
    residual = np.zeros(count, np.float32)
    delivered = np.zeros(count, np.float32)
    codes = [encoded(kind, gradient, residual) for gradient in gradients]
    for code in codes:
        kind.decode_add(code, delivered)
    sums = [sum(map(Fraction, map(float, column))) for column in gradients.T]
    scale = 4.0 * len(gradients) + threshold + 1
    assert conserved(delivered, residual, sums, scale)
    if count:
        # A negative control: another code in one place is another sum.
        at = data.draw(st.integers(0, count - 1))
        bits = 32 // kind.word
        broken = codes[-1].copy()
        broken[at * bits // 8] ^= 1 << (8 - bits - at * bits % 8)
        wrong = delivered - decoded(kind, codes[-1], count) + decoded(kind, broken, count)
        assert not np.array_equal(wrong, delivered, equal_nan=False)
        if threshold >= 0.1:
            assert not math.isclose(float(wrong[at]), float(delivered[at]), abs_tol=0.05)


def test_two_bits_lie_from_the_top():
    gradient = np.array([1, -1, 0, 1, -1, 0.5, -0.5, 0.49] + [0] * 8 + [1], np.float32)
    code = encoded(TwoBit(), gradient, np.zeros(17, np.float32))
    assert code.tolist() == [0b11100011, 0b10111000, 0, 0, 0b11000000, 0, 0, 0]


def test_one_bit_lies_from_the_top():
    gradient = np.array([1, 0.5, 0, 0.6, -1, 2, 2, -2] + [0] * 24 + [1], np.float32)
    code = encoded(OneBit(), gradient, np.zeros(33, np.float32))
    assert code.tolist() == [0b10010110, 0, 0, 0, 0b10000000, 0, 0, 0]


@pytest.mark.parametrize(("name", "word"), [("2bit", 16), ("1bit", 32)])
def test_sizes_are_in_whole_words(name, word):
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
def test_two_bits_alternate_as_mxnet_was_seen_to(gradient, expected):
    assert deliveries(TwoBit(0.5), gradient, 4) == expected


def test_one_bit_alternates_around_nothing():
    assert deliveries(OneBit(0.5), 0.0, 5) == [-1.0, 1.0, -1.0, 1.0, -1.0]
    assert deliveries(OneBit(0.5), 1.5, 3) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_gradient_beyond_the_step_saturates(name):
    kind = create_compression(name, 0.5)
    count = 100
    residual = np.zeros(count, np.float32)
    gradient = np.full(count, kind.step, np.float32)
    for _ in range(20):
        encoded(kind, gradient, residual)
        assert kind.count_saturated(residual) == 0
    gradient[:7] *= -3
    gradient[7:9] *= 3
    for _ in range(3):
        encoded(kind, gradient, residual)
    assert kind.count_saturated(residual) == 9
    residual[50] = np.nan
    assert kind.count_saturated(residual) == 10


@pytest.mark.parametrize(
    ("name", "within", "beyond"),
    [("2bit", [-0.49, 0.0, 0.49], [-0.5, 0.5]), ("1bit", [-0.49, 0.0, 1.5], [-0.5, 1.51])],
)
def test_saturation_begins_where_gradients_of_a_step_cannot_lead(name, within, beyond):
    kind = create_compression(name, 0.5)
    assert kind.count_saturated(np.array(within, np.float32)) == 0
    assert kind.count_saturated(np.array(beyond + within, np.float32)) == len(beyond)


@given(kinds, st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=40))
def test_gradients_within_the_step_never_saturate(name, gradients):
    kind = create_compression(name, 0.5)
    residual = np.zeros(1, np.float32)
    for gradient in gradients:
        encoded(kind, np.array([gradient * kind.step], np.float32), residual)
        assert kind.count_saturated(residual) == 0


def test_what_is_no_code_is_no_number():
    got = decoded(TwoBit(0.5), np.array([0b11010010, 0, 0, 0], np.uint8), 5)
    assert got[[0, 2, 3, 4]].tolist() == [0.5, 0.0, -0.5, 0.0]
    assert np.isnan(got[1])


def test_the_threshold_is_a_float32():
    residual = np.zeros(1, np.float32)
    code = encoded(TwoBit(0.1), np.array([0.1], np.float32), residual)
    assert code[0] == 0b11000000
    assert residual[0] == 0.0
    assert TwoBit(0.1).threshold == TwoBit(0.1).step == float(np.float32(0.1))


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan, math.inf])
def test_a_threshold_that_is_no_number_above_zero_is_refused(threshold):
    for name in COMPRESSIONS:
        with pytest.raises(ValueError, match="not a number above 0"):
            create_compression(name, threshold)


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_no_call_allocates_more_than_views(name, monkeypatch):
    monkeypatch.setattr(compression, "_BLOCK", 1 << 15)
    kind = create_compression(name)
    count = 300_001
    gradient = np.random.default_rng(1).uniform(-1, 1, count).astype(np.float32)
    residual = np.zeros(count, np.float32)
    got = np.zeros(count, np.float32)
    code = np.zeros(kind.nbytes(count), np.uint8)
    tracemalloc.start()
    kind.encode(gradient, residual, code)
    kind.decode(code, got)
    kind.decode_add(code, got)
    kind.count_saturated(residual)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8192
