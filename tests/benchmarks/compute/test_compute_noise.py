"""The fixed work of compute.noise, and its reference."""

import random
import zlib

import pytest

from spbench_workers.benchmarks.compute.noise import Quantum, compute_reference


@pytest.mark.parametrize("passes", [1, 2, 37])
@pytest.mark.parametrize("size", [1, 100])
def test_the_reference_is_the_crc_of_repeated_data(passes, size):
    data = random.Random(passes).randbytes(size)
    assert compute_reference(data, passes) == zlib.crc32(data * passes)


def test_counts_each_wrong_result():
    correct = Quantum(b"abc", 5, compute_reference(b"abc", 5))
    wrong = Quantum(b"abc", 5, 1)
    corrupt = Quantum(b"abc", 5, compute_reference(b"abc", 5), corrupt=True)
    for _ in range(3):
        for quantum in (correct, wrong, corrupt):
            quantum.work()
    assert (correct.wrong_count, wrong.wrong_count, corrupt.wrong_count) == (0, 3, 3)
    assert wrong.last_wrong == zlib.crc32(b"abc" * 5)
