"""The collector: rank connections, protocol violations and unauthenticated peers."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager, suppress

import pytest

from spbench.engine.connections.collector import Collector
from spbench.engine.connections.rank_connection import RankIdentity
from spbench_core.events.rank_events import MAX_HELLO, MAX_LINE, encode
from support.collector_listener import DEADLINE, RecordingListener, wait_until
from support.sample_events import rank_event

TOKEN = "s3cret"


class Peer:
    """The other end of a connection to the collector."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer

    async def send(self, *events):
        await self.send_bytes(b"".join(map(encode, events)))

    async def send_bytes(self, data):
        self._writer.write(data)
        await self._writer.drain()

    async def read_line(self):
        async with asyncio.timeout(DEADLINE):
            return json.loads(await self._reader.readline())

    async def wait_until_closed(self):
        """Wait until the collector has ended the connection."""
        async with asyncio.timeout(DEADLINE):
            try:
                while await self._reader.read(1 << 16):
                    pass
            except ConnectionError:
                pass

    def end(self):
        """End the connection at once, without a turn of the event loop."""
        self._writer.get_extra_info("socket").shutdown(socket.SHUT_WR)

    async def close(self):
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


class ListeningCollector:
    """A collector that listens, and peers that connect to it."""

    def __init__(self, **times):
        self.listener = RecordingListener()
        self.collector = Collector(TOKEN, self.listener, **times)
        self.port = 0
        self._peers = []

    async def connect(self):
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port))
        self._peers.append(peer)
        return peer

    async def connect_rank(self, rank=0):
        """Connect like a rank that sent the token."""
        peer = await self.connect()
        await peer.send(hello(rank))
        assert await peer.read_line() == {"reply": "hello"}
        return peer

    async def close(self):
        await self.collector.close()
        for peer in self._peers:
            await peer.close()


@asynccontextmanager
async def open_console(**times):
    raised = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    console = ListeningCollector(**times)
    console.port = await console.collector.listen("127.0.0.1")
    yield console
    await console.close()
    assert raised == []


@pytest.fixture
async def console():
    async with open_console() as console:
        yield console


@pytest.fixture
def listener(console):
    return console.listener


def hello(rank=0, token=TOKEN, **fields):
    return rank_event("hello", rank, token=token, **fields)


def heartbeats(first, last):
    return [rank_event("heartbeat", seq=seq) for seq in range(first, last + 1)]


# Ranks


async def test_events_of_a_rank_arrive_in_order_with_their_lines(console, listener):
    peer = await console.connect_rank(3)
    await peer.send(*heartbeats(1, 2))
    await peer.send(*heartbeats(3, 3))
    await wait_until(lambda: len(listener.events) == 4)
    assert listener.seqs == [0, 1, 2, 3]
    assert [json.loads(line) for line in listener.lines] == listener.events
    assert set(listener.sources) == set(console.collector.ranks)
    assert listener.sources[0].identity == RankIdentity("node01", 11, 3)


async def test_token_is_not_recorded(console, listener):
    await console.connect_rank()
    assert listener.events[0]["event"] == "hello"
    assert TOKEN not in repr(listener.events)
    assert TOKEN.encode() not in b"".join(listener.lines)


async def test_accepts_a_hello_in_two_parts(console, listener):
    peer = await console.connect()
    line = encode(hello())
    await peer.send_bytes(line[:20])
    await asyncio.sleep(0.02)
    assert listener.events == []
    await peer.send_bytes(line[20:])
    await wait_until(lambda: listener.seqs == [0])


async def test_accepts_hello_and_events_in_one_write(console, listener):
    peer = await console.connect()
    data = b"".join(map(encode, [hello(), *heartbeats(1, 500)]))
    await peer.send_bytes(data[:-5])
    await wait_until(lambda: len(listener.events) == 500)
    await peer.send_bytes(data[-5:])
    await wait_until(lambda: len(listener.events) == 501)
    assert listener.seqs == list(range(501))


async def test_accepts_a_line_of_maximum_length(console, listener):
    peer = await console.connect_rank()
    length = MAX_LINE - len(encode(rank_event("log", seq=1, message="")))
    await peer.send(rank_event("log", seq=1, message="x" * length), *heartbeats(2, 2))
    await wait_until(lambda: listener.seqs == [0, 1, 2])
    assert listener.violations == []


async def test_rank_receives_replies(console, listener):
    peer = await console.connect_rank()
    listener.sources[0].reply(reply="bye")
    assert await peer.read_line() == {"reply": "bye"}


async def test_ignores_a_reply_to_a_lost_rank(console, listener):
    peer = await console.connect_rank()
    await peer.close()
    await wait_until(lambda: listener.lost)
    listener.sources[0].reply(reply="bye")
    listener.sources[0].close()
    assert listener.lost == [listener.sources[0]]
    assert listener.violations == []


async def test_reports_a_lost_connection_once(console, listener):
    peer = await console.connect_rank()
    await peer.close()
    await wait_until(lambda: listener.lost)
    assert listener.lost == [listener.sources[0]]
    assert console.collector.ranks == ()


async def test_reports_lost_connections_in_the_order_of_their_ends(console, listener, monkeypatch):
    """Both end while the console is busy with events of the one that ends later."""
    first, second = [await console.connect_rank(rank) for rank in (0, 1)]
    await second.send(*heartbeats(1, 2))
    await wait_until(lambda: len(listener.events) == 4)

    def end_both(source, lines, events):
        RecordingListener.on_events(listener, source, lines, events)
        second.end()
        first.end()

    monkeypatch.setattr(listener, "on_events", end_both)
    await first.send(*heartbeats(1, 1))
    await wait_until(lambda: len(listener.lost) == 2)
    assert [source.identity.rank for source in listener.lost] == [1, 0]


async def test_close_ends_all_connections(console, listener):
    rank = await console.connect_rank()
    unauthenticated = await console.connect()
    await console.collector.close()
    await rank.wait_until_closed()
    await unauthenticated.wait_until_closed()
    with pytest.raises(ConnectionError):
        await console.connect()


# Ranks that break the protocol


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (b"garbage\n", "sent a line that is no event"),
        (b"\n", "sent a line that is no event"),
        (b'{"event":[],"rank":0,"seq":1,"time":1}\n', "sent a line that is no event"),
        (encode(heartbeats(2, 2)[0]), "sent event 2 where 1 was due"),
        (
            b"".join(map(encode, [*heartbeats(1, 1), *heartbeats(5, 6)])),
            "sent event 5 where 2 was due",
        ),
        (b"x" * (MAX_LINE + 1), f"sent a line of more than {MAX_LINE} bytes"),
    ],
    ids=["garbage", "empty line", "no kind", "gap", "gap in a batch", "endless line"],
)
async def test_disconnects_a_rank_that_violates_the_protocol(console, listener, lines, reason):
    peer = await console.connect_rank()
    await peer.send_bytes(lines)
    await peer.wait_until_closed()
    await wait_until(lambda: listener.lost)
    assert len(listener.violations) == 1
    assert reason in listener.violations[0]


@pytest.mark.parametrize(
    "invalid", [b"garbage\n", encode(heartbeats(7, 7)[0])], ids=["garbage", "gap"]
)
async def test_delivers_events_before_an_invalid_line(console, listener, invalid):
    peer = await console.connect_rank()
    await peer.send_bytes(
        b"".join(map(encode, heartbeats(1, 2))) + invalid + encode(heartbeats(3, 3)[0])
    )
    await peer.wait_until_closed()
    await wait_until(lambda: listener.lost)
    assert listener.seqs == [0, 1, 2]
    assert len(listener.lines) == 3
    assert len(listener.violations) == 1


async def test_repeated_event_is_a_violation(console, listener):
    peer = await console.connect_rank()
    await peer.send(*heartbeats(1, 1), *heartbeats(1, 1))
    await peer.wait_until_closed()
    assert len(listener.violations) == 1


async def test_disconnects_a_rank_with_an_endless_line(console, listener):
    peer = await console.connect_rank()
    with pytest.raises(ConnectionError):
        await flood(peer)
    assert listener.violations == [f"sent a line of more than {MAX_LINE} bytes"]


async def test_accepts_a_hello_without_a_rank(console, listener):
    event = hello()
    del event["rank"]
    peer = await console.connect()
    await peer.send(event)
    await wait_until(lambda: listener.sources or listener.rejected)
    assert not listener.sources or listener.sources[0].identity.rank is None


# Unauthenticated connections


async def flood(peer):
    """Send a line of 10 MiB; the collector must not wait for its end."""
    async with asyncio.timeout(DEADLINE):
        for _ in range(160):
            await peer.send_bytes(b"x" * (1 << 16))


@pytest.mark.parametrize(
    "data",
    [
        encode(hello(token="wrong")),
        encode(hello(token="wrong")) + b"x" * (MAX_HELLO + 1),
        encode(hello(token="")),
        encode(hello(token=TOKEN + "x")),
        encode(hello(token="tökén")),
        json.dumps(hello(token="\ud800")).encode() + b"\n",
        encode(hello(token=TOKEN, filler="x" * MAX_HELLO)),
        encode(rank_event("bye", token=TOKEN)),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
        b"\n",
        b"[" * 4000 + b"\n",
        b'{"event":[],"rank":0,"seq":0,"time":1}\n',
        b"x" * (MAX_HELLO + 1),
    ],
    ids=[
        "wrong token",
        "wrong token and more",
        "empty token",
        "longer token",
        "token beyond ASCII",
        "token of half a character",
        "long hello",
        "no hello",
        "HTTP",
        "TLS",
        "empty line",
        "nesting bomb",
        "no kind",
        "endless line",
    ],
)
async def test_disconnects_a_peer_without_the_token(console, listener, data):
    rank = await console.connect_rank()
    peer = await console.connect()
    await peer.send_bytes(data)
    await peer.wait_until_closed()
    assert len(listener.rejected) == 1
    assert listener.lost == listener.violations == []
    await rank.send(*heartbeats(1, 1))
    await wait_until(lambda: listener.seqs == [0, 1])


async def test_endless_line_disconnects_an_unauthenticated_peer(console, listener):
    peer = await console.connect()
    with pytest.raises(ConnectionError):
        await flood(peer)
    assert listener.rejected == ["sent more than a greeting"]


async def test_ignores_an_unauthenticated_peer_that_disconnects(console, listener):
    peer = await console.connect()
    await peer.send_bytes(b"half a li")
    await peer.close()
    await console.connect_rank()
    assert listener.rejected == listener.lost == listener.violations == []


async def test_disconnects_silent_peers_after_the_timeout():
    async with open_console(hello_seconds=0.05) as console:
        rank = await console.connect_rank()
        silent = await console.connect()
        slow = await console.connect()
        await slow.send_bytes(b'{"event"')
        await silent.wait_until_closed()
        await slow.wait_until_closed()
        assert console.listener.rejected == ["said nothing for 0.05 s"] * 2
        await rank.send(*heartbeats(1, 1))
        await wait_until(lambda: console.listener.seqs == [0, 1])
