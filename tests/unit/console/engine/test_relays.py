"""Ranks behind real relays, told by the collector; and relays that are made up."""

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

from places import ROOT
from spbench.engine import processes
from spbench.engine.connections.collector import Collector
from spbench_core.events import rank_events
from spbench_core.events.fan_in import HEARTBEAT_FRAME, FrameDecoder, encode_frame
from spbench_core.events.rank_events import encode
from unit.events import rank_event
from unit.heard import Heard, until

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
    """A collector, and real ranks of one node that reach it by a relay."""

    def __init__(self):
        self.run = f"test-{secrets.token_hex(8)}"
        self.token = secrets.token_hex(16)
        self.heard = Heard()
        self.collector = Collector(self.token, self.heard, 4)
        self.port = 0
        self.ranks = []

    async def start(self, count):
        """Start so many ranks, the next only when the one before was let in."""
        given = {rank_events.ENV_COLLECTOR: f"127.0.0.1:{self.port}"}
        given |= {rank_events.ENV_TOKEN: self.token, rank_events.ENV_RUN: self.run}
        given |= {rank_events.ENV_FAN_IN: "node"}
        for rank in range(len(self.ranks), len(self.ranks) + count):
            environ = os.environ | given | {"PMI_RANK": str(rank)}
            self.ranks.append(
                await asyncio.create_subprocess_exec(
                    sys.executable, "-c", RANK, env=environ, stderr=asyncio.subprocess.DEVNULL
                )
            )
            # a rank that has not heard its answer yet would come back by another relay
            await until(lambda: self.let_in == len(self.ranks))

    @property
    def let_in(self):
        return sum(event.get("message") == "let in" for event in self.heard.events)

    def source(self, rank):
        return next(one for one in self.heard.sources if one.identity.rank == rank)

    @property
    def relays(self):
        """The processes of relays on this host."""
        return [pid for pid in processes.find_processes(self.run) if b".relay" in words_of(pid)]

    async def ended(self):
        """The ranks' exit statuses, once all have ended and the relay too."""
        async with asyncio.timeout(20):
            statuses = [await rank.wait() for rank in self.ranks]
        await until(lambda: not processes.find_processes(self.run))
        return statuses


def words_of(pid):
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


async def test_ranks_of_a_node_share_a_connection_and_each_gets_its_own_answers(node):
    await node.start(3)
    heard = node.heard
    collector = node.collector
    assert [event["rank"] for event in heard.events if event["event"] == "hello"] == [0, 1, 2]
    assert {one.peer for one in collector.ranks} == {heard.sources[0].peer}
    assert len(node.relays) == 1
    assert os.getpriority(os.PRIO_PROCESS, node.relays[0]) > 0
    for rank in (2, 0, 1):
        node.source(rank).reply(reply="cases", cases=[{"id": f"case {rank}"}])
    await until(lambda: sum(event["event"] == "bye" for event in heard.events) == 3)
    said = {event["rank"]: event["message"] for event in heard.events if event["event"] == "log"}
    assert said == {rank: f"case {rank}" for rank in range(3)}
    for rank in range(3):
        mine = [event["seq"] for event in heard.events if event["rank"] == rank]
        assert mine == list(range(len(mine)))
        node.source(rank).ended = True
        node.source(rank).reply(reply="bye")
    assert await node.ended() == [0, 0, 0]
    assert heard.relays_lost == heard.violations == heard.strangers == []
    assert collector.ranks == ()


async def test_a_rank_that_dies_is_named_and_the_others_stay_though_it_started_the_relay(node):
    await node.start(2)
    node.ranks[0].kill()
    await until(lambda: node.heard.lost)
    assert [one.identity.rank for one in node.heard.lost] == [0]
    node.source(1).reply(reply="cases", cases=[{"id": "on"}])
    await until(lambda: node.heard.events[-1]["event"] == "bye")
    node.source(1).reply(reply="bye")
    assert await node.ended() == [-signal.SIGKILL, 0]
    assert node.heard.relays_lost == []


async def test_a_relay_that_dies_is_named_and_its_ranks_end_without_blame(node):
    await node.start(2)
    os.kill(node.relays[0], signal.SIGKILL)
    await until(lambda: node.heard.relays_lost)
    assert node.heard.relays_lost == [(socket.gethostname(), 2, "ended")]
    assert await node.ended() == [75, 75]
    assert node.heard.lost == node.heard.violations == []
    assert node.collector.ranks == ()


async def test_relay_and_ranks_end_with_the_console(node):
    await node.start(2)
    await node.collector.close()
    assert await node.ended() == [75, 75]


# Made-up relays


class MadeUp:
    """A relay's end of a connection to a collector."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._pieces = FrameDecoder()
        self.writer = writer

    async def pieces(self, count):
        """The next pieces, so many."""
        found = []
        async with asyncio.timeout(5):
            while len(found) < count:
                found += self._pieces.feed(await self._reader.read(1 << 16))
        return found

    async def ended(self):
        async with asyncio.timeout(5):
            while await self._reader.read(1 << 16):
                pass


@pytest.fixture
async def relay(node):
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(encode(rank_event("hello", None, token=node.token, relay=True)))
    assert await reader.readline() == b'{"reply":"hello"}\n'
    yield MadeUp(reader, writer)
    writer.close()


def hello(node, rank=0, **fields):
    return encode(rank_event("hello", rank, token=node.token) | fields)


async def test_a_relay_is_no_rank(node, relay):
    assert node.heard.events == []
    relay.writer.close()
    await asyncio.sleep(0.05)
    assert node.heard.relays_lost == node.heard.lost == []


async def test_a_hello_may_come_in_pieces_and_events_behind_it(node, relay):
    line = hello(node, 4) + encode(rank_event("heartbeat", 4, seq=1))
    relay.writer.write(encode_frame(3, line[:30]) + HEARTBEAT_FRAME + encode_frame(3, line[30:]))
    await until(lambda: len(node.heard.events) == 2)
    assert await relay.pieces(1) == [(3, b'{"reply":"hello"}\n')]
    assert node.token not in repr(node.heard.events)


@pytest.mark.parametrize(
    "line", [b"garbage\n", b"x" * 5000, None], ids=["garbage", "long", "token"]
)
async def test_behind_a_relay_too_only_the_token_lets_in(node, relay, line):
    wrong = hello(node, 0, token="wrong") if line is None else line
    relay.writer.write(encode_frame(1, wrong) + encode_frame(2, hello(node, 2)))
    await until(lambda: node.heard.events)
    assert await relay.pieces(2) == [(1, b""), (2, b'{"reply":"hello"}\n')]
    assert len(node.heard.strangers) == 1
    assert [event["rank"] for event in node.heard.events] == [2]


async def test_a_gap_is_seen_behind_a_relay_and_ends_that_rank_alone(node, relay):
    relay.writer.write(encode_frame(1, hello(node, 1)) + encode_frame(2, hello(node, 2)))
    relay.writer.write(encode_frame(1, encode(rank_event("heartbeat", 1, seq=5))))
    await until(lambda: node.heard.violations)
    assert node.heard.violations == ["sent event 5 where 1 was due"]
    assert (1, b"") in await relay.pieces(3)
    relay.writer.write(encode_frame(2, encode(rank_event("heartbeat", 2, seq=1))))
    await until(lambda: len(node.heard.events) == 3)


async def test_a_relay_that_breaks_the_protocol_is_ended(node, relay):
    relay.writer.write(encode_frame(1, hello(node, 1)) + b"no head of any piece at all\n")
    await relay.ended()
    await until(lambda: node.heard.relays_lost)
    (_, ranks, why), *_ = node.heard.relays_lost
    assert ranks == 1
    assert why.startswith("sent what no relay sends")


async def test_a_relay_without_a_sign_of_life_is_named_before_its_ranks(node, relay, monkeypatch):
    assert node.collector.relay_silence < rank_events.SILENCE_LIMIT - 1
    monkeypatch.setattr(node.collector, "relay_silence", 0.1)
    relay.writer.write(encode_frame(1, hello(node, 1)))
    await until(lambda: node.heard.relays_lost)
    assert node.heard.relays_lost == [("node01", 1, "has been silent for 1 s")]
    assert node.heard.lost == []


async def test_a_relay_whose_ranks_have_all_said_bye_may_go(node, relay):
    relay.writer.write(encode_frame(1, hello(node, 1)))
    await until(lambda: node.heard.sources)
    node.heard.sources[0].ended = True
    relay.writer.close()
    await until(lambda: node.collector.ranks == ())
    assert node.heard.relays_lost == node.heard.lost == []


@pytest.mark.long
@pytest.mark.slow
def test_many_made_up_ranks_go_through_the_whole_console_without_loss():
    words = ["--ranks", "64", "--nodes", "4", "--seconds", "2", "--no-tui"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "64 ranks on 4 nodes, node: passed" in done.stdout
