import asyncio
import json
from contextlib import suppress

import pytest

from spbench.engine.connections import admission
from spbench.engine.connections.collector import Collector
from spbench.engine.connections.rank_connection import RankIdentity
from spbench_core.events.rank_events import MAX_HELLO, MAX_LINE, encode
from unit.events import rank_event
from unit.heard import PATIENCE, Heard, until

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

    async def line(self):
        async with asyncio.timeout(PATIENCE):
            return json.loads(await self._reader.readline())

    async def ended(self):
        """Wait until the collector has ended the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                while await self._reader.read(1 << 16):
                    pass
            except ConnectionError:
                pass

    async def close(self):
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


class Console:
    """A collector that listens, and peers that connect to it."""

    def __init__(self):
        self.heard = Heard()
        self.collector = Collector(TOKEN, self.heard)
        self.port = 0
        self._peers = []

    async def connect(self):
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port))
        self._peers.append(peer)
        return peer

    async def rank(self, rank=0):
        """Connect as a rank that has shown the token."""
        peer = await self.connect()
        await peer.send(hello(rank))
        assert await peer.line() == {"reply": "hello"}
        return peer

    async def close(self):
        await self.collector.close()
        for peer in self._peers:
            await peer.close()


@pytest.fixture
async def console():
    raised = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    console = Console()
    console.port = await console.collector.listen("127.0.0.1")
    yield console
    await console.close()
    assert raised == []


@pytest.fixture
def heard(console):
    return console.heard


def hello(rank=0, token=TOKEN, **fields):
    return rank_event("hello", rank, token=token, **fields)


def beats(first, last):
    return [rank_event("heartbeat", seq=seq) for seq in range(first, last + 1)]


# Ranks


async def test_a_ranks_events_arrive_in_order_with_their_lines(console, heard):
    peer = await console.rank(3)
    await peer.send(*beats(1, 2))
    await peer.send(*beats(3, 3))
    await until(lambda: len(heard.events) == 4)
    assert heard.seqs == [0, 1, 2, 3]
    assert [json.loads(line) for line in heard.lines] == heard.events
    assert set(heard.sources) == set(console.collector.ranks)
    assert heard.sources[0].identity == RankIdentity("node01", 11, 3)


async def test_the_token_is_not_recorded(console, heard):
    await console.rank()
    assert heard.events[0]["event"] == "hello"
    assert TOKEN not in repr(heard.events)
    assert TOKEN.encode() not in b"".join(heard.lines)


async def test_a_hello_may_come_in_two_halves(console, heard):
    peer = await console.connect()
    line = encode(hello())
    await peer.send_bytes(line[:20])
    await asyncio.sleep(0.02)
    assert heard.events == []
    await peer.send_bytes(line[20:])
    await until(lambda: heard.seqs == [0])


async def test_hello_and_events_may_come_in_one_write_cut_anywhere(console, heard):
    peer = await console.connect()
    text = b"".join(map(encode, [hello(), *beats(1, 500)]))
    await peer.send_bytes(text[:-5])
    await until(lambda: len(heard.events) == 500)
    await peer.send_bytes(text[-5:])
    await until(lambda: len(heard.events) == 501)
    assert heard.seqs == list(range(501))


async def test_a_line_may_be_as_long_as_allowed(console, heard):
    peer = await console.rank()
    room = MAX_LINE - len(encode(rank_event("log", seq=1, message="")))
    await peer.send(rank_event("log", seq=1, message="x" * room), *beats(2, 2))
    await until(lambda: heard.seqs == [0, 1, 2])
    assert heard.violations == []


async def test_a_rank_gets_answers(console, heard):
    peer = await console.rank()
    heard.sources[0].reply(reply="bye")
    assert await peer.line() == {"reply": "bye"}


async def test_an_answer_to_a_rank_that_is_gone_is_nothing(console, heard):
    peer = await console.rank()
    await peer.close()
    await until(lambda: heard.lost)
    heard.sources[0].reply(reply="bye")
    heard.sources[0].close()


async def test_the_end_of_a_ranks_connection_is_told_once(console, heard):
    peer = await console.rank()
    await peer.close()
    await until(lambda: heard.lost)
    assert heard.lost == [heard.sources[0]]
    assert console.collector.ranks == ()


async def test_closing_ends_all_connections(console, heard):
    rank = await console.rank()
    stranger = await console.connect()
    await console.collector.close()
    await rank.ended()
    await stranger.ended()
    with pytest.raises(ConnectionError):
        await console.connect()


# Ranks that break the protocol


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (b"garbage\n", "sent a line that is no event"),
        (b"\n", "sent a line that is no event"),
        (b'{"event":[],"rank":0,"seq":1,"time":1}\n', "sent a line that is no event"),
        (encode(beats(2, 2)[0]), "sent event 2 where 1 was due"),
        (b"".join(map(encode, [*beats(1, 1), *beats(5, 6)])), "sent event 5 where 2 was due"),
        (b"x" * (MAX_LINE + 1), f"sent a line of more than {MAX_LINE} bytes"),
    ],
    ids=["garbage", "empty line", "no kind", "gap", "gap in a batch", "endless line"],
)
async def test_a_rank_that_breaks_the_protocol_is_ended(console, heard, lines, why):
    peer = await console.rank()
    await peer.send_bytes(lines)
    await peer.ended()
    await until(lambda: heard.lost)
    assert len(heard.violations) == 1
    assert why in heard.violations[0]


@pytest.mark.parametrize("wrong", [b"garbage\n", encode(beats(7, 7)[0])], ids=["garbage", "gap"])
async def test_what_was_right_before_a_wrong_line_is_delivered(console, heard, wrong):
    peer = await console.rank()
    await peer.send_bytes(b"".join(map(encode, beats(1, 2))) + wrong + encode(beats(3, 3)[0]))
    await peer.ended()
    await until(lambda: heard.lost)
    assert heard.seqs == [0, 1, 2]
    assert len(heard.lines) == 3
    assert len(heard.violations) == 1


async def test_an_event_that_comes_twice_is_a_violation(console, heard):
    peer = await console.rank()
    await peer.send(*beats(1, 1), *beats(1, 1))
    await peer.ended()
    assert len(heard.violations) == 1


async def test_a_rank_whose_line_never_ends_is_ended_before_ten_mebibytes(console, heard):
    peer = await console.rank()
    with pytest.raises(ConnectionError):
        await flood(peer)
    assert heard.violations == [f"sent a line of more than {MAX_LINE} bytes"]


async def test_a_hello_without_a_rank_is_a_rank_that_does_not_know_its_number(console, heard):
    event = hello()
    del event["rank"]
    peer = await console.connect()
    await peer.send(event)
    await until(lambda: heard.sources or heard.strangers)
    assert not heard.sources or heard.sources[0].identity.rank is None


# Strangers


async def flood(peer):
    """Send a line of 10 MiB; the collector must not wait for its end."""
    async with asyncio.timeout(PATIENCE):
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
async def test_who_does_not_show_the_token_is_dropped(console, heard, data):
    rank = await console.rank()
    peer = await console.connect()
    await peer.send_bytes(data)
    await peer.ended()
    assert len(heard.strangers) == 1
    assert heard.lost == heard.violations == []
    await rank.send(*beats(1, 1))
    await until(lambda: heard.seqs == [0, 1])


async def test_a_stranger_whose_line_never_ends_is_ended_before_ten_mebibytes(console, heard):
    peer = await console.connect()
    with pytest.raises(ConnectionError):
        await flood(peer)
    assert heard.strangers == ["sent more than a greeting"]


async def test_a_stranger_who_goes_away_is_nothing(console, heard):
    peer = await console.connect()
    await peer.send_bytes(b"half a li")
    await peer.close()
    await console.rank()
    assert heard.strangers == heard.lost == heard.violations == []


async def test_who_says_nothing_is_dropped_after_a_while(console, heard, monkeypatch):
    monkeypatch.setattr(admission, "CONNECT_TIMEOUT", 0.05)
    rank = await console.rank()
    silent = await console.connect()
    slow = await console.connect()
    await slow.send_bytes(b'{"event"')
    await silent.ended()
    await slow.ended()
    assert heard.strangers == ["said nothing for 0.05 s"] * 2
    await rank.send(*beats(1, 1))
    await until(lambda: heard.seqs == [0, 1])
