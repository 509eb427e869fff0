"""Random bytes that both ends of a link make by seed, and their comparison."""

from __future__ import annotations

import random

from spbench_parallel.verify.worst_error import WorstError

_BLOCK = 1 << 20
_INVERTED = bytes(255 - value for value in range(256))


def random_bytes(seed: int, count: int) -> bytes:
    """Return ``count`` bytes that follow from the seed alone."""
    generator = random.Random(seed)
    sizes = (min(_BLOCK, count - first) for first in range(0, count, _BLOCK))
    return b"".join(map(generator.randbytes, sizes))


def invert_bytes(expected: bytes) -> bytes:
    """Return as many bytes, each of them wrong, so that a byte that is not received is noticed."""
    return expected.translate(_INVERTED)


def compare_bytes(got: bytes, expected: bytes) -> WorstError:
    """Compare received and expected bytes; the largest difference is that of a whole block."""
    for first in range(0, len(expected), _BLOCK):
        here = got[first : first + _BLOCK]
        there = expected[first : first + _BLOCK]
        if here != there:
            wrong = [
                index
                for index, pair in enumerate(zip(here, there, strict=True))
                if pair[0] != pair[1]
            ]
            error = max(abs(here[index] - there[index]) for index in wrong)
            place = wrong[0]
            detail = f"byte {first + place} is {here[place]:#04x}, not {there[place]:#04x}"
            return WorstError.single(float(error), 0.0, detail)
    return WorstError()
