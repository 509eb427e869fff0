"""The benchmark ``example.sum``: all ranks add up their numbers."""

from __future__ import annotations

from array import array
from random import Random

from spbench_workers.context import Context
from spbench_workers.timing import measure


def run(context: Context) -> None:
    """Run the case."""
    numbers = _draw_numbers(context, context.world.rank)
    sums = array("q", bytes(8 * len(numbers)))

    def add() -> None:
        context.world.comm.Allreduce(numbers, sums)

    measure(context, add)
    if context.planted("corrupt-sum"):
        sums[0] += 1
    _check(context, sums)


def _draw_numbers(context: Context, rank: int) -> array[int]:
    random = Random(context.seed_for("numbers", rank))
    return array("q", (random.randrange(1 << 40) for _ in range(context.params["count"])))


def _check(context: Context, sums: array[int]) -> None:
    """Compare with sums of all ranks' numbers, which follow from the seed."""
    numbers_of_ranks = [_draw_numbers(context, rank) for rank in range(context.world.size)]
    rows = zip(*numbers_of_ranks, sums, strict=True)
    error = max(abs(sum(numbers) - total) for *numbers, total in rows)
    context.check("sum", float(error))
