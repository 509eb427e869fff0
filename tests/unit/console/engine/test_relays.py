"""Ranks behind relays: connections, losses, and simulated relays."""

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from spbench.engine import processes
from spbench.engine.connections.collector import Collector
from spbench_core.events import rank_events
from spbench_core.events.fan_in import HEARTBEAT_FRAME, FrameDecoder, encode_frame
from spbench_core.events.rank_events import encode
from support.collector_listener import RecordingListener, wait_until
from support.paths import ROOT
from support.sample_events import rank_event

pytestmark = pytest.mark.slow
RANK = """
import os
from spbench_workers.channel.opening import open_channel

channel = open_channel(os.environ)
channel.send("log", level="info", message="let in")
[case] = channel.receive_cases()
channel.send("log", level="info", message=case["id"])
channel.close()
"""


class Node:
    """A collector and rank processes of one node that reach it through a relay."""

    def __init__(self):
        self.run = f"test-{secrets.token_hex(8)}"
        self.token = secrets.token_hex(16)
        self.listener = RecordingListener()
        self.collector = Collector(self.token, self.listener, 4)
        self.port = 0
        self.ranks = []

    async def start(self, count):
        """Start ``count`` ranks, each after the previous one was admitted."""
        variables = {rank_events.ENV_COLLECTOR: f"127.0.0.1:{self.port}"}
        variables |= {rank_events.ENV_TOKEN: self.token, rank_events.ENV_RUN: self.run}
        variables |= {rank_events.ENV_FAN_IN: "node"}
        for rank in range(len(self.ranks), len(self.ranks) + count):
            environ = os.environ | variables | {"PMI_RANK": str(rank)}
            self.ranks.append(
                await asyncio.create_subprocess_exec(
                    sys.executable, "-c", RANK, env=environ, stderr=asyncio.subprocess.DEVNULL
                )
            )
            # a rank without its reply would reconnect through another relay
            await wait_until(lambda: self.admitted_count == len(self.ranks))

    @property
    def admitted_count(self):
        return sum(event.get("message") == "let in" for event in self.listener.events)

    def find_connection(self, rank):
        return next(source for source in self.listener.sources if source.identity.rank == rank)

    @property
    def relays(self):
        """Process ids of the relays on this host."""
        return [
            pid for pid in processes.find_processes(self.run) if b".relay" in read_command_line(pid)
        ]

    async def wait_for_end(self):
        """Return the exit statuses of the ranks, once they and the relay have ended."""
        async with asyncio.timeout(20):
            statuses = [await rank.wait() for rank in self.ranks]
        await wait_until(lambda: not processes.find_processes(self.run))
        return statuses


def read_command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
async def node():
    node = Node()
    node.port = await node.collector.listen("127.0.0.1")
    yield node
    await node.collector.close()
    for pid in processes.find_processes(node.run):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for rank in node.ranks:
        await rank.wait()


async def test_ranks_of_a_node_share_a_connection(node):
    await node.start(3)
    listener = node.listener
    collector = node.collector
    assert [event["rank"] for event in listener.events if event["event"] == "hello"] == [0, 1, 2]
    assert {connection.peer for connection in collector.ranks} == {listener.sources[0].peer}
    assert len(node.relays) == 1
    assert os.getpriority(os.PRIO_PROCESS, node.relays[0]) > 0
    for rank in (2, 0, 1):
        node.find_connection(rank).reply(reply="cases", cases=[{"id": f"case {rank}"}])
    await wait_until(lambda: sum(event["event"] == "bye" for event in listener.events) == 3)
    messages = {
        event["rank"]: event["message"] for event in listener.events if event["event"] == "log"
    }
    assert messages == {rank: f"case {rank}" for rank in range(3)}
    for rank in range(3):
        numbers = [event["seq"] for event in listener.events if event["rank"] == rank]
        assert numbers == list(range(len(numbers)))
        node.find_connection(rank).ended = True
        node.find_connection(rank).reply(reply="bye")
    assert await node.wait_for_end() == [0, 0, 0]
    assert listener.relays_lost == listener.violations == listener.rejected == []
    assert collector.ranks == ()


async def test_lost_rank_does_not_end_its_relay_or_other_ranks(node):
    await node.start(2)
    node.ranks[0].kill()
    await wait_until(lambda: node.listener.lost)
    assert [connection.identity.rank for connection in node.listener.lost] == [0]
    node.find_connection(1).reply(reply="cases", cases=[{"id": "on"}])
    await wait_until(lambda: node.listener.events[-1]["event"] == "bye")
    node.find_connection(1).reply(reply="bye")
    assert await node.wait_for_end() == [-signal.SIGKILL, 0]
    assert node.listener.relays_lost == []


async def test_lost_relay_is_reported_and_not_its_ranks(node):
    await node.start(2)
    os.kill(node.relays[0], signal.SIGKILL)
    await wait_until(lambda: node.listener.relays_lost)
    assert node.listener.relays_lost == [(socket.gethostname(), 2, "ended")]
    assert await node.wait_for_end() == [75, 75]
    assert node.listener.lost == node.listener.violations == []
    assert node.collector.ranks == ()


async def test_relay_and_ranks_end_with_the_console(node):
    await node.start(2)
    await node.collector.close()
    assert await node.wait_for_end() == [75, 75]


# Simulated relays


class SimulatedRelay:
    """The relay side of a connection to a collector."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._decoder = FrameDecoder()
        self.writer = writer

    async def read_frames(self, count):
        """Return at least ``count`` frames."""
        frames = []
        async with asyncio.timeout(5):
            while len(frames) < count:
                frames += self._decoder.feed(await self._reader.read(1 << 16))
        return frames

    async def wait_until_closed(self):
        async with asyncio.timeout(5):
            while await self._reader.read(1 << 16):
                pass


@pytest.fixture
async def relay(node):
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(encode(rank_event("hello", None, token=node.token, relay=True)))
    assert await reader.readline() == b'{"reply":"hello"}\n'
    yield SimulatedRelay(reader, writer)
    writer.close()


def hello(node, rank=0, **fields):
    return encode(rank_event("hello", rank, token=node.token) | fields)


async def test_relay_is_not_a_rank(node, relay):
    assert node.listener.events == []
    relay.writer.close()
    await asyncio.sleep(0.05)
    assert node.listener.relays_lost == node.listener.lost == []


async def test_accepts_a_hello_in_several_frames(node, relay):
    line = hello(node, 4) + encode(rank_event("heartbeat", 4, seq=1))
    relay.writer.write(encode_frame(3, line[:30]) + HEARTBEAT_FRAME + encode_frame(3, line[30:]))
    await wait_until(lambda: len(node.listener.events) == 2)
    assert await relay.read_frames(1) == [(3, b'{"reply":"hello"}\n')]
    assert node.token not in repr(node.listener.events)


@pytest.mark.parametrize(
    "line", [b"garbage\n", b"x" * 5000, None], ids=["garbage", "long", "token"]
)
async def test_admits_ranks_behind_a_relay_only_with_the_token(node, relay, line):
    rejected = hello(node, 0, token="wrong") if line is None else line
    relay.writer.write(encode_frame(1, rejected) + encode_frame(2, hello(node, 2)))
    await wait_until(lambda: node.listener.events)
    assert await relay.read_frames(2) == [(1, b""), (2, b'{"reply":"hello"}\n')]
    assert len(node.listener.rejected) == 1
    assert [event["rank"] for event in node.listener.events] == [2]


async def test_gap_behind_a_relay_disconnects_only_that_rank(node, relay, messages):
    relay.writer.write(encode_frame(1, hello(node, 1)) + encode_frame(2, hello(node, 2)))
    relay.writer.write(encode_frame(1, encode(rank_event("heartbeat", 1, seq=5))))
    await wait_until(lambda: node.listener.violations)
    messages.check(node.listener.violations)
    assert (1, b"") in await relay.read_frames(3)
    relay.writer.write(encode_frame(2, encode(rank_event("heartbeat", 2, seq=1))))
    await wait_until(lambda: len(node.listener.events) == 3)


async def test_disconnects_a_relay_that_violates_the_protocol(node, relay, messages):
    relay.writer.write(encode_frame(1, hello(node, 1)) + b"not a frame header at all\n")
    await relay.wait_until_closed()
    await wait_until(lambda: node.listener.relays_lost)
    (_, ranks, reason), *_ = node.listener.relays_lost
    assert ranks == 1
    messages.check(reason)


async def test_silent_relay_is_reported_before_its_ranks(node, relay, monkeypatch):
    assert node.collector.relay_silence_timeout < rank_events.SILENCE_LIMIT - 1
    monkeypatch.setattr(node.collector, "relay_silence_timeout", 0.1)
    relay.writer.write(encode_frame(1, hello(node, 1)))
    await wait_until(lambda: node.listener.relays_lost)
    assert node.listener.relays_lost == [("node01", 1, "has been silent for 1 s")]
    assert node.listener.lost == []


async def test_relay_may_disconnect_after_bye_of_all_ranks(node, relay):
    relay.writer.write(encode_frame(1, hello(node, 1)))
    await wait_until(lambda: node.listener.sources)
    node.listener.sources[0].ended = True
    relay.writer.close()
    await wait_until(lambda: node.collector.ranks == ())
    assert node.listener.relays_lost == node.listener.lost == []


@pytest.mark.long
@pytest.mark.slow
def test_scale_benchmark_with_64_ranks_passes():
    options = ["--ranks", "64", "--nodes", "4", "--seconds", "10"]
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "64 ranks on 4 nodes, node: passed" in process.stdout
    assert "page: a key's answer" in process.stdout
