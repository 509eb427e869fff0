"""Rotation of roots: an allreduce whose root is another rank in each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spbench_workers.collectives.base import RankTraffic, Reduction


class RotatingReduction:
    """Reductions that are run in turn, one for each root.

    Args:
        order: The ranks by position in the first run; each run begins one position further.
        open_: Opens the reduction of an order.
    """

    def __init__(self, order: Sequence[int], open_: Callable[[list[int]], Reduction]) -> None:
        turned = ([*order[first:], *order[:first]] for first in range(len(order)))
        self._turns = [open_(order) for order in turned]
        self._at = -1

    @property
    def traffic(self) -> RankTraffic:
        """The traffic of this rank in an average run, bytes and messages rounded up."""
        all_ = [turn.traffic for turn in self._turns if turn.traffic is not None]
        return RankTraffic(
            bytes=-(-sum(one.bytes for one in all_) // len(all_)),
            messages=-(-sum(one.messages for one in all_) // len(all_)),
            rounds=max(one.rounds for one in all_),
        )

    def run(self) -> None:
        self._next().run()

    def start(self) -> None:
        self._next().start()

    def poll(self) -> bool:
        return self._turns[self._at].poll()

    def wait(self) -> None:
        self._turns[self._at].wait()

    def free(self) -> None:
        for turn in self._turns:
            turn.free()

    def _next(self) -> Reduction:
        self._at = (self._at + 1) % len(self._turns)
        return self._turns[self._at]
