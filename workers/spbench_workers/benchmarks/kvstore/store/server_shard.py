"""Shard of a key on a server (kvstore_dist_server of MXNet): value, sum and acks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.compression import Code, Compression
from spbench_workers.benchmarks.kvstore.keys.sharding import PULL, PUSH, TaggedShard
from spbench_workers.benchmarks.kvstore.optimizers import registry


class ReceiveBuffer:
    """Receive memory of a server; its shards share it and handle one push at a time.

    Args:
        comm: All ranks of the job.
        elements: Elements of the largest shard.
        compression: The compression of pushes; None for float32.
    """

    def __init__(self, comm: MPI.Intracomm, elements: int, compression: Compression | None) -> None:
        self.comm = comm
        self._compression = compression
        self._array: Float32Array = np.zeros(elements, np.float32)
        code_bytes = compression.nbytes(elements) if compression else 0
        self._code: Code = np.zeros(code_bytes, np.uint8)

    def receive(self, source: int, tag: int, into: Float32Array) -> None:
        """Receive a push, and decode it if it is compressed."""
        if self._compression is None:
            self.comm.Recv(into, source, tag)
            return
        code = self._code[: self._compression.nbytes(len(into))]
        self.comm.Recv(code, source, tag)
        self._compression.decode(code, into)

    def scratch(self, elements: int) -> Float32Array:
        """Return memory for a push, which the next push overwrites."""
        return self._array[:elements]


class ServerShard(ABC):
    """A part of a key on a server, which acks pushes and answers pulls.

    Args:
        receive_buffer: The receive memory of the server.
        tagged_shard: The server, key and elements of the shard.
        clients: The rank of each worker that pushes and pulls the key: its merge device.

    Attributes:
        tagged_shard: The server, key and elements of the shard.
        value: The value that a pull returns.
        violation: A message about the first violation of the order of pushes, acks and pulls; empty
            without a violation.
    """

    def __init__(
        self, receive_buffer: ReceiveBuffer, tagged_shard: TaggedShard, clients: Sequence[int]
    ) -> None:
        self.tagged_shard = tagged_shard
        self.violation = ""
        self.value: Float32Array = np.zeros(tagged_shard.count, np.float32)
        self._receive_buffer = receive_buffer
        self._comm = receive_buffer.comm
        self._clients = clients
        self._nothing = np.zeros(0, np.uint8)
        self._acks = [
            self._comm.Send_init(self._nothing, client, tagged_shard.tag(PUSH))
            for client in clients
        ]
        self._answers = self._make_answers(self.value)
        self._unacked = [False] * len(clients)

    @abstractmethod
    def handle_push(self, worker: int) -> None:
        """Receive and handle an arrived push of a worker."""

    def handle_pull(self, worker: int) -> None:
        """Answer an arrived pull of a worker with the value."""
        self._comm.Recv(self._nothing, self._clients[worker], self.tagged_shard.tag(PULL))
        if self._unacked[worker]:
            self._record_violation(f"worker {worker} pulls before its push is acked")
        self._answers[worker].Wait()
        self._answers[worker].Start()

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes and messages of acks and values that the shard sends in a round."""
        return self.value.nbytes * len(self._clients), 2 * len(self._clients)

    def finish(self) -> None:
        """Wait until all sends are complete."""
        MPI.Request.Waitall(self._acks)
        MPI.Request.Waitall(self._answers)

    def free(self) -> None:
        """Free the persistent requests."""
        for request in (*self._acks, *self._answers):
            request.Free()

    def _make_answers(self, value: Float32Array) -> list[MPI.Prequest]:
        return [
            self._comm.Send_init(value, client, self.tagged_shard.tag(PULL))
            for client in self._clients
        ]

    def _receive(self, worker: int, into: Float32Array) -> None:
        self._receive_buffer.receive(self._clients[worker], self.tagged_shard.tag(PUSH), into)

    def _mark_unacked(self, worker: int) -> None:
        """Record a worker's push as not acked."""
        if self._unacked[worker]:
            self._record_violation(f"worker {worker} pushes twice in a round")
        self._unacked[worker] = True

    def _ack(self, worker: int) -> None:
        self._unacked[worker] = False
        self._acks[worker].Wait()
        self._acks[worker].Start()

    def _record_violation(self, problem: str) -> None:
        self.violation = self.violation or f"key {self.tagged_shard.key}: {problem}"


class SyncServerShard(ServerShard):
    """A shard of a synchronous store: it sums one push per worker, then acks all.

    The first push of a round is received into the sum, and the others are added. Without an
    optimizer, sum and value are swapped instead of copied at the end of a round.

    Args:
        receive_buffer: See `ServerShard`.
        tagged_shard: See `ServerShard`.
        clients: See `ServerShard`.
        optimizer: The optimizer that applies the sum; ``none`` keeps the sum as the value.
    """

    def __init__(
        self,
        receive_buffer: ReceiveBuffer,
        tagged_shard: TaggedShard,
        clients: Sequence[int],
        optimizer: str,
    ) -> None:
        super().__init__(receive_buffer, tagged_shard, clients)
        self._merged: Float32Array = np.zeros(tagged_shard.count, np.float32)
        self._further = receive_buffer.scratch(tagged_shard.count)
        self._optimizer = (
            None
            if optimizer == "none"
            else registry.create_optimizer(optimizer, tagged_shard.count)
        )
        self._spare = [] if self._optimizer else self._make_answers(self._merged)

    def handle_push(self, worker: int) -> None:
        self._add_push(worker, first=not any(self._unacked))
        self._mark_unacked(worker)
        if all(self._unacked):
            self._complete_round()
            for served in range(len(self._clients)):
                self._ack(served)

    def finish(self) -> None:
        super().finish()
        MPI.Request.Waitall(self._spare)

    def free(self) -> None:
        super().free()
        for request in self._spare:
            request.Free()

    def _add_push(self, worker: int, *, first: bool) -> None:
        if first:
            # Sends from this memory must be complete. They are, because all workers pushed again.
            MPI.Request.Waitall(self._spare)
            self._receive(worker, self._merged)
            return
        self._receive(worker, self._further)
        np.add(self._merged, self._further, out=self._merged)

    def _complete_round(self) -> None:
        if self._optimizer is None:
            self.value, self._merged = self._merged, self.value
            self._answers, self._spare = self._spare, self._answers
            return
        MPI.Request.Waitall(self._answers)
        self._optimizer.update(self.value, self._merged)


class AsyncServerShard(ServerShard):
    """A shard of an asynchronous store, which applies and acks each push at once.

    Args:
        receive_buffer: See `ServerShard`.
        tagged_shard: See `ServerShard`.
        clients: See `ServerShard`.
        optimizer: The optimizer that applies each push.
        max_arrivals: The most pushes that are recorded between calls of `clear_arrivals`.

    Attributes:
        arrivals: The workers of the pushes in the order of arrival since `clear_arrivals`.
    """

    def __init__(
        self,
        receive_buffer: ReceiveBuffer,
        tagged_shard: TaggedShard,
        clients: Sequence[int],
        optimizer: str,
        max_arrivals: int,
    ) -> None:
        super().__init__(receive_buffer, tagged_shard, clients)
        self._optimizer = registry.create_optimizer(optimizer, tagged_shard.count)
        self._pushed = receive_buffer.scratch(tagged_shard.count)
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
        self._mark_unacked(worker)
        self._arrivals[self._count] = worker
        self._count += 1
        # Another worker may still receive the previous value.
        MPI.Request.Waitall(self._answers)
        self._apply_push()
        self._ack(worker)

    def _apply_push(self) -> None:
        self._optimizer.update(self.value, self._pushed)
