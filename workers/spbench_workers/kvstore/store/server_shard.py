"""One shard on a server: its value, the round that is under way, and its answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from spbench_workers.kvstore import optimizers
from spbench_workers.kvstore.compression import Code, Compression
from spbench_workers.kvstore.keys.arena import Array
from spbench_workers.kvstore.keys.sharding import PULL, PUSH, Slot


class Intake:
    """Receives pushes: memory that all shelves of a server share, as they take turns.

    Args:
        comm: All ranks of the job.
        elements: Elements of the largest shard.
        compression: How pushes travel.
    """

    def __init__(self, comm: MPI.Intracomm, elements: int, compression: Compression | None) -> None:
        self.comm = comm
        self._compression = compression
        self._array: Array = np.zeros(elements, np.float32)
        length = compression.nbytes(elements) if compression else 0
        self._code: Code = np.zeros(length, np.uint8)

    def receive(self, source: int, tag: int, into: Array) -> None:
        """Receive a push, decoded if it is compressed."""
        if self._compression is None:
            self.comm.Recv(into, source, tag)
            return
        code = self._code[: self._compression.nbytes(len(into))]
        self.comm.Recv(code, source, tag)
        self._compression.decode(code, into)

    def array(self, elements: int) -> Array:
        """Return memory for a push that is needed only until the next one comes."""
        return self._array[:elements]


class ServerShard(ABC):
    """What both kinds of shelf have in common: a worker's push is acked and its pull answered.

    Args:
        intake: What receives pushes.
        slot: Which shard it is.
        leads: The rank of each worker that stands for the shard's key.

    Attributes:
        slot: Which shard it is.
        value: What a pull brings.
        disorder: What came against the protocol, in words; empty where nothing did.
    """

    def __init__(self, intake: Intake, slot: Slot, leads: Sequence[int]) -> None:
        self.slot, self.disorder = slot, ""
        self.value: Array = np.zeros(slot.count, np.float32)
        self._intake, self._comm, self._leads = intake, intake.comm, leads
        self._nothing = np.zeros(0, np.uint8)
        self._acks = [self._comm.Send_init(self._nothing, lead, slot.tag(PUSH)) for lead in leads]
        self._answers = self._answers_of(self.value)
        self._owed = [False] * len(leads)

    @abstractmethod
    def pushed(self, worker: int) -> None:
        """Take a worker's push, which has come."""

    def pulled(self, worker: int) -> None:
        """Answer a worker's wish for the value, which has come."""
        self._comm.Recv(self._nothing, self._leads[worker], self.slot.tag(PULL))
        if self._owed[worker]:
            self._note(f"worker {worker} pulls before its push is acked")
        self._answers[worker].Wait()
        self._answers[worker].Start()

    @property
    def sent(self) -> tuple[int, int]:
        """Bytes and messages of a round."""
        return self.value.nbytes * len(self._leads), 2 * len(self._leads)

    def finish(self) -> None:
        """Wait until all that was sent has left."""
        MPI.Request.Waitall(self._acks)
        MPI.Request.Waitall(self._answers)

    def free(self) -> None:
        """Give the requests back to MPI."""
        for request in (*self._acks, *self._answers):
            request.Free()

    def _answers_of(self, value: Array) -> list[MPI.Prequest]:
        return [self._comm.Send_init(value, lead, self.slot.tag(PULL)) for lead in self._leads]

    def _receive(self, worker: int, into: Array) -> None:
        self._intake.receive(self._leads[worker], self.slot.tag(PUSH), into)

    def _admit(self, worker: int) -> None:
        """Owe a worker the ack of its push."""
        if self._owed[worker]:
            self._note(f"worker {worker} pushes twice in a round")
        self._owed[worker] = True

    def _ack(self, worker: int) -> None:
        self._owed[worker] = False
        self._acks[worker].Wait()
        self._acks[worker].Start()

    def _note(self, what: str) -> None:
        self.disorder = self.disorder or f"key {self.slot.key}: {what}"


class SyncServerShard(ServerShard):
    """Sums one push of each worker, then changes the value once and acks them all.

    The first push of a round is received where the rest is added. Without an optimizer that memory
    and the value's change places when the round is complete: nothing is copied.
    """

    def __init__(self, intake: Intake, slot: Slot, leads: Sequence[int], optimizer: str) -> None:
        super().__init__(intake, slot, leads)
        self._merged: Array = np.zeros(slot.count, np.float32)
        self._further = intake.array(slot.count)
        self._optimizer = None if optimizer == "none" else optimizers.make(optimizer, slot.count)
        self._spare = [] if self._optimizer else self._answers_of(self._merged)

    def pushed(self, worker: int) -> None:
        self._take(worker, first=not any(self._owed))
        self._admit(worker)
        if all(self._owed):
            self._complete()
            for served in range(len(self._leads)):
                self._ack(served)

    def finish(self) -> None:
        super().finish()
        MPI.Request.Waitall(self._spare)

    def free(self) -> None:
        super().free()
        for request in self._spare:
            request.Free()

    def _take(self, worker: int, *, first: bool) -> None:
        if first:
            # The last answers from this memory have come: all workers have pushed again since.
            MPI.Request.Waitall(self._spare)
            self._receive(worker, self._merged)
            return
        self._receive(worker, self._further)
        np.add(self._merged, self._further, out=self._merged)

    def _complete(self) -> None:
        if self._optimizer is None:
            self.value, self._merged = self._merged, self.value
            self._answers, self._spare = self._spare, self._answers
            return
        MPI.Request.Waitall(self._answers)
        self._optimizer.update(self.value, self._merged)


class AsyncServerShard(ServerShard):
    """Changes the value at each push and acks it at once.

    Args:
        kept: Pushes that are remembered at most.

    Attributes:
        arrivals: The workers whose pushes came, in their order; `forget` empties it.
    """

    def __init__(
        self, intake: Intake, slot: Slot, leads: Sequence[int], optimizer: str, kept: int
    ) -> None:
        super().__init__(intake, slot, leads)
        self._optimizer = optimizers.make(optimizer, slot.count)
        self._pushed = intake.array(slot.count)
        self._arrivals: npt.NDArray[np.int32] = np.zeros(kept, np.int32)
        self._count = 0

    @property
    def arrivals(self) -> npt.NDArray[np.int32]:
        return self._arrivals[: self._count]

    def forget(self) -> None:
        """Begin to remember anew."""
        self._count = 0

    def pushed(self, worker: int) -> None:
        self._receive(worker, self._pushed)
        self._admit(worker)
        self._arrivals[self._count] = worker
        self._count += 1
        # Another worker may still be reading the value as it is.
        MPI.Request.Waitall(self._answers)
        self._change()
        self._ack(worker)

    def _change(self) -> None:
        self._optimizer.update(self.value, self._pushed)
