"""Admission of ranks that all connect at once: how many are let in, and how long it takes.

    python -m benchmarks.admission [--ranks 4000] [--strangers 5000] [--stopped-ranks 1000]

The console's collector runs in a process of its own, and ranks connect to it by the code of real
ranks, each over a socket of its own, from threads of several processes that start together.
First a burst; then a burst beside strangers who hold connections and say nothing; then, beside as
many strangers, a burst while the console is stopped (SIGSTOP) for 2 s, before which as many
strangers again come to fill the kernel's queue. A rank that is not let in ends the command with
exit code 1.
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
from benchmarks.goals import Figure, argument_parser, table

from spbench.engine.connections.collector import Collector
from spbench.engine.connections.descriptors import raise_file_limit
from spbench.engine.connections.rank_connection import RankConnection
from spbench_core.events import rank_events
from spbench_core.events.fields import Event
from spbench_workers.channel.connect import connect_to_console

PROCESSES = 4
STOPPED = 2.0
"""Seconds for which the console is stopped."""
STACK = 256 * 1024
"""Bytes of a thread's stack: there are thousands."""
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Burst:
    """Ranks that connected at once.

    Attributes:
        let_in: How many ranks know that they were let in.
        recorded: How many different ranks the collector has told of.
        seconds: From the start of the first to the welcome of the last.
    """

    ranks: int
    let_in: int
    recorded: int
    strangers: int
    seconds: float

    @property
    def dropped(self) -> int:
        """Ranks that either side does not know."""
        return self.ranks - min(self.let_in, self.recorded)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=4000, help="of the bursts (default: 4000)")
    parser.add_argument("--strangers", type=int, default=5000, help="default: 5000")
    parser.add_argument("--stopped-ranks", type=int, default=1000, help="default: 1000")
    words = parser.parse_args()
    figures: list[Figure] = []
    dropped = 0
    for strangers, ranks, stopped in (
        (0, words.ranks, 0.0),
        (words.strangers, words.ranks, 0.0),
        (words.strangers, words.stopped_ranks, STOPPED),
    ):
        burst = burst_of(ranks, strangers, stopped)
        dropped += burst.dropped
        figures += shown(burst, stopped)
    print(table(figures))
    sys.exit(1 if dropped else 0)


def shown(burst: Burst, stopped: float) -> list[Figure]:
    beside = f", {burst.strangers:,} strangers" if burst.strangers else ""
    halted = f", console stopped for {stopped:g} s" if stopped else ""
    name = f"{burst.ranks:,} ranks{beside}{halted}"
    return [
        Figure(f"{name}: let in", burst.let_in, "ranks", least=burst.ranks),
        Figure(f"{name}: recorded", burst.recorded, "ranks", least=burst.ranks),
        Figure(f"{name}: time", burst.seconds, "s"),
    ]


def burst_of(ranks: int, strangers: int, stopped: float = 0.0) -> Burst:
    """Let ranks connect at once to a collector that has strangers, and count who is let in."""
    raise_file_limit()
    here, there = _SPAWN.Pipe()
    console = _SPAWN.Process(target=serve, args=(there, ranks))
    console.start()
    try:
        port = here.recv()
        with held(strangers) as idle, RankBurst(port, ranks) as ready:
            come(idle, port)
            # until all are accepted; it answers in turn
            here.send("how many?")
            here.recv()
            with halted(console.pid, stopped), held(strangers if stopped else 0) as more:
                come(more, port)
                let_in, seconds = ready.connect()
                here.send("how many?")
                return Burst(ranks, let_in, here.recv(), strangers, seconds)
    finally:
        here.send(None)
        console.join()


@contextmanager
def held(strangers: int) -> Iterator[list[socket.socket]]:
    """Hold sockets that say nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.socket()) for _ in range(strangers)]


def come(strangers: list[socket.socket], port: int) -> None:
    """Connect, as far as the kernel takes connections now."""
    for stranger in strangers:
        stranger.setblocking(False)
        stranger.connect_ex((LOOPBACK, port))


@contextmanager
def halted(pid: int | None, seconds: float) -> Iterator[None]:
    """Stop a process, to go on by itself after so many seconds; with none it goes on as it is."""
    if not seconds:
        yield
        return
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    again = threading.Timer(seconds, os.kill, (pid, signal.SIGCONT))
    again.start()
    try:
        yield
    finally:
        again.join()


# Ranks


class RankBurst:
    """Ranks that are ready to connect, in processes of their own."""

    def __init__(self, port: int, ranks: int) -> None:
        self._go = _SPAWN.Event()
        self._pipes: list[Connection[Any, Any]] = []
        self._processes: list[SpawnProcess] = []
        for number in range(PROCESSES):
            here, there = _SPAWN.Pipe()
            words = (there, self._go, port, range(number, ranks, PROCESSES))
            self._pipes.append(here)
            self._processes.append(_SPAWN.Process(target=connect_some, args=words))

    def __enter__(self) -> RankBurst:
        """Start the processes, and wait until their threads are there."""
        for process in self._processes:
            process.start()
        for pipe in self._pipes:
            pipe.recv()
        return self

    def connect(self) -> tuple[int, float]:
        """Let all connect now; return how many were let in, and the seconds it took."""
        began = time.monotonic()
        self._go.set()
        answers = [pipe.recv() for pipe in self._pipes]
        return sum(answers), time.monotonic() - began

    def __exit__(self, *_: object) -> None:
        """End the connections and the processes."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send("end")
            process.join()


def connect_some(
    orders: Connection[Any, Any], go: SharedEvent, port: int, ranks: Sequence[int]
) -> None:
    """Connect these ranks, a thread each, and hold their connections until told to end."""
    raise_file_limit()
    threading.stack_size(STACK)
    let_in: list[socket.socket] = []

    def connect(rank: int) -> None:
        hello = hello_of(rank)
        go.wait()
        found = connect_to_console([f"{LOOPBACK}:{port}"], hello)
        if found is not None:
            let_in.append(found.connection)

    threads = [threading.Thread(target=connect, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    orders.send("ready")
    for thread in threads:
        thread.join()
    orders.send(len(let_in))
    orders.recv()
    for connection in let_in:
        connection.close()


def hello_of(rank: int) -> bytes:
    head = {"event": "hello", "rank": rank, "seq": 0, "time": BASE}
    return rank_events.encode(head | {"token": TOKEN, "host": "node01", "pid": 1000 + rank})


# The console


def serve(orders: Connection[Any, Any], ranks: int) -> None:
    """Run a collector; say its port, then how many ranks it knows each time it is asked."""
    raise_file_limit()
    asyncio.run(_serve(orders, ranks))


async def _serve(orders: Connection[Any, Any], ranks: int) -> None:
    listener = AdmissionCount()
    collector = Collector(TOKEN, listener, ranks)
    orders.send(await collector.listen(LOOPBACK))
    while await asyncio.to_thread(orders.recv) is not None:
        orders.send(len(listener.ranks - listener.lost))
    await collector.close()


class AdmissionCount:
    """The ranks that have come and stayed."""

    def __init__(self) -> None:
        self.ranks: set[int | None] = set()
        self.lost: set[int | None] = set()

    def on_events(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Note who says hello."""
        self.ranks.update(event["rank"] for event in events if event["event"] == "hello")

    def on_violation(self, source: RankConnection, why: str) -> None:
        """Count it as lost."""
        self.lost.add(source.identity.rank)

    def on_lost(self, source: RankConnection) -> None:
        """Count it as lost."""
        self.lost.add(source.identity.rank)

    def on_relay_lost(self, host: str, ranks: int, why: str) -> None:
        """There are no relays here."""

    def on_rejected(self, peer: str, why: str) -> None:
        """Strangers are meant to be there."""


if __name__ == "__main__":
    main()
