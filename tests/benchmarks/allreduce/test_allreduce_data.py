"""Vectors that ranks give, what must come of them, and what a comparison notices."""

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
from spbench_workers.benchmarks.allreduce.verification import data
from spbench_workers.benchmarks.allreduce.verification.data import (
    ExpectedPeriod,
    Numbers,
    compare,
    fill,
)
from spbench_workers.benchmarks.allreduce.verification.expected import (
    compute_depth,
    compute_expected,
    list_result_parts,
)
from spbench_workers.collectives.arithmetic import FORMATS, byte_view, copy_into, reduce_into

OPS = ("sum", "prod", "max", "min")
SEED = 7


def gifts(numbers, count):
    return [numbers.draw_input(SEED + rank, rank, count) for rank in range(numbers.ranks)]


def fold(op, vectors, dtype):
    """Reduce in a format, one after the other."""
    total = torch.from_numpy(vectors[0]).to(dtype, copy=True)
    for vector in vectors[1:]:
        reduce_into(op, total, torch.from_numpy(vector).to(dtype))()
    return total


def wanted(numbers, count, depth=None):
    given_ = gifts(numbers, count)
    depth = numbers.ranks - 1 if depth is None else depth
    return compute_expected(numbers, range(numbers.ranks), given_.__getitem__, depth)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("ranks", [1, 2, 5, 16, 300])
def test_whole_numbers_reduce_without_rounding(dtype, op, ranks):
    numbers = Numbers("whole", op, FORMATS[dtype], ranks)
    vectors = gifts(numbers, 200)
    expected = wanted(numbers, 200)
    assert not expected.tolerance.any()
    for order in (vectors, vectors[::-1]):
        result = fold(op, order, numbers.dtype)
        worst = compare(result, expected)
        assert (worst.wrong, worst.error, worst.tolerance, worst.detail) == (0, 0.0, 0.0, "")
    assert len(set(expected.values.tolist())) > 1


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("ranks", [1, 2, 5, 16])
def test_random_numbers_are_off_by_no_more_than_the_bound(dtype, op, ranks):
    numbers = Numbers("random", op, FORMATS[dtype], ranks)
    expected = wanted(numbers, 500)
    result = fold(op, gifts(numbers, 500), numbers.dtype)
    found = compare(result, expected)
    assert found.wrong == 0
    assert found.error <= found.tolerance
    # One bit more than a rounding is noticed.
    scale = 1 + 64 * ranks * torch.finfo(numbers.dtype).eps
    assert compare(result * scale, expected).wrong > 250


@settings(max_examples=30)
@given(st.integers(2, 9), st.integers(1, 40), st.integers(0, 2**40))
def test_the_sum_is_kept_beyond_float64(ranks, count, seed):
    numbers = Numbers("random", "sum", torch.float64, ranks)
    vectors = [numbers.draw_input(seed + rank, rank, count) for rank in range(ranks)]
    expected = compute_expected(numbers, range(ranks), vectors.__getitem__, ranks - 1)
    for index in range(count):
        exact = sum(Fraction(float(vector[index])) for vector in vectors)
        kept = Fraction(float(expected.values[index])) + Fraction(float(expected.correction[index]))
        assert abs(exact - kept) <= Fraction(2) ** -100


def test_what_a_rank_gives_follows_from_its_seed():
    numbers = Numbers("random", "sum", torch.float32, 2)
    one = numbers.draw_input(3, 0, 50)
    again = numbers.draw_input(3, 0, 50)
    other = numbers.draw_input(4, 0, 50)
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert len(set(one.tolist())) == 50
    assert abs(one).max() <= 1.0
    assert (one < 0).any()
    assert (one > 0).any()


def test_a_long_vector_repeats_its_period(monkeypatch):
    monkeypatch.setattr(data, "PERIOD", 7)
    numbers = Numbers("whole", "sum", torch.int32, 3)
    values = numbers.draw_input(1, 0, 100)
    assert len(values) == 7
    vector = torch.zeros(20, dtype=torch.int32)
    fill(vector, values, first=5)
    assert vector.tolist() == [int(values[(5 + index) % 7]) for index in range(20)]
    nothing = np.zeros(7)
    assert compare(vector, ExpectedPeriod(values, nothing, nothing), first=5).wrong == 0
    assert compare(vector, ExpectedPeriod(values, nothing, nothing), first=4).wrong > 0


@pytest.mark.parametrize("index", [0, 6, 7, 19])
def test_a_wrong_element_is_counted_and_named(index):
    expected = ExpectedPeriod(np.arange(7.0), np.zeros(7), np.full(7, 0.5))
    vector = torch.arange(20, dtype=torch.float32) % 7
    vector[index] += 3
    found = compare(vector, expected, offset=100)
    assert (found.wrong, found.error, found.tolerance) == (1, 3.0, 0.5)
    assert found.detail == f"element {100 + index} is {index % 7 + 3}, not {index % 7}"


def test_what_was_not_written_is_wrong():
    expected = ExpectedPeriod(np.zeros(3), np.zeros(3), np.full(3, 1e9))
    found = compare(torch.tensor([0.0, float("nan"), 0.0]), expected)
    assert found.wrong == 1
    assert found.error == math.inf
    assert found.detail.startswith("element 1 is nan")
    worst = WorstError()
    worst.add(5.0, 1.0, "five", wrong=2)
    worst.merge(found)
    assert (worst.wrong, worst.detail) == (3, found.detail)


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
def test_pieces_say_what_comes_from_whom(collective, rank, expected):
    vectors = [torch.arange(1, 7) * factor for factor in (1, 2, 7)]
    part = 6 if collective in ("allreduce", "broadcast") else 2
    result = []
    for piece in list_result_parts(collective, 3, rank, part):
        assert piece.offset == len(result)
        parts = [
            vectors[giver][piece.input_offset : piece.input_offset + piece.count]
            for giver in piece.sources
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
def test_the_depth_is_that_of_the_longest_chain_of_additions(algorithm, ranks, group, depth):
    assert compute_depth(algorithm, ranks, group) == depth


@pytest.mark.parametrize("dtype", FORMATS.values())
def test_margins_show_what_was_written_beside(dtype):
    cpu = torch.device("cpu")
    for buffers in (Buffers(5, 3, None, dtype, cpu), Buffers(2, 6, 4, dtype, cpu)):
        buffers.poison()
        buffers.result.fill_(1)
        buffers.input.fill_(1)
        assert buffers.count_margin_writes() == 0
        beyond = torch.as_strided(buffers.result, (1,), (1,), buffers.result.storage_offset() - 1)
        beyond.fill_(0)
        assert buffers.count_margin_writes() == 1


def test_in_place_source_and_result_are_one():
    buffers = Buffers(2, 6, 4, torch.float32, torch.device("cpu"))
    assert buffers.source is buffers.result
    assert (buffers.source.numel(), buffers.input.numel()) == (6, 2)
    buffers.input.fill_(5)
    assert buffers.result[4:].tolist() == [5, 5]
    apart = Buffers(2, 6, None, torch.float32, torch.device("cpu"))
    assert apart.source is apart.input
    assert apart.source is not apart.result


@pytest.mark.parametrize("dtype", FORMATS.values())
def test_vectors_are_reduced_and_copied_in_place(dtype):
    one = torch.tensor([1, 5, 3]).to(dtype)
    other = torch.tensor([4, 2, 3]).to(dtype)
    held = one.data_ptr()
    reduce_into("max", one, other)()
    assert one.tolist() == [4, 5, 3]
    copy_into(one, other)()
    assert one.tolist() == [4, 2, 3]
    assert one.data_ptr() == held
    assert byte_view(one).nbytes == 3 * dtype.itemsize


def test_memory_that_is_not_there_is_told_in_a_sentence():
    with pytest.raises(CannotRunError, match=r"no memory for 8388608\.0 GiB"):
        Buffers(1 << 50, 1 << 50, None, torch.float32, torch.device("cpu"))
    with pytest.raises(RuntimeError, match="of another kind"), catch_out_of_memory(1):
        raise RuntimeError("of another kind")
