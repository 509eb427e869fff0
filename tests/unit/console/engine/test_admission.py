import asyncio
import errno
import json
import resource
import socket
from contextlib import ExitStack, contextmanager

import pytest
from benchmarks.admission import measure_burst

from spbench.engine.connections import admission
from spbench.engine.connections.admission import Admission
from spbench_core.events.rank_events import encode
from unit.events import rank_event
from unit.heard import until

TOKEN = "s3cret"
LOOPBACK = "127.0.0.1"
ELSEWHERE = "127.0.0.9"
"""Another address of this machine, as another host would have."""


class Door:
    """An admission that listens, and what it has told."""

    def __init__(self, room=1000):
        self.admitted = []
        self.turned_away = []
        self.admission = Admission(TOKEN, room, self._admit, self._turn_away)
        self.port = self.admission.listen(LOOPBACK)

    def _admit(self, connection, peer, hello, rest):
        self.admitted.append(hello["rank"])
        connection.sendall(b"in\n")
        connection.close()

    def _turn_away(self, peer, why):
        self.turned_away.append((peer, why))

    def connect(self, stack, says=b"", source=LOOPBACK):
        """A connection that has said this and waits."""
        peer = socket.create_connection((LOOPBACK, self.port), source_address=(source, 0))
        stack.enter_context(peer)
        peer.sendall(says)
        return peer

    @property
    def waiting(self):
        return self.admission.pending


@pytest.fixture
async def door():
    door = Door()
    yield door
    door.admission.close()


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def hello(rank=0, token=TOKEN):
    return encode(rank_event("hello", rank, token=token))


def ports(peers):
    return [f"{LOOPBACK}:{peer.getsockname()[1]}" for peer in peers]


@contextmanager
def files_left(count):
    """So many more descriptors as the soft limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        highest = probe.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_ranks_that_come_at_once_are_all_let_in_though_strangers_came_first(door, stack):
    for _ in range(300):
        door.connect(stack)
    for rank in range(300):
        door.connect(stack, hello(rank))
    await until(lambda: len(door.admitted) == 300)
    assert sorted(door.admitted) == list(range(300))
    assert (door.waiting, door.turned_away) == (300, [])


async def test_where_room_is_short_the_oldest_who_stays_silent_goes(stack):
    door = Door(room=3)
    silent = [door.connect(stack) for _ in range(2)]
    slow = door.connect(stack, hello(7)[:20])
    await until(lambda: door.waiting == 3)
    more = [door.connect(stack) for _ in range(2)]
    await until(lambda: len(door.turned_away) == 2)
    assert [peer for peer, _ in door.turned_away] == ports(silent)
    assert "when connections ran short" in door.turned_away[0][1]
    slow.sendall(hello(7)[20:])
    await until(lambda: door.admitted == [7])
    assert door.waiting == len(more)
    door.admission.close()


async def test_what_has_been_sent_is_read_before_a_connection_goes(stack):
    """The loop sees new connections before the words of an older one, and reads them still."""
    door = Door(room=1)
    rank = door.connect(stack)
    await until(lambda: door.waiting == 1)
    rank.sendall(hello(5))
    for _ in range(3):
        door.connect(stack)
    door.admission._accept()
    assert door.admitted == [5]
    door.admission.close()


async def test_addresses_that_showed_a_wrong_token_go_first_and_are_let_in_with_the_right_one(
    stack,
):
    door = Door(room=2)
    older = door.connect(stack)
    await until(lambda: door.waiting == 1)
    suspected = door.connect(stack, source=ELSEWHERE)
    door.connect(stack, hello(token="wrong"), source=ELSEWHERE)
    await until(lambda: len(door.turned_away) == 1)
    door.connect(stack)
    await until(lambda: len(door.turned_away) == 2)
    assert door.turned_away[1][0] == f"{ELSEWHERE}:{suspected.getsockname()[1]}"
    older.sendall(hello(1))
    door.connect(stack, hello(2), source=ELSEWHERE)
    await until(lambda: sorted(door.admitted) == [1, 2])
    door.admission.close()


async def test_age_alone_ends_who_has_not_spoken(door, stack, monkeypatch):
    monkeypatch.setattr(admission, "CONNECT_TIMEOUT", 0.1)
    first = door.connect(stack)
    await until(lambda: door.waiting == 1)
    await asyncio.sleep(0.05)
    second = door.connect(stack, b'{"event"')
    await until(lambda: len(door.turned_away) == 2)
    assert [peer for peer, _ in door.turned_away] == ports([first, second])
    assert {why for _, why in door.turned_away} == {"said nothing for 0.1 s"}


async def test_without_descriptors_the_silent_go_and_ranks_come_in(door, stack):
    peers = [socket.socket() for _ in range(40)]
    for peer in peers:
        stack.enter_context(peer)
    with files_left(10):
        for peer in peers[:30]:
            peer.connect((LOOPBACK, door.port))
        await until(lambda: len(door.turned_away) >= 20)
        for rank, peer in enumerate(peers[30:]):
            peer.connect((LOOPBACK, door.port))
            peer.sendall(hello(rank))
        await until(lambda: len(door.admitted) == 10)
    assert sorted(door.admitted) == list(range(10))


async def test_without_any_descriptor_it_waits_and_logs_nothing(door, stack, monkeypatch, caplog):
    tried = []
    goes = door.admission._listening

    class Full:
        def __getattr__(self, name):
            return getattr(goes, name)

        def accept(self):
            tried.append(1)
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(door.admission, "_listening", Full())
    monkeypatch.setattr(admission, "PAUSE", 0.02)
    door.connect(stack, hello(4))
    await until(lambda: len(tried) >= 3)
    await asyncio.sleep(0.1)
    assert len(tried) < 12
    monkeypatch.setattr(door.admission, "_listening", goes)
    await until(lambda: door.admitted == [4])
    assert caplog.records == []


async def test_what_comes_after_the_hello_is_handed_on(stack):
    handed = []
    door = Admission(TOKEN, 10, lambda *given: handed.append(given), lambda *_: None)
    port = door.listen(LOOPBACK)
    peer = stack.enter_context(socket.create_connection((LOOPBACK, port)))
    peer.sendall(hello(1) + b"and more")
    await until(lambda: handed)
    (connection, told, event, rest), *_ = handed
    connection.close()
    door.close()
    assert told == f"{LOOPBACK}:{peer.getsockname()[1]}"
    assert (event, rest) == (json.loads(hello(1)), b"and more")


@pytest.mark.slow
def test_a_burst_of_ranks_beside_strangers_comes_in_though_the_console_stood_still():
    burst = measure_burst(ranks=200, strangers=300, stopped=1.0)
    assert (burst.let_in, burst.recorded, burst.dropped) == (200, 200, 0)
    assert burst.seconds > 0.9
