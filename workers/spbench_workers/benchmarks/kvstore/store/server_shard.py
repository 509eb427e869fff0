"""The shard of a key on a server (MXNet's kvstore_dist_server): its value, merged sum and acks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.compression import Code, Compression
from spbench_workers.benchmarks.kvstore.keys.sharding import PULL, PUSH, Slot
from spbench_workers.benchmarks.kvstore.optimizers import registry


class ReceiveBuffer:
    """Receive memory of a server: its shards share it, as pushes are handled one after another.

    Args:
        comm: All ranks of the job.
        elements: Elements of the largest shard.
        compression: The compression of pushes; None for float32.
    """

    def __init__(self, comm: MPI.Intracomm, elements: int, compression: Compression | None) -> None:
        self.comm = comm
        self._compression = compression
        self._array: Float32Array = np.zeros(elements, np.float32)
        length = compression.nbytes(elements) if compression else 0
        self._code: Code = np.zeros(length, np.uint8)

    def receive(self, source: int, tag: int, into: Float32Array) -> None:
        """Receive a push, decoded if it is compressed."""
        if self._compression is None:
            self.comm.Recv(into, source, tag)
            return
        code = self._code[: self._compression.nbytes(len(into))]
        self.comm.Recv(code, source, tag)
        self._compression.decode(code, into)

    def scratch(self, elements: int) -> Float32Array:
        """Return memory for a push that is needed only until the next one comes."""
        return self._array[:elements]


class ServerShard(ABC):
    """A server shard: part of a key, whose pushes are acked and whose pulls are answered.

    Args:
        intake: The receive memory of the server.
        slot: The shard's place: server, key and elements.
        clients: The rank of each worker that pushes and pulls the key: its merge device.

    Attributes:
        slot: The shard's place: server, key and elements.
        value: The value that a pull returns.
        violation: The first violation of the order of pushes, acks and pulls, in words; empty
            without one.
    """

    def __init__(self, intake: ReceiveBuffer, slot: Slot, clients: Sequence[int]) -> None:
        self.slot = slot
        self.violation = ""
        self.value: Float32Array = np.zeros(slot.count, np.float32)
        self._intake = intake
        self._comm = intake.comm
        self._clients = clients
        self._nothing = np.zeros(0, np.uint8)
        self._acks = [
            self._comm.Send_init(self._nothing, client, slot.tag(PUSH)) for client in clients
        ]
        self._answers = self._answers_of(self.value)
        self._unacked = [False] * len(clients)

    @abstractmethod
    def handle_push(self, worker: int) -> None:
        """Receive and handle a worker's push, which has arrived."""

    def handle_pull(self, worker: int) -> None:
        """Answer a worker's pull, which has arrived, with the value."""
        self._comm.Recv(self._nothing, self._clients[worker], self.slot.tag(PULL))
        if self._unacked[worker]:
            self._note(f"worker {worker} pulls before its push is acked")
        self._answers[worker].Wait()
        self._answers[worker].Start()

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes and messages that the shard sends in a round: acks and values."""
        return self.value.nbytes * len(self._clients), 2 * len(self._clients)

    def finish(self) -> None:
        """Wait until all sends have ended."""
        MPI.Request.Waitall(self._acks)
        MPI.Request.Waitall(self._answers)

    def free(self) -> None:
        """Free the persistent requests."""
        for request in (*self._acks, *self._answers):
            request.Free()

    def _answers_of(self, value: Float32Array) -> list[MPI.Prequest]:
        return [
            self._comm.Send_init(value, client, self.slot.tag(PULL)) for client in self._clients
        ]

    def _receive(self, worker: int, into: Float32Array) -> None:
        self._intake.receive(self._clients[worker], self.slot.tag(PUSH), into)

    def _admit(self, worker: int) -> None:
        """Note a worker's push, which is not acked yet."""
        if self._unacked[worker]:
            self._note(f"worker {worker} pushes twice in a round")
        self._unacked[worker] = True

    def _ack(self, worker: int) -> None:
        self._unacked[worker] = False
        self._acks[worker].Wait()
        self._acks[worker].Start()

    def _note(self, what: str) -> None:
        self.violation = self.violation or f"key {self.slot.key}: {what}"


class SyncServerShard(ServerShard):
    """A shard of a synchronous store: one push of each worker is summed, then all are acked.

    The first push of a round is received into the sum, to which the others are added. Without an
    optimizer the sum and the value change places when the round is complete: nothing is copied.
    """

    def __init__(
        self, intake: ReceiveBuffer, slot: Slot, clients: Sequence[int], optimizer: str
    ) -> None:
        super().__init__(intake, slot, clients)
        self._merged: Float32Array = np.zeros(slot.count, np.float32)
        self._further = intake.scratch(slot.count)
        self._optimizer = (
            None if optimizer == "none" else registry.create_optimizer(optimizer, slot.count)
        )
        self._spare = [] if self._optimizer else self._answers_of(self._merged)

    def handle_push(self, worker: int) -> None:
        self._take(worker, first=not any(self._unacked))
        self._admit(worker)
        if all(self._unacked):
            self._complete()
            for served in range(len(self._clients)):
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
            # The last answers from this memory have arrived: all workers have pushed again since.
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
    """A shard of an asynchronous store: each push changes the value and is acked at once.

    Args:
        kept: The most pushes whose workers are recorded.

    Attributes:
        arrivals: The workers of the pushes, in the order of arrival; `forget` empties it.
    """

    def __init__(
        self,
        intake: ReceiveBuffer,
        slot: Slot,
        clients: Sequence[int],
        optimizer: str,
        max_arrivals: int,
    ) -> None:
        super().__init__(intake, slot, clients)
        self._optimizer = registry.create_optimizer(optimizer, slot.count)
        self._pushed = intake.scratch(slot.count)
        self._arrivals: npt.NDArray[np.int32] = np.zeros(max_arrivals, np.int32)
        self._count = 0

    @property
    def arrivals(self) -> npt.NDArray[np.int32]:
        return self._arrivals[: self._count]

    def clear_arrivals(self) -> None:
        """Empty the record of arrivals."""
        self._count = 0

    def handle_push(self, worker: int) -> None:
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
