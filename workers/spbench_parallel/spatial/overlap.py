"""The choice of overlap: which way of an operator over tiles is the faster, as measured here."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import torch
from mpi4py import MPI

from spbench_core.durations import format_duration
from spbench_parallel.alternatives import time_alternatives
from spbench_parallel.device.streams import is_gpu, synchronize_stream
from spbench_parallel.groups import is_on_one_host
from spbench_parallel.spatial.execution import LocalOperator, TiledExecution
from spbench_parallel.spatial.tile_buffer import attach_buffer, get_buffer

ROUNDS = 5
MAX_SECONDS = 0.5
"""Seconds after which no further round begins."""
_CHOSEN: dict[Hashable, OverlapChoice] = {}
_ON_ONE_HOST: dict[tuple[int, ...], bool] = {}


@dataclass(frozen=True, slots=True)
class OverlapChoice:
    """Whether the interior is computed while halos travel.

    Attributes:
        overlap: Whether it is.
        tried_ms: The ms of a pass with overlap and without; None where neither was timed.
        why: The reason, where neither was timed.
    """

    overlap: bool
    tried_ms: tuple[float, float] | None = None
    why: str = "asked for"

    @property
    def reason(self) -> str:
        """The reason, as a report gives it."""
        if self.tried_ms is None:
            return self.why
        on, off = (format_duration(ms / 1e3) for ms in self.tried_ms)
        return f"the faster of on {on}, off {off} in a few passes, any gradients included"


WITHIN_HOST = OverlapChoice(
    False, why="within a host the ranks' own cores move all data: nothing could be hidden"
)


def overlap_cannot_help(comm: MPI.Intracomm, device: torch.device) -> bool:
    """Whether no halo travels by itself: all ranks are on one host, and so are the data.

    All ranks must ask together; what they are told is kept.
    """
    if is_gpu(device):
        return False
    names = _names(comm)
    if names not in _ON_ONE_HOST:
        _ON_ONE_HOST[names] = is_on_one_host(comm)
    return _ON_ONE_HOST[names]


def summarize_overlap(choices: Sequence[OverlapChoice]) -> tuple[str, str] | None:
    """Return the choice of several operators in a word, and its reason; None where there is none.

    Those that are alike were timed once and share their choice.
    """
    if not choices:
        return None
    if all(choice is WITHIN_HOST for choice in choices):
        return "off", WITHIN_HOST.why
    timed = list({id(choice): choice for choice in choices}.values())
    faster = sum(choice.overlap for choice in timed)
    word = "on" if faster == len(timed) else "off" if not faster else "on and off"
    shapes = "1 shape" if len(timed) == 1 else f"{len(timed)} shapes"
    return word, f"timed for {shapes} of {len(choices)} operators; {faster} faster with overlap"


def choose_faster(
    comm: MPI.Intracomm,
    ways: dict[bool, TiledExecution],
    tile: torch.Tensor,
    operator: LocalOperator,
    likeness: Hashable,
) -> OverlapChoice:
    """Return the faster way for tiles like this one; all ranks must ask together.

    It is timed once for all operators that are alike: forward, and backward where gradients are
    asked for. Each round is as long as its slowest rank.

    Args:
        comm: The ranks that share the image.
        ways: The two ways, by whether they overlap.
        tile: This rank's tile.
        operator: The operator.
        likeness: What operators have in common that take as long; the same on all ranks.
    """
    key = (_names(comm), torch.is_grad_enabled(), tile.requires_grad, likeness)
    if key not in _CHOSEN:
        on, off = _times(comm, ways, tile, operator)
        _CHOSEN[key] = OverlapChoice(on < off, (on * 1000.0, off * 1000.0))
    return _CHOSEN[key]


def _times(
    comm: MPI.Intracomm,
    ways: dict[bool, TiledExecution],
    tile: torch.Tensor,
    operator: LocalOperator,
) -> tuple[float, float]:
    """Return the seconds of a pass with overlap and without, medians of interleaved rounds."""
    alternatives = {
        overlap: partial(_seconds, comm, ways[overlap], tile, operator, overlap=overlap)
        for overlap in (True, False)
    }
    times = time_alternatives(alternatives, rounds=ROUNDS, comm=comm, max_seconds=MAX_SECONDS)
    return times[True], times[False]


def _seconds(
    comm: MPI.Intracomm,
    way: TiledExecution,
    tile: torch.Tensor,
    operator: LocalOperator,
    *,
    overlap: bool,
) -> float:
    synchronize_stream(tile.device)
    comm.Barrier()
    start = perf_counter()
    _pass(way, tile, operator, overlap=overlap)
    synchronize_stream(tile.device)
    return perf_counter() - start


def _pass(
    way: TiledExecution, tile: torch.Tensor, operator: LocalOperator, *, overlap: bool
) -> None:
    """Run the operator once, and its backward where gradients are asked for."""
    leaf = attach_buffer(tile.detach().requires_grad_(tile.requires_grad), get_buffer(tile))
    made = way.run(leaf, operator, overlap=overlap)
    if torch.is_grad_enabled() and made.requires_grad:
        wanted = [one for one in (leaf, *operator.parameters) if one.requires_grad]
        torch.autograd.grad(made, wanted, torch.ones_like(made), allow_unused=True)


def _names(comm: MPI.Intracomm) -> tuple[int, ...]:
    """Return the ranks of a communicator by their numbers in the job."""
    ours = comm.Get_group()
    everyone = MPI.COMM_WORLD.Get_group()
    ranks = tuple(ours.Translate_ranks(None, everyone))
    ours.Free()
    everyone.Free()
    return ranks
