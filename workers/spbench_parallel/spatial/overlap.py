"""Choice of overlap: measures which execution of an operator over tiles is faster."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import torch
from mpi4py import MPI

from spbench_core.number_text import format_duration
from spbench_parallel.alternatives import time_alternatives
from spbench_parallel.device.streams import is_gpu, synchronize_stream
from spbench_parallel.groups import is_on_one_host
from spbench_parallel.spatial.execution import LocalOperator, TiledExecution
from spbench_parallel.spatial.tile_buffer import attach_buffer, get_buffer

ROUNDS = 5  # interleaved; the median counts
MAX_SECONDS = 0.5
"""Time after which no further round starts."""
_CHOICE_BY_KEY: dict[Hashable, OverlapChoice] = {}
_ON_ONE_HOST: dict[tuple[int, ...], bool] = {}


@dataclass(frozen=True, slots=True)
class OverlapChoice:
    """Whether the interior is computed while halos travel.

    Attributes:
        overlap: The choice.
        tried_ms: The ms of a pass with overlap and without; None if they were not timed.
        explanation: The reason, if they were not timed.
    """

    overlap: bool
    tried_ms: tuple[float, float] | None = None
    explanation: str = "asked for"

    @property
    def reason(self) -> str:
        """The reason for reports."""
        if self.tried_ms is None:
            return self.explanation
        time_on, time_off = (format_duration(ms / 1e3) for ms in self.tried_ms)
        return f"the faster of on {time_on}, off {time_off} in a few passes, any gradients included"


WITHIN_HOST = OverlapChoice(
    False, explanation="within a host the ranks' own cores move all data: nothing could be hidden"
)


def overlap_cannot_help(comm: MPI.Intracomm, device: torch.device) -> bool:
    """Return whether no halo can travel in the background. Collective.

    That is so if all ranks are on one host and the data is in host memory. The answer is cached.
    """
    if is_gpu(device):
        return False
    ranks = _world_ranks(comm)
    if ranks not in _ON_ONE_HOST:
        _ON_ONE_HOST[ranks] = is_on_one_host(comm)
    return _ON_ONE_HOST[ranks]


def summarize_overlap(choices: Sequence[OverlapChoice]) -> tuple[str, str] | None:
    """Return the choice of several operators and its reason; None without operators.

    Operators with equal cost were timed once and share their choice.
    """
    if not choices:
        return None
    if all(choice is WITHIN_HOST for choice in choices):
        return "off", WITHIN_HOST.explanation
    timed_choices = list({id(choice): choice for choice in choices}.values())
    overlapping_count = sum(choice.overlap for choice in timed_choices)
    summary = "on and off" if overlapping_count else "off"
    if overlapping_count == len(timed_choices):
        summary = "on"
    shapes_text = "1 shape" if len(timed_choices) == 1 else f"{len(timed_choices)} shapes"
    return (
        summary,
        f"timed for {shapes_text} of {len(choices)} operators; "
        f"{overlapping_count} faster with overlap",
    )


def choose_faster(
    comm: MPI.Intracomm,
    executions: dict[bool, TiledExecution],
    tile: torch.Tensor,
    operator: LocalOperator,
    cost_key: Hashable,
) -> OverlapChoice:
    """Return the faster execution for tiles like this one. Collective.

    Operators with the same cost key are timed once, with backward if gradients are required. A
    round takes as long as its slowest rank.

    Args:
        comm: The ranks that share the image.
        executions: The two executions, by whether they overlap.
        tile: This rank's tile.
        operator: The operator.
        cost_key: Equal for operators that take the same time; the same on all ranks.
    """
    key = (_world_ranks(comm), torch.is_grad_enabled(), tile.requires_grad, cost_key)
    if key not in _CHOICE_BY_KEY:
        seconds_on, seconds_off = _time_executions(comm, executions, tile, operator)
        _CHOICE_BY_KEY[key] = OverlapChoice(
            seconds_on < seconds_off, (seconds_on * 1000.0, seconds_off * 1000.0)
        )
    return _CHOICE_BY_KEY[key]


def _time_executions(
    comm: MPI.Intracomm,
    executions: dict[bool, TiledExecution],
    tile: torch.Tensor,
    operator: LocalOperator,
) -> tuple[float, float]:
    """Return the median seconds of a pass with overlap and without.

    The rounds of both are interleaved.
    """
    alternatives = {
        overlap: partial(_time_pass, comm, executions[overlap], tile, operator, overlap=overlap)
        for overlap in (True, False)
    }
    seconds_by_overlap = time_alternatives(
        alternatives, rounds=ROUNDS, comm=comm, max_seconds=MAX_SECONDS
    )
    return seconds_by_overlap[True], seconds_by_overlap[False]


def _time_pass(
    comm: MPI.Intracomm,
    execution: TiledExecution,
    tile: torch.Tensor,
    operator: LocalOperator,
    *,
    overlap: bool,
) -> float:
    synchronize_stream(tile.device)
    comm.Barrier()
    start_seconds = perf_counter()
    _run_pass(execution, tile, operator, overlap=overlap)
    synchronize_stream(tile.device)
    return perf_counter() - start_seconds


def _run_pass(
    execution: TiledExecution, tile: torch.Tensor, operator: LocalOperator, *, overlap: bool
) -> None:
    """Run the operator once, and its backward if gradients are required."""
    leaf = attach_buffer(tile.detach().requires_grad_(tile.requires_grad), get_buffer(tile))
    outputs = execution.run(leaf, operator, overlap=overlap)
    if torch.is_grad_enabled() and outputs.requires_grad:
        inputs = [tensor for tensor in (leaf, *operator.parameters) if tensor.requires_grad]
        torch.autograd.grad(outputs, inputs, torch.ones_like(outputs), allow_unused=True)


def _world_ranks(comm: MPI.Intracomm) -> tuple[int, ...]:
    """Return the ranks of a communicator as ranks of MPI_COMM_WORLD."""
    group = comm.Get_group()
    world = MPI.COMM_WORLD.Get_group()
    ranks = tuple(group.Translate_ranks(None, world))
    group.Free()
    world.Free()
    return ranks
