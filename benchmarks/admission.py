"""Admission of ranks that connect at the same time: how many, and how fast.

    python -m benchmarks.admission [--ranks 4000] [--idle 5000] [--stopped-ranks 1000]

The console's collector runs in a separate process. Ranks connect to it with the workers' code, each
over its own socket, from threads of several processes that start together. There are three bursts:
one without other connections, one with idle unauthenticated connections, and one with these while
the console is stopped (SIGSTOP) for 2 s. Before the stop, the same number of them connects again to
fill the kernel's queue. If a rank is not admitted, the exit code is 1.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event as SharedEvent
from typing import Any

from benchmarks.collector_ranks import BASE, LOOPBACK, TOKEN
from benchmarks.goals import Figure, format_figures, make_argument_parser

from spbench.engine.connections.collector import Collector
from spbench.engine.connections.descriptors import raise_file_limit
from spbench.engine.connections.rank_connection import RankConnection
from spbench_core.events import rank_events
from spbench_core.events.fields import Event
from spbench_workers.channel.connect import connect_to_console

PROCESSES = 4
STOP_SECONDS = 2.0
STACK_BYTES = 256 * 1024  # of a thread: there are thousands of threads
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Burst:
    """Ranks that connected at the same time.

    Attributes:
        admitted: Number of ranks that received the collector's welcome.
        recorded: Number of different ranks that the collector reported.
        seconds: Time from the start of the first rank to the welcome of the last.
    """

    ranks: int
    admitted: int
    recorded: int
    idle: int
    seconds: float

    @property
    def dropped(self) -> int:
        """Number of ranks that one of the sides does not know."""
        return self.ranks - min(self.admitted, self.recorded)


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=4000, help="of the bursts (default: 4000)")
    parser.add_argument("--idle", type=int, default=5000, help="idle connections (default: 5000)")
    parser.add_argument("--stopped-ranks", type=int, default=1000, help="default: 1000")
    options = parser.parse_args()
    figures: list[Figure] = []
    dropped = 0
    for idle, ranks, stopped in (
        (0, options.ranks, 0.0),
        (options.idle, options.ranks, 0.0),
        (options.idle, options.stopped_ranks, STOP_SECONDS),
    ):
        burst = measure_burst(ranks, idle, stopped)
        dropped += burst.dropped
        figures += describe_burst(burst, stopped)
    print(format_figures(figures))
    sys.exit(1 if dropped else 0)


def describe_burst(burst: Burst, stopped: float) -> list[Figure]:
    idle = f", {burst.idle:,} idle connections" if burst.idle else ""
    stop = f", console stopped for {stopped:g} s" if stopped else ""
    name = f"{burst.ranks:,} ranks{idle}{stop}"
    return [
        Figure(f"{name}: let in", burst.admitted, "ranks", minimum=burst.ranks),
        Figure(f"{name}: recorded", burst.recorded, "ranks", minimum=burst.ranks),
        Figure(f"{name}: time", burst.seconds, "s"),
    ]


def measure_burst(ranks: int, idle: int, stopped: float = 0.0) -> Burst:
    """Connect ranks next to idle connections; count the admitted ranks."""
    raise_file_limit()
    pipe, console_pipe = _SPAWN.Pipe()
    console = _SPAWN.Process(target=serve, args=(console_pipe, ranks))
    console.start()
    try:
        port = pipe.recv()
        with open_sockets(idle) as early, RankBurst(port, ranks) as ready:
            start_connecting(early, port)
            # The collector answers after it has accepted all earlier connections.
            pipe.send("how many?")
            pipe.recv()
            with (
                stop_process(console.pid, stopped),
                open_sockets(idle if stopped else 0) as late,
            ):
                start_connecting(late, port)
                admitted, seconds = ready.connect()
                pipe.send("how many?")
                return Burst(ranks, admitted, pipe.recv(), idle, seconds)
    finally:
        pipe.send(None)
        console.join()


@contextmanager
def open_sockets(count: int) -> Iterator[list[socket.socket]]:
    """Open sockets that never send anything."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.socket()) for _ in range(count)]


def start_connecting(sockets: list[socket.socket], port: int) -> None:
    """Start connections without waiting: the kernel's queue may be full."""
    for idle in sockets:
        idle.setblocking(False)
        idle.connect_ex((LOOPBACK, port))


@contextmanager
def stop_process(pid: int | None, seconds: float) -> Iterator[None]:
    """Stop a process for some seconds (SIGSTOP); with 0 seconds do nothing."""
    if not seconds:
        yield
        return
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    continuation = threading.Timer(seconds, os.kill, (pid, signal.SIGCONT))
    continuation.start()
    try:
        yield
    finally:
        continuation.join()


# Ranks


class RankBurst:
    """Ranks that are ready to connect, in several processes."""

    def __init__(self, port: int, ranks: int) -> None:
        self._go = _SPAWN.Event()
        self._pipes: list[Connection[Any, Any]] = []
        self._processes: list[SpawnProcess] = []
        for number in range(PROCESSES):
            pipe, process_pipe = _SPAWN.Pipe()
            args = (process_pipe, self._go, port, range(number, ranks, PROCESSES))
            self._pipes.append(pipe)
            self._processes.append(_SPAWN.Process(target=connect_some, args=args))

    def __enter__(self) -> RankBurst:
        """Start the processes, and wait until all of their threads run."""
        for process in self._processes:
            process.start()
        for pipe in self._pipes:
            pipe.recv()
        return self

    def connect(self) -> tuple[int, float]:
        """Connect all ranks; return the number of admitted ones, and the seconds."""
        started = time.monotonic()
        self._go.set()
        answers = [pipe.recv() for pipe in self._pipes]
        return sum(answers), time.monotonic() - started

    def __exit__(self, *_: object) -> None:
        """End the connections and the processes."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send("end")
            process.join()


def connect_some(
    pipe: Connection[Any, Any], go: SharedEvent, port: int, ranks: Sequence[int]
) -> None:
    """Connect ranks, one thread each; hold the connections until the order to end."""
    raise_file_limit()
    threading.stack_size(STACK_BYTES)
    connections: list[socket.socket] = []

    def connect(rank: int) -> None:
        hello = encode_hello(rank)
        go.wait()
        welcome = connect_to_console([f"{LOOPBACK}:{port}"], hello)
        if welcome is not None:
            connections.append(welcome.connection)

    threads = [threading.Thread(target=connect, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    pipe.send("ready")
    for thread in threads:
        thread.join()
    pipe.send(len(connections))
    pipe.recv()
    for connection in connections:
        connection.close()


def encode_hello(rank: int) -> bytes:
    head = {"event": "hello", "rank": rank, "seq": 0, "time": BASE}
    return rank_events.encode(head | {"token": TOKEN, "host": "node01", "pid": 1000 + rank})


# The console


def serve(pipe: Connection[Any, Any], ranks: int) -> None:
    """Run a collector; send its port, then the number of its ranks on each request."""
    raise_file_limit()
    asyncio.run(_serve(pipe, ranks))


async def _serve(pipe: Connection[Any, Any], ranks: int) -> None:
    listener = AdmissionCount()
    collector = Collector(TOKEN, listener, ranks)
    pipe.send(await collector.listen(LOOPBACK))
    while await asyncio.to_thread(pipe.recv) is not None:
        pipe.send(len(listener.ranks - listener.lost))
    await collector.close()


class AdmissionCount:
    """The ranks that connected and stayed connected."""

    def __init__(self) -> None:
        self.ranks: set[int | None] = set()
        self.lost: set[int | None] = set()

    def on_events(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Count the ranks that send a hello."""
        self.ranks.update(event["rank"] for event in events if event["event"] == "hello")

    def on_violation(self, source: RankConnection, reason: str) -> None:
        """Count the rank as lost."""
        self.lost.add(source.identity.rank)

    def on_lost(self, source: RankConnection) -> None:
        """Count the rank as lost."""
        self.lost.add(source.identity.rank)

    def on_relay_lost(self, host: str, ranks: int, reason: str) -> None:
        """Do nothing: there are no relays."""

    def on_rejected(self, peer: str, reason: str) -> None:
        """Do nothing: unauthenticated peers are expected."""


if __name__ == "__main__":
    main()
