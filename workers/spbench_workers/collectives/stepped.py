"""Execution of a schedule: messages of MPI, and reductions between them.

All memory is allocated before the first run. Messages use the given communicator, with a tag for
each round. Two simultaneous allreduces need separate communicators.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from mpi4py import MPI

from spbench_workers.collectives.arithmetic import (
    Action,
    copy_into,
    do_nothing,
    reduce_into,
    view_as_bytes,
)
from spbench_workers.collectives.base import Collective, Mode, RankTraffic
from spbench_workers.collectives.schedule import Schedule, ScheduleStep, Transfer


@dataclass(frozen=True, slots=True)
class _Message:
    """One message: memory, the rank that it goes to or comes from, and its tag."""

    memory: Any
    peer: int
    tag: int


@dataclass(frozen=True, slots=True)
class _Phase:
    """One step with its memory: the messages, and the reductions after them."""

    sends: list[_Message]
    receives: list[_Message]
    sums: list[Action]


def open_stepped(
    comm: MPI.Intracomm,
    schedule: Schedule,
    source: torch.Tensor,
    result: torch.Tensor,
    op: str,
    mode: Mode,
) -> Collective:
    """Return an allreduce by a schedule, in memory of the host.

    Args:
        comm: The ranks; peers in a schedule are ranks of it.
        schedule: The steps of this rank.
        source: The input of this rank, a dense vector.
        result: Memory of the output; the source itself reduces in place. Otherwise the source is
            copied there first, as part of a run.
        op: ``sum``, ``prod``, ``max`` or ``min``.
        mode: ``blocking`` uses blocking sends and receives, the others persistent requests.
    """
    phases = _make_phases(schedule, result, op)
    copy = do_nothing if source is result else copy_into(result, source)
    if mode == "blocking":
        return _BlockingExecution(comm, phases, copy)
    return _PersistentExecution(comm, phases, copy)


def _make_phases(schedule: Schedule, result: torch.Tensor, op: str) -> list[_Phase]:
    """Return the steps in which this rank sends or receives.

    They share scratch memory.
    """
    scratch = result.new_empty(max(map(_scratch_size, schedule), default=0))
    phases = [_make_phase(step, result, scratch, op) for step in schedule]
    return [phase for phase in phases if phase.sends or phase.receives]


def _scratch_size(step: ScheduleStep) -> int:
    return sum(transfer.count for transfer in step.receives if transfer.add)


def _make_phase(step: ScheduleStep, result: torch.Tensor, scratch: torch.Tensor, op: str) -> _Phase:
    receives = []
    sums = []
    used_elements = 0
    for transfer in filter(_has_elements, step.receives):
        target = _part(result, transfer)
        if transfer.add:
            received = scratch[used_elements : used_elements + transfer.count]
            used_elements += transfer.count
            sums.append(reduce_into(op, target, received))
            target = received
        receives.append(_message(target, transfer, step))
    sends = [
        _message(_part(result, transfer), transfer, step)
        for transfer in filter(_has_elements, step.sends)
    ]
    return _Phase(sends, receives, sums)


def _has_elements(transfer: Transfer) -> bool:
    return transfer.count > 0


def _part(vector: torch.Tensor, transfer: Transfer) -> torch.Tensor:
    return vector[transfer.first : transfer.last]


def _message(part: torch.Tensor, transfer: Transfer, step: ScheduleStep) -> _Message:
    return _Message(
        [MPI.buffer.frombuffer(view_as_bytes(part)), MPI.BYTE], transfer.peer, step.round
    )


def _count_traffic(phases: list[_Phase]) -> RankTraffic:
    sends = [send for phase in phases for send in phase.sends]
    byte_counts = [len(send.memory[0]) for send in sends]
    return RankTraffic(bytes=sum(byte_counts), messages=len(sends), rounds=len(phases))


class _BlockingExecution:
    """Execution by blocking calls.

    A step with several transfers uses nonblocking ones and a wait.
    """

    def __init__(self, comm: MPI.Intracomm, phases: list[_Phase], copy: Action) -> None:
        self.traffic = _count_traffic(phases)
        self._copy = copy
        self._steps = [(_choose_call(comm, phase), phase.sums) for phase in phases]

    def run(self) -> None:
        self._copy()
        for call, sums in self._steps:
            call()
            for add in sums:
                add()

    start = run

    def poll(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def free(self) -> None:
        self._steps.clear()


def _choose_call(comm: MPI.Intracomm, phase: _Phase) -> Action:
    """Return the cheapest call that makes all transfers of a phase."""
    sends = [(message.memory, message.peer, message.tag) for message in phase.sends]
    receives = [(message.memory, message.peer, message.tag) for message in phase.receives]
    match sends, receives:
        case [send], [receive]:
            return partial(comm.Sendrecv, *send, *receive)
        case [send], []:
            return partial(comm.Send, *send)
        case [], [receive]:
            return partial(comm.Recv, *receive)
    starts = [partial(comm.Irecv, *receive) for receive in receives]
    starts += [partial(comm.Isend, *send) for send in sends]

    def transfer_all() -> None:
        MPI.Request.Waitall([start() for start in starts])

    return transfer_all


class _PersistentExecution:
    """Execution by persistent requests, which are started in each run, step by step."""

    def __init__(self, comm: MPI.Intracomm, phases: list[_Phase], copy: Action) -> None:
        self.traffic = _count_traffic(phases)
        self._copy = copy
        self._steps = [(_open_requests(comm, phase), phase.sums) for phase in phases]
        self._current = len(phases)

    def run(self) -> None:
        self._copy()
        for requests, sums in self._steps:
            MPI.Prequest.Startall(requests)
            MPI.Prequest.Waitall(requests)
            for add in sums:
                add()

    def start(self) -> None:
        self._copy()
        self._current = -1
        self._begin_next()

    def poll(self) -> bool:
        while self._current < len(self._steps):
            requests, sums = self._steps[self._current]
            if not MPI.Prequest.Testall(requests):
                return False
            self._end(sums)
        return True

    def wait(self) -> None:
        while self._current < len(self._steps):
            requests, sums = self._steps[self._current]
            MPI.Prequest.Waitall(requests)
            self._end(sums)

    def _end(self, sums: list[Action]) -> None:
        for add in sums:
            add()
        self._begin_next()

    def _begin_next(self) -> None:
        self._current += 1
        if self._current < len(self._steps):
            MPI.Prequest.Startall(self._steps[self._current][0])

    def free(self) -> None:
        for requests, _ in self._steps:
            for request in requests:
                request.Free()
        self._steps.clear()
        self._current = 0


def _open_requests(comm: MPI.Intracomm, phase: _Phase) -> list[MPI.Prequest]:
    receives = [
        comm.Recv_init(message.memory, message.peer, message.tag) for message in phase.receives
    ]
    sends = [comm.Send_init(message.memory, message.peer, message.tag) for message in phase.sends]
    return receives + sends
