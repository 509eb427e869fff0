"""Checks of a collective: it is run on fresh data, and its result is compared."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch

from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.allreduce.buffers import Buffers
from spbench_workers.benchmarks.allreduce.entry import SweepParams
from spbench_workers.benchmarks.allreduce.verification.data import (
    InputKind,
    Numbers,
    Values,
    compare,
    fill,
)
from spbench_workers.benchmarks.allreduce.verification.expected import ResultPart, compute_expected
from spbench_workers.collectives.arithmetic import byte_view
from spbench_workers.collectives.base import Mode, Reduction
from spbench_workers.context import Context

_SAME_ON_ALL = ("allreduce", "allgather", "broadcast")
"""Collectives that leave the same result on all ranks."""


@dataclass(frozen=True, slots=True)
class CheckedCollective:
    """A collective with its buffers, and the properties of its result.

    Attributes:
        buffers: Source and result.
        reduction: The collective.
        pieces: The parts of its result.
        runs: The number of successive runs that differ, as with rotated roots.
        depth: The most additions that a term goes through.
    """

    buffers: Buffers
    reduction: Reduction
    parts: list[ResultPart]
    runs: int
    depth: int


class Checks:
    """The checks of one case on one rank."""

    def __init__(self, context: Context, subject: CheckedCollective) -> None:
        params = context.read_params(SweepParams)
        self._context = context
        self._subject = subject
        self._mode: Mode = params.mode
        self._same = params.collective in _SAME_ON_ALL
        # A collective without an operation is compared like a maximum: nothing is rounded.
        op = params.op or "max"
        dtype = subject.buffers.result.dtype
        kinds: dict[str, InputKind] = {"exact": "whole", "bound": "random"}
        ranks = context.world.size
        self._numbers = {name: Numbers(kind, op, dtype, ranks) for name, kind in kinds.items()}
        self._worst = {name: WorstError() for name in ("exact", "bound", "identical", "inputs")}

    @property
    def wrong(self) -> int:
        """The number of wrong elements in this rank's results so far."""
        return self._worst["exact"].wrong + self._worst["bound"].wrong

    def run(self, when: str) -> None:
        """Run all checks on fresh data, ``before`` or ``after`` the timed loop."""
        total = len(self._numbers) * self._subject.runs
        for kind, name in enumerate(self._numbers):
            for turn in range(self._subject.runs):
                self._context.progress("check", kind * self._subject.runs + turn, total)
                self._check(name, f"{when} {turn}")

    def report(self) -> None:
        """Report all checks."""
        for name, worst in self._worst.items():
            self._context.check_worst(name, worst)

    def draw_input(self, name: str, when: str, giver: int) -> Values:
        """Return the input of a rank for a check."""
        seed = self._context.seed_for(name, when, giver)
        count = self._subject.buffers.input.numel()
        return self._numbers[name].draw_input(seed, giver, count)

    def _check(self, name: str, when: str) -> None:
        mine = self.draw_input(name, when, self._context.world.rank)
        digests = {self._outcome(mine)}
        if not self._same:
            digests.add(self._outcome(mine))
        self._compare(name, when)
        self._worst["identical"].merge(self._identical(digests))
        self._worst["inputs"].merge(self._inputs(mine))

    def _outcome(self, mine: Values) -> bytes:
        """Run once on fresh memory; return a digest of the result, bit by bit."""
        buffers = self._subject.buffers
        reduction = self._subject.reduction
        buffers.poison()
        fill(buffers.input, mine)
        if self._mode == "nonblocking":
            reduction.start()
            reduction.poll()
            reduction.wait()
        else:
            reduction.run()
        result = buffers.result.cpu()
        return hashlib.blake2b(byte_view(result).data, digest_size=16).digest()

    def _compare(self, name: str, when: str) -> None:
        result = self._subject.buffers.result
        for piece in self._subject.parts:
            expected = compute_expected(
                self._numbers[name],
                piece.sources,
                lambda giver: self.draw_input(name, when, giver),
                self._subject.depth,
            )
            part = result[piece.offset : piece.offset + piece.count]
            self._worst[name].merge(compare(part, expected, piece.input_offset, piece.offset))

    def _identical(self, digests: set[bytes]) -> WorstError:
        """Compare the bits of the result with rank 0's, or with those of another run."""
        if not self._same:
            differ = len(digests) > 1
            return WorstError.single(
                float(differ), 0.0, "two runs on the same data" if differ else ""
            )
        mine = digests.pop()
        everyone: list[bytes] = self._context.world.comm.allgather(mine)
        differ = mine != everyone[0]
        return WorstError.single(float(differ), 0.0, "not rank 0's bits" if differ else "")

    def _inputs(self, mine: Values) -> WorstError:
        """Count the written elements of the source and of the margins, which must not change."""
        buffers = self._subject.buffers
        outside = buffers.count_margin_writes()
        changed = 0 if buffers.in_place else _changed(buffers.input, mine)
        detail = f"{changed} elements of the source, {outside} beside the buffers"
        return WorstError.single(float(changed + outside), 0.0, detail if changed + outside else "")


def _changed(source: torch.Tensor, mine: Values) -> int:
    """Return the number of elements that differ from the rank's input."""
    wanted = torch.empty_like(source, device="cpu")
    fill(wanted, mine)
    changed: Any = (source.cpu() != wanted).sum()
    return int(changed)
