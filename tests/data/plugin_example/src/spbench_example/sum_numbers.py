"""The benchmark ``example.sum``: all ranks add up their numbers."""

from __future__ import annotations

from array import array
from random import Random

from spbench_workers.context import Context
from spbench_workers.timing import measure


def run(context: Context) -> None:
    """Run the case."""
    own = _numbers(context, context.world.rank)
    sums = array("q", bytes(8 * len(own)))

    def add() -> None:
        context.world.comm.Allreduce(own, sums)

    measure(context, add)
    if context.planted("corrupt-sum"):
        sums[0] += 1
    _check(context, sums)


def _numbers(context: Context, rank: int) -> array[int]:
    random = Random(context.seed_for("numbers", rank))
    return array("q", (random.randrange(1 << 40) for _ in range(context.params["count"])))


def _check(context: Context, sums: array[int]) -> None:
    """Compare with sums of all ranks' numbers, which each rank draws again by itself."""
    every = [_numbers(context, rank) for rank in range(context.world.size)]
    error = max(abs(sum(numbers) - got) for *numbers, got in zip(*every, sums, strict=True))
    context.check("sum", float(error))
