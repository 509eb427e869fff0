"""Inputs of ranks, expected results, and errors that a comparison detects."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_parallel.errors import CannotRunError, catch_out_of_memory
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.allreduce.buffers import Buffers
from spbench_workers.benchmarks.allreduce.verification.data import (
    ExpectedPeriod,
    InputDistribution,
    compare,
    fill,
)
from spbench_workers.benchmarks.allreduce.verification.expected import (
    compute_depth,
    compute_expected,
    list_result_parts,
)
from spbench_workers.collectives.arithmetic import FORMATS, copy_into, reduce_into, view_as_bytes

OPS = ("sum", "prod", "max", "min")
SEED = 7


def draw_inputs(distribution, count):
    return [distribution.draw_input(SEED + rank, rank, count) for rank in range(distribution.ranks)]


def fold(op, vectors, dtype):
    """Reduce vectors in a format, in their order."""
    total = torch.from_numpy(vectors[0]).to(dtype, copy=True)
    for vector in vectors[1:]:
        reduce_into(op, total, torch.from_numpy(vector).to(dtype))()
    return total


def make_expected(distribution, count, depth=None):
    inputs = draw_inputs(distribution, count)
    depth = distribution.ranks - 1 if depth is None else depth
    return compute_expected(distribution, range(distribution.ranks), inputs.__getitem__, depth)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("ranks", [1, 2, 5, 16, 300])
def test_integers_reduce_without_rounding(dtype, op, ranks):
    distribution = InputDistribution("whole", op, FORMATS[dtype], ranks)
    vectors = draw_inputs(distribution, 200)
    expected = make_expected(distribution, 200)
    assert not expected.tolerance.any()
    for order in (vectors, vectors[::-1]):
        result = fold(op, order, distribution.dtype)
        worst = compare(result, expected)
        assert (worst.wrong, worst.error, worst.tolerance, worst.detail) == (0, 0.0, 0.0, "")
    assert len(set(expected.values.tolist())) > 1


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("ranks", [1, 2, 5, 16])
def test_errors_of_random_numbers_are_within_the_bound(dtype, op, ranks):
    distribution = InputDistribution("random", op, FORMATS[dtype], ranks)
    expected = make_expected(distribution, 500)
    result = fold(op, draw_inputs(distribution, 500), distribution.dtype)
    worst = compare(result, expected)
    assert worst.wrong == 0
    assert worst.error <= worst.tolerance
    # More than a rounding error is detected.
    scale = 1 + 64 * ranks * torch.finfo(distribution.dtype).eps
    assert compare(result * scale, expected).wrong > 250


@settings(max_examples=30)
@given(st.integers(2, 9), st.integers(1, 40), st.integers(0, 2**40))
def test_sums_are_more_precise_than_float64(ranks, count, seed):
    distribution = InputDistribution("random", "sum", torch.float64, ranks)
    vectors = [distribution.draw_input(seed + rank, rank, count) for rank in range(ranks)]
    expected = compute_expected(distribution, range(ranks), vectors.__getitem__, ranks - 1)
    for index in range(count):
        exact = sum(Fraction(float(vector[index])) for vector in vectors)
        computed = Fraction(float(expected.values[index])) + Fraction(
            float(expected.correction[index])
        )
        assert abs(exact - computed) <= Fraction(2) ** -100


def test_the_seed_determines_the_input_of_a_rank():
    distribution = InputDistribution("random", "sum", torch.float32, 2)
    values = distribution.draw_input(3, 0, 50)
    repeated = distribution.draw_input(3, 0, 50)
    different = distribution.draw_input(4, 0, 50)
    assert np.array_equal(values, repeated)
    assert not np.array_equal(values, different)
    assert len(set(values.tolist())) == 50
    assert abs(values).max() <= 1.0
    assert (values < 0).any()
    assert (values > 0).any()


def test_a_long_vector_repeats_its_period():
    distribution = InputDistribution("whole", "sum", torch.int32, 3)
    values = distribution.draw_input(1, 0, 100, period_elements=7)
    assert len(values) == 7
    vector = torch.zeros(20, dtype=torch.int32)
    fill(vector, values, first=5)
    assert vector.tolist() == [int(values[(5 + index) % 7]) for index in range(20)]
    zeros = np.zeros(7)
    assert compare(vector, ExpectedPeriod(values, zeros, zeros), first=5).wrong == 0
    assert compare(vector, ExpectedPeriod(values, zeros, zeros), first=4).wrong > 0


@pytest.mark.parametrize("index", [0, 6, 7, 19])
def test_reports_a_wrong_element(index):
    expected = ExpectedPeriod(np.arange(7.0), np.zeros(7), np.full(7, 0.5))
    vector = torch.arange(20, dtype=torch.float32) % 7
    vector[index] += 3
    worst = compare(vector, expected, offset=100)
    assert (worst.wrong, worst.error, worst.tolerance) == (1, 3.0, 0.5)
    assert worst.detail == f"element {100 + index} is {index % 7 + 3}, not {index % 7}"


def test_unwritten_elements_are_wrong(messages):
    expected = ExpectedPeriod(np.zeros(3), np.zeros(3), np.full(3, 1e9))
    unwritten = compare(torch.tensor([0.0, float("nan"), 0.0]), expected)
    assert unwritten.wrong == 1
    assert unwritten.error == math.inf
    messages.check(unwritten.detail)
    worst = WorstError()
    worst.add(5.0, 1.0, "five", wrong=2)
    worst.merge(unwritten)
    assert (worst.wrong, worst.detail) == (3, unwritten.detail)


@pytest.mark.parametrize(
    ("collective", "rank", "expected"),
    [
        ("allreduce", 1, [10, 20, 30, 40, 50, 60]),
        ("broadcast", 1, [1, 2, 3, 4, 5, 6]),
        ("reduce_scatter", 1, [30, 40]),
        ("allgather", 1, [1, 2, 2, 4, 7, 14]),
        ("alltoall", 1, [3, 4, 6, 8, 21, 28]),
    ],
)
def test_pieces_have_the_sources_of_results(collective, rank, expected):
    vectors = [torch.arange(1, 7) * factor for factor in (1, 2, 7)]
    part = 6 if collective in ("allreduce", "broadcast") else 2
    result = []
    for piece in list_result_parts(collective, 3, rank, part):
        assert piece.offset == len(result)
        parts = [
            vectors[source][piece.input_offset : piece.input_offset + piece.count]
            for source in piece.sources
        ]
        result += sum(parts).tolist()
    assert result == expected


@pytest.mark.parametrize(
    ("algorithm", "ranks", "group", "depth"),
    [
        ("ring", 5, None, 4),
        ("native", 5, None, 4),
        ("flat", 4, None, 3),
        ("binomial", 5, None, 3),
        ("rabenseifner", 8, None, 3),
        ("recursive_doubling", 6, None, 3),
        ("two_level", 8, 4, 3),
        ("two_level", 6, 1, 5),
        ("ring", 1, None, 0),
    ],
)
def test_the_depth_is_the_longest_chain_of_additions(algorithm, ranks, group, depth):
    assert compute_depth(algorithm, ranks, group) == depth


@pytest.mark.parametrize("dtype", FORMATS.values())
def test_margins_detect_writes_outside(dtype):
    cpu = torch.device("cpu")
    for buffers in (Buffers(5, 3, None, dtype, cpu), Buffers(2, 6, 4, dtype, cpu)):
        buffers.poison()
        buffers.result.fill_(1)
        buffers.input.fill_(1)
        assert buffers.count_margin_writes() == 0
        outside = torch.as_strided(buffers.result, (1,), (1,), buffers.result.storage_offset() - 1)
        outside.fill_(0)
        assert buffers.count_margin_writes() == 1


def test_in_place_source_and_result_are_the_same():
    buffers = Buffers(2, 6, 4, torch.float32, torch.device("cpu"))
    assert buffers.source is buffers.result
    assert (buffers.source.numel(), buffers.input.numel()) == (6, 2)
    buffers.input.fill_(5)
    assert buffers.result[4:].tolist() == [5, 5]
    separate = Buffers(2, 6, None, torch.float32, torch.device("cpu"))
    assert separate.source is separate.input
    assert separate.source is not separate.result


@pytest.mark.parametrize("dtype", FORMATS.values())
def test_vectors_are_reduced_and_copied_in_place(dtype):
    target = torch.tensor([1, 5, 3]).to(dtype)
    operand = torch.tensor([4, 2, 3]).to(dtype)
    address = target.data_ptr()
    reduce_into("max", target, operand)()
    assert target.tolist() == [4, 5, 3]
    copy_into(target, operand)()
    assert target.tolist() == [4, 2, 3]
    assert target.data_ptr() == address
    assert view_as_bytes(target).nbytes == 3 * dtype.itemsize


def test_reports_missing_memory(messages):
    with pytest.raises(CannotRunError, match=r"no memory for 8388608\.0 GiB"):
        Buffers(1 << 50, 1 << 50, None, torch.float32, torch.device("cpu"))
    with messages.raises(RuntimeError), catch_out_of_memory(1):
        raise RuntimeError("of another kind")
