"""The ranks of `benchmarks.scale`: made up, each with a connection of its own, on made-up nodes.

    python -m benchmarks.scale_ranks RANKS NODES SECONDS RATE CASE CHECK

It stands for a launcher and all that it starts: some processes play the nodes. Where ranks share
their node's connection, each node has a relay of the real code, and its ranks connect to that.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import socket
import sys
import time
from argparse import Namespace
from multiprocessing.synchronize import Event as SharedEvent
from typing import Any, cast

from benchmarks.goals import argument_parser

from spbench.engine.connections.descriptors import raise_file_limit
from spbench_core.events import rank_events
from spbench_workers.channel.base import encode_event
from spbench_workers.channel.connect import connect_to_console, relay_name
from spbench_workers.relay import carry_events

PROCESSES = 4
TURNS = 20
"""Turns a second, in each of which a share of the ranks speaks: real ranks are not in step."""
VALUES = 5
"""Samples in one event."""


class Rank(asyncio.Protocol):
    """One rank: its lines, numbered, and the console's answers to it."""

    def __init__(self, rank: int, job: Namespace, go: SharedEvent) -> None:
        self._rank = rank
        self._job = job
        self._go = go
        self._seq = 0
        self._ready = self._measuring = False
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self.through = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        token = os.environ[rank_events.ENV_TOKEN]
        self.say("hello", token=token, **self._process())

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._answer(json.loads(line)["reply"])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.through.is_set():
            sys.exit(f"rank {self._rank} was cut off")

    def say(self, kind: str, **fields: Any) -> None:
        """Send an event."""
        assert self._transport is not None
        self._transport.write(encode_event(kind, self._rank, self._seq, fields))
        self._seq += 1

    def of_case(self, kind: str, **fields: Any) -> None:
        """Send an event of the case."""
        self.say(kind, case=self._job.case, repeat=0, **fields)

    def start(self) -> None:
        """Start the case."""
        self.of_case("case_start")
        self._measuring = True

    def beat(self, rate: float) -> None:
        """Send what is due in a second: a heartbeat, and so many events of samples."""
        if self._ready:
            self.say("heartbeat")
        if self._measuring:
            for _ in range(int(rate) + (random.random() < rate % 1)):
                values = [round(random.lognormvariate(0, 0.1), 4) for _ in range(VALUES)]
                self.of_case("samples", metric="time_ms", values=values)

    def end(self) -> None:
        """End the case, and say bye."""
        fields = {"passed": True, "max_abs_error": 0.0, "tolerance": 0.0, "detail": ""}
        self.of_case("check", name=self._job.check, **fields)
        self.of_case("case_end", status="ok")
        self.say("bye")

    def _answer(self, reply: str) -> None:
        if reply == "hello":
            self.say("ready", **self._process(), **self._machine())
            self._ready = True
        elif reply == "cases":
            self._go.set()
        elif reply == "bye":
            self.through.set()
            assert self._transport is not None
            self._transport.close()

    def _process(self) -> dict[str, Any]:
        return {"host": host(node_of(self._rank, self._job)), "pid": 1000 + self._rank}

    def _machine(self) -> dict[str, Any]:
        local = self._rank - -(-node_of(self._rank, self._job) * self._job.ranks // self._job.nodes)
        place = {"local_rank": local, "cpus": [local], "numa": 0, "threads": 1}
        versions = {"python": "3.11", "mpi": "made up"}
        more = {"size": self._job.ranks, "device": "cpu", "fabric": "made up"}
        return {**place, **more, "versions": versions}


def node_of(rank: int, job: Namespace) -> int:
    """Return the node of a rank: they are filled one by one."""
    return int(rank * job.nodes // job.ranks)


def host(node: int) -> str:
    """Return the name of a node."""
    return f"node{node:03d}"


def main() -> None:
    job = asked()
    context = multiprocessing.get_context("spawn")
    go = context.Event()
    processes = [
        context.Process(target=play, args=(job, range(number, job.nodes, PROCESSES), go))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))


def asked() -> Namespace:
    """Return the job that the ranks play."""
    parser = argument_parser(__doc__)
    parser.add_argument("ranks", type=int)
    parser.add_argument("nodes", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("rate", type=float)
    parser.add_argument("case")
    parser.add_argument("check")
    return parser.parse_args()


def play(job: Namespace, nodes: range, go: SharedEvent) -> None:
    """Play some of the nodes."""
    raise_file_limit()
    asyncio.run(_play(job, nodes, go))


async def _play(job: Namespace, nodes: range, go: SharedEvent) -> None:
    mine = set(nodes)
    ranks = {n: Rank(n, job, go) for n in range(job.ranks) if node_of(n, job) in mine}
    beating = asyncio.create_task(_beat(list(ranks.values()), job.rate))
    relays = []
    for node in nodes:
        relays += await _relay(node)
        here = [rank for n, rank in ranks.items() if node_of(n, job) == node]
        await asyncio.gather(*(_connect(rank, node) for rank in here))
    while not go.is_set():
        await asyncio.sleep(1 / TURNS)
    for rank in ranks.values():
        rank.start()
    await asyncio.sleep(job.seconds)
    beating.cancel()
    for rank in ranks.values():
        rank.end()
    await asyncio.gather(*(rank.through.wait() for rank in ranks.values()))
    await asyncio.gather(*relays)


async def _beat(ranks: list[Rank], rate: float) -> None:
    """Let each rank that is ready speak once a second, until this is cancelled."""
    while True:
        began = time.monotonic()
        for turn in range(TURNS):
            for rank in ranks[turn::TURNS]:
                rank.beat(rate)
            await asyncio.sleep(max(0.0, began + (turn + 1) / TURNS - time.monotonic()))


async def _connect(rank: Rank, node: int) -> None:
    loop = asyncio.get_running_loop()
    if _shared():
        await loop.create_unix_connection(lambda: rank, _name(node))
    else:
        address, _, port = os.environ[rank_events.ENV_COLLECTOR].rpartition(":")
        await loop.create_connection(lambda: rank, address, int(port))


async def _relay(node: int) -> list[asyncio.Task[None]]:
    """Start a node's relay, where there is one."""
    if not _shared():
        return []
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(_name(node))
    listening.listen(4096)
    token = os.environ[rank_events.ENV_TOKEN]
    fields = {"token": token, "host": host(node), "pid": 900, "relay": True}
    addresses = os.environ[rank_events.ENV_COLLECTOR].split(",")
    hello = encode_event("hello", None, 0, fields)
    let_in = await asyncio.to_thread(connect_to_console, addresses, hello)
    if let_in is None:
        sys.exit(f"the relay of {host(node)} was not let in")
    let_in.connection.setblocking(False)
    return [asyncio.create_task(carry_events(listening, let_in.connection, let_in.received))]


def _shared() -> bool:
    return os.environ.get(rank_events.ENV_FAN_IN) == "node"


def _name(node: int) -> str:
    return relay_name(f"{os.environ[rank_events.ENV_TOKEN]} {host(node)}")


if __name__ == "__main__":
    main()
