"""The ranks of `benchmarks.scale`: synthetic ranks on synthetic nodes.

    python -m benchmarks.scale_ranks RANKS NODES SECONDS RATE CASE CHECK

It replaces a launcher and all that it starts: a few processes simulate the nodes. Each rank has a
connection. If ranks share their node's connection, each node has a relay with the workers' code,
and its ranks connect to that.
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

from benchmarks.goals import make_argument_parser

from spbench.engine.connections.descriptors import raise_file_limit
from spbench_core.events import rank_events
from spbench_workers.channel.base import encode_event
from spbench_workers.channel.connect import connect_to_console, make_relay_name
from spbench_workers.relay import carry_events

PROCESSES = 4
TURNS = 20
"""Turns per second. In each, a share of the ranks sends, because real ranks are not in step."""
VALUES = 5
"""Samples in one event."""


class Rank(asyncio.Protocol):
    """A simulated rank: its numbered lines, and the console's answers."""

    def __init__(self, rank: int, job: Namespace, go: SharedEvent) -> None:
        self._rank = rank
        self._job = job
        self._go = go
        self._seq = 0
        self._ready = self._measuring = False
        self._unread = b""
        self._transport: asyncio.Transport | None = None
        self.finished = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        token = os.environ[rank_events.ENV_TOKEN]
        self.send("hello", token=token, **self._describe_process())

    def data_received(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._answer(json.loads(line)["reply"])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.finished.is_set():
            sys.exit(f"rank {self._rank} was cut off")

    def send(self, kind: str, **fields: Any) -> None:
        """Send an event."""
        assert self._transport is not None
        self._transport.write(encode_event(kind, self._rank, self._seq, fields))
        self._seq += 1

    def send_of_case(self, kind: str, **fields: Any) -> None:
        """Send an event of the case."""
        self.send(kind, case=self._job.case, repeat=0, **fields)

    def start(self) -> None:
        """Start the case."""
        self.send_of_case("case_start")
        self._measuring = True

    def send_samples(self, rate: float) -> None:
        """Send the events of one second: a heartbeat, and ``rate`` events of samples."""
        if self._ready:
            self.send("heartbeat")
        if self._measuring:
            for _ in range(int(rate) + (random.random() < rate % 1)):
                values = [round(random.lognormvariate(0, 0.1), 4) for _ in range(VALUES)]
                self.send_of_case("samples", metric="time_ms", values=values)

    def end(self) -> None:
        """End the case, and disconnect."""
        fields = {"passed": True, "max_abs_error": 0.0, "tolerance": 0.0, "detail": ""}
        self.send_of_case("check", name=self._job.check, **fields)
        self.send_of_case("case_end", status="ok")
        self.send("bye")

    def _answer(self, reply: str) -> None:
        if reply == "hello":
            self.send("ready", **self._describe_process(), **self._describe_machine())
            self._ready = True
        elif reply == "cases":
            self._go.set()
        elif reply == "bye":
            self.finished.set()
            assert self._transport is not None
            self._transport.close()

    def _describe_process(self) -> dict[str, Any]:
        return {"host": format_host(find_node(self._rank, self._job)), "pid": 1000 + self._rank}

    def _describe_machine(self) -> dict[str, Any]:
        node = find_node(self._rank, self._job)
        first_rank = -(-node * self._job.ranks // self._job.nodes)  # rounded up
        local_rank = self._rank - first_rank
        placement = {"local_rank": local_rank, "cpus": [local_rank], "numa": 0, "threads": 1}
        versions = {"python": "3.11", "mpi": "made up"}
        facts = {"size": self._job.ranks, "device": "cpu", "fabric": "made up"}
        return {**placement, **facts, "versions": versions}


def find_node(rank: int, job: Namespace) -> int:
    """Return the node of a rank: nodes are filled one by one."""
    return int(rank * job.nodes // job.ranks)


def format_host(node: int) -> str:
    """Return the name of a node."""
    return f"node{node:03d}"


def main() -> None:
    job = parse_arguments()
    context = multiprocessing.get_context("spawn")
    go = context.Event()
    processes = [
        context.Process(target=run_nodes, args=(job, range(number, job.nodes, PROCESSES), go))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))


def parse_arguments() -> Namespace:
    """Return the job of the ranks."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("ranks", type=int)
    parser.add_argument("nodes", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("rate", type=float)
    parser.add_argument("case")
    parser.add_argument("check")
    return parser.parse_args()


def run_nodes(job: Namespace, nodes: range, go: SharedEvent) -> None:
    """Simulate some of the nodes."""
    raise_file_limit()
    asyncio.run(_run_nodes(job, nodes, go))


async def _run_nodes(job: Namespace, nodes: range, go: SharedEvent) -> None:
    own_nodes = set(nodes)
    ranks = {
        number: Rank(number, job, go)
        for number in range(job.ranks)
        if find_node(number, job) in own_nodes
    }
    sender = asyncio.create_task(_send_periodically(list(ranks.values()), job.rate))
    relays = []
    for node in nodes:
        relays += await _start_relay(node)
        node_ranks = [rank for number, rank in ranks.items() if find_node(number, job) == node]
        await asyncio.gather(*(_connect(rank, node) for rank in node_ranks))
    while not go.is_set():
        await asyncio.sleep(1 / TURNS)
    for rank in ranks.values():
        rank.start()
    await asyncio.sleep(job.seconds)
    sender.cancel()
    for rank in ranks.values():
        rank.end()
    await asyncio.gather(*(rank.finished.wait() for rank in ranks.values()))
    await asyncio.gather(*relays)


async def _send_periodically(ranks: list[Rank], rate: float) -> None:
    """Let each ready rank send once per second, until this is cancelled."""
    while True:
        started = time.monotonic()
        for turn in range(TURNS):
            for rank in ranks[turn::TURNS]:
                rank.send_samples(rate)
            await asyncio.sleep(max(0.0, started + (turn + 1) / TURNS - time.monotonic()))


async def _connect(rank: Rank, node: int) -> None:
    loop = asyncio.get_running_loop()
    if _shares_connection():
        await loop.create_unix_connection(lambda: rank, _format_socket_name(node))
    else:
        address, _, port = os.environ[rank_events.ENV_COLLECTOR].rpartition(":")
        await loop.create_connection(lambda: rank, address, int(port))


async def _start_relay(node: int) -> list[asyncio.Task[None]]:
    """Start a node's relay, if ranks share a connection."""
    if not _shares_connection():
        return []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(_format_socket_name(node))
    listener.listen(4096)
    token = os.environ[rank_events.ENV_TOKEN]
    fields = {"token": token, "host": format_host(node), "pid": 900, "relay": True}
    addresses = os.environ[rank_events.ENV_COLLECTOR].split(",")
    hello = encode_event("hello", None, 0, fields)
    welcome = await asyncio.to_thread(connect_to_console, addresses, hello)
    if welcome is None:
        sys.exit(f"the relay of {format_host(node)} was not let in")
    welcome.connection.setblocking(False)
    return [asyncio.create_task(carry_events(listener, welcome.connection, welcome.received))]


def _shares_connection() -> bool:
    return os.environ.get(rank_events.ENV_FAN_IN) == "node"


def _format_socket_name(node: int) -> str:
    return make_relay_name(f"{os.environ[rank_events.ENV_TOKEN]} {format_host(node)}")


if __name__ == "__main__":
    main()
