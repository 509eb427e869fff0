"""MPI's collectives: blocking, persistent (MPI 4) and nonblocking.

MPI 3.1 has no floating-point type with two bytes. fp16 and bf16 are sent as pairs of bytes, and an
operation that torch computes is registered with MPI for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from mpi4py import MPI

from spbench_parallel.errors import CannotRunError
from spbench_workers.collectives.arithmetic import (
    Action,
    copy_into,
    do_nothing,
    is_short,
    reduce_into,
    view_as_bytes,
)
from spbench_workers.collectives.base import Collective, Mode

_TYPES = {
    torch.float64: MPI.DOUBLE,
    torch.float32: MPI.FLOAT,
    torch.int32: MPI.INT32_T,
    torch.int64: MPI.INT64_T,
}
_OPS = {"sum": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}
_NAMES = {
    "allreduce": "Allreduce",
    "allgather": "Allgather",
    "reduce_scatter": "Reduce_scatter_block",
    "broadcast": "Bcast",
    "alltoall": "Alltoall",
}
_REDUCING = ("allreduce", "reduce_scatter")


def describe_registered_operation(dtype: torch.dtype, op: str) -> str:
    """Return a description of the operation that is registered for a format.

    It is empty if MPI has such an operation.
    """
    if not is_short(dtype):
        return ""
    return f"MPI_Op_create: {op} by torch over pairs of bytes"


@dataclass(frozen=True, slots=True)
class _Call:
    """A collective of MPI with its arguments."""

    comm: MPI.Intracomm
    name: str
    arguments: tuple[Any, ...]

    def blocking(self) -> Action:
        return partial(getattr(self.comm, self.name), *self.arguments)

    def nonblocking(self) -> Callable[[], MPI.Request]:
        begin: Callable[[], MPI.Request]
        begin = partial(getattr(self.comm, "I" + self.name.lower()), *self.arguments)
        return begin

    def persistent(self) -> MPI.Prequest:
        try:
            request: MPI.Prequest = getattr(self.comm, self.name + "_init")(*self.arguments)
        except (AttributeError, NotImplementedError):
            raise CannotRunError(
                f"mode persistent: this MPI has no MPI_{self.name}_init, which came with MPI 4; "
                "use mode blocking or nonblocking"
            ) from None
        return request


def open_native(
    comm: MPI.Intracomm,
    collective: str,
    source: torch.Tensor,
    result: torch.Tensor,
    op: str,
    mode: Mode,
) -> Collective:
    """Return one of MPI's collectives, in memory of the host.

    Args:
        comm: The ranks, n of them.
        collective: ``allreduce`` and ``broadcast`` (from rank 0) take c elements to c elements,
            ``allgather`` c to n c, ``reduce_scatter`` n c to c, ``alltoall`` n c to n c.
        source: The input of this rank, a dense vector.
        result: Memory of the output; the source itself works in place. In place, ``allgather``
            reads a rank's part from its position in the output. In place, ``reduce_scatter`` writes
            the output to the beginning of n c elements.
        op: ``sum``, ``prod``, ``max`` or ``min``.
        mode: The kind of MPI call: blocking, persistent or nonblocking.

    Raises:
        CannotRunError: The mode is persistent, and the MPI has no persistent collectives.
    """
    send: Any = MPI.IN_PLACE if source is result else _make_message(source)
    receive = _make_message(result)
    copy: Action = do_nothing
    arguments: tuple[Any, ...] = (send, receive)
    if collective in _REDUCING:
        arguments += (_operation(op, result.dtype),)
    elif collective == "broadcast":
        arguments = (receive,)
        if source is not result and comm.rank == 0:
            copy = copy_into(result, source)
    call = _Call(comm, _NAMES[collective], arguments)
    return (
        _BlockingCollective(call, copy)
        if mode == "blocking"
        else _RequestCollective(call, copy, mode)
    )


def _make_message(vector: torch.Tensor) -> list[Any]:
    """Return memory and type; mpi4py derives the counts from the call."""
    # mpi4py inspects its own buffer type in less time than an array.
    buffer = MPI.buffer.frombuffer(view_as_bytes(vector))
    if is_short(vector.dtype):
        return [buffer, _pair_type()]
    return [buffer, _TYPES[vector.dtype]]


@cache
def _pair_type() -> MPI.Datatype:
    return MPI.BYTE.Create_contiguous(2).Commit()


def _operation(op: str, dtype: torch.dtype) -> MPI.Op:
    return _create_operation(op, dtype) if is_short(dtype) else _OPS[op]


@cache
def _create_operation(op: str, dtype: torch.dtype) -> MPI.Op:
    """Create an operation for numbers with two bytes.

    MPI keeps it for the rest of the job.
    """

    def reduce(incoming: Any, target: Any, _: MPI.Datatype) -> None:
        if len(target):
            target_vector = torch.frombuffer(target, dtype=dtype)
            incoming_vector = torch.frombuffer(incoming, dtype=dtype)
            reduce_into(op, target_vector, incoming_vector)()

    return MPI.Op.Create(reduce, commute=True)


class _BlockingCollective:
    """A blocking collective: one call of MPI, with as little overhead as possible."""

    traffic = None

    def __init__(self, call: _Call, copy: Action) -> None:
        collective = call.blocking()

        def copy_first() -> None:
            copy()
            collective()

        self.run = collective if copy is do_nothing else copy_first
        self.start = self.run

    def poll(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def free(self) -> None:
        pass


class _RequestCollective:
    """A collective by a request: persistent, or created by each nonblocking call."""

    traffic = None

    def __init__(self, call: _Call, copy: Action, mode: Mode) -> None:
        self._copy = copy
        self._persistent = call.persistent() if mode == "persistent" else None
        self._begin = call.nonblocking() if self._persistent is None else self._restart
        self._request: MPI.Request = MPI.REQUEST_NULL

    def _restart(self) -> MPI.Request:
        assert self._persistent is not None
        self._persistent.Start()
        return self._persistent

    def run(self) -> None:
        self.start()
        self._request.Wait()

    def start(self) -> None:
        self._copy()
        self._request = self._begin()

    def poll(self) -> bool:
        return self._request.Test()

    def wait(self) -> None:
        self._request.Wait()

    def free(self) -> None:
        if self._persistent is not None:
            self._persistent.Free()
