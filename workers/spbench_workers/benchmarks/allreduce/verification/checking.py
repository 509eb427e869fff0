"""Checks of a collective on fresh data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch

from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.allreduce.buffers import Buffers
from spbench_workers.benchmarks.allreduce.entry import SweepParams
from spbench_workers.benchmarks.allreduce.verification.data import (
    InputDistribution,
    InputKind,
    Values,
    compare,
    fill,
)
from spbench_workers.benchmarks.allreduce.verification.expected import ResultPart, compute_expected
from spbench_workers.collectives.arithmetic import view_as_bytes
from spbench_workers.collectives.base import Collective, Mode
from spbench_workers.context import Context

_SAME_ON_ALL = ("allreduce", "allgather", "broadcast")
"""Collectives that leave the same result on all ranks."""


@dataclass(frozen=True, slots=True)
class CheckedCollective:
    """A collective with its buffers, and the properties of its result.

    Attributes:
        buffers: Source and result.
        collective: The collective.
        parts: The parts of its result.
        runs: The number of successive runs that differ, for instance by rotated roots.
        depth: The most additions that a term passes through.
    """

    buffers: Buffers
    collective: Collective
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
        # A collective without an operation is compared like a maximum, because it never rounds.
        op = params.op or "max"
        dtype = subject.buffers.result.dtype
        kinds: dict[str, InputKind] = {"exact": "whole", "bound": "random"}
        ranks = context.world.size
        self._distributions = {
            name: InputDistribution(kind, op, dtype, ranks) for name, kind in kinds.items()
        }
        self._worst = {name: WorstError() for name in ("exact", "bound", "identical", "inputs")}

    @property
    def wrong(self) -> int:
        """The number of wrong elements in this rank's results so far."""
        return self._worst["exact"].wrong + self._worst["bound"].wrong

    def run(self, phase: str) -> None:
        """Run all checks on fresh data, ``before`` or ``after`` the timed loop."""
        total_runs = len(self._distributions) * self._subject.runs
        for kind_index, name in enumerate(self._distributions):
            for run in range(self._subject.runs):
                self._context.progress("check", kind_index * self._subject.runs + run, total_runs)
                self._check(name, f"{phase} {run}")

    def report(self) -> None:
        """Report all checks."""
        for name, worst in self._worst.items():
            self._context.check_worst(name, worst)

    def draw_input(self, name: str, phase: str, source: int) -> Values:
        """Return the input of a rank for a check."""
        seed = self._context.seed_for(name, phase, source)
        count = self._subject.buffers.input.numel()
        return self._distributions[name].draw_input(seed, source, count)

    def _check(self, name: str, phase: str) -> None:
        inputs = self.draw_input(name, phase, self._context.world.rank)
        digests = {self._digest_run(inputs)}
        if not self._same:
            digests.add(self._digest_run(inputs))
        self._compare(name, phase)
        self._worst["identical"].merge(self._check_identical(digests))
        self._worst["inputs"].merge(self._check_inputs(inputs))

    def _digest_run(self, inputs: Values) -> bytes:
        """Run once on fresh memory; return a digest of the bits of the result."""
        buffers = self._subject.buffers
        collective = self._subject.collective
        buffers.poison()
        fill(buffers.input, inputs)
        if self._mode == "nonblocking":
            collective.start()
            collective.poll()
            collective.wait()
        else:
            collective.run()
        result = buffers.result.cpu()
        return hashlib.blake2b(view_as_bytes(result).data, digest_size=16).digest()

    def _compare(self, name: str, phase: str) -> None:
        result = self._subject.buffers.result
        for part in self._subject.parts:
            expected = compute_expected(
                self._distributions[name],
                part.sources,
                lambda source: self.draw_input(name, phase, source),
                self._subject.depth,
            )
            values = result[part.offset : part.offset + part.count]
            self._worst[name].merge(compare(values, expected, part.input_offset, part.offset))

    def _check_identical(self, digests: set[bytes]) -> WorstError:
        """Compare the bits of the result with those of rank 0, or of another run."""
        if not self._same:
            differ = len(digests) > 1
            return WorstError.single(
                float(differ), 0.0, "two runs on the same data" if differ else ""
            )
        own_digest = digests.pop()
        digest_by_rank: list[bytes] = self._context.world.comm.allgather(own_digest)
        differ = own_digest != digest_by_rank[0]
        return WorstError.single(float(differ), 0.0, "not rank 0's bits" if differ else "")

    def _check_inputs(self, inputs: Values) -> WorstError:
        """Count changed elements of the source and of the margins; there must be none."""
        buffers = self._subject.buffers
        margin_writes = buffers.count_margin_writes()
        changed_elements = 0 if buffers.in_place else _count_changed(buffers.input, inputs)
        detail = f"{changed_elements} elements of the source, {margin_writes} beside the buffers"
        return WorstError.single(
            float(changed_elements + margin_writes),
            0.0,
            detail if changed_elements + margin_writes else "",
        )


def _count_changed(source: torch.Tensor, inputs: Values) -> int:
    """Return the number of source elements that differ from the rank's input."""
    expected = torch.empty_like(source, device="cpu")
    fill(expected, inputs)
    changed: Any = (source.cpu() != expected).sum()
    return int(changed)
