"""Admission of connections: tokens, limits and unauthenticated peers."""

import asyncio
import errno
import json
import logging
import resource
import socket
from contextlib import ExitStack, contextmanager

import pytest
from benchmarks.admission import measure_burst

from spbench.engine.connections.admission import Admission
from spbench_core.events.rank_events import encode
from support.collector_listener import wait_until
from support.sample_events import rank_event

TOKEN = "s3cret"
LOOPBACK = "127.0.0.1"
ELSEWHERE = "127.0.0.9"
"""Another address of this machine, used as that of another host."""


class ListeningAdmission:
    """A listening admission and the peers that it admitted and rejected."""

    def __init__(self, max_pending=1000, **times):
        self.admitted = []
        self.rejected = []
        self.admission = Admission(TOKEN, max_pending, self._admit, self._reject, **times)
        self.port = self.admission.listen(LOOPBACK)

    def _admit(self, connection, peer, hello, remainder):
        self.admitted.append(hello["rank"])
        connection.sendall(b"in\n")
        connection.close()

    def _reject(self, peer, reason):
        self.rejected.append((peer, reason))

    def connect(self, stack, data=b"", source=LOOPBACK):
        """Open a connection that sends data and waits."""
        peer = socket.create_connection((LOOPBACK, self.port), source_address=(source, 0))
        stack.enter_context(peer)
        peer.sendall(data)
        return peer

    @property
    def pending(self):
        return self.admission.pending


@pytest.fixture
async def server():
    server = ListeningAdmission()
    yield server
    server.admission.close()


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def hello(rank=0, token=TOKEN):
    return encode(rank_event("hello", rank, token=token))


def format_addresses(peers):
    return [f"{LOOPBACK}:{peer.getsockname()[1]}" for peer in peers]


@contextmanager
def limit_descriptors(count):
    """Let the soft limit allow only ``count`` more descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        highest = probe.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_admits_all_ranks_despite_earlier_unauthenticated_peers(server, stack):
    for _ in range(300):
        server.connect(stack)
    for rank in range(300):
        server.connect(stack, hello(rank))
    await wait_until(lambda: len(server.admitted) == 300)
    assert sorted(server.admitted) == list(range(300))
    assert (server.pending, server.rejected) == (300, [])


async def test_full_admission_drops_the_oldest_silent_connection(stack, messages):
    server = ListeningAdmission(max_pending=3)
    silent = [server.connect(stack) for _ in range(2)]
    slow = server.connect(stack, hello(7)[:20])
    await wait_until(lambda: server.pending == 3)
    more = [server.connect(stack) for _ in range(2)]
    await wait_until(lambda: len(server.rejected) == 2)
    assert [peer for peer, _ in server.rejected] == format_addresses(silent)
    messages.check(server.rejected[0][1])
    slow.sendall(hello(7)[20:])
    await wait_until(lambda: server.admitted == [7])
    assert server.pending == len(more)
    server.admission.close()


async def test_reads_received_data_before_dropping_a_connection(stack):
    """The loop sees new connections first, but still reads data of older ones."""
    server = ListeningAdmission(max_pending=1)
    rank = server.connect(stack)
    await wait_until(lambda: server.pending == 1)
    rank.sendall(hello(5))
    for _ in range(3):
        server.connect(stack)
    server.admission._accept()
    assert server.admitted == [5]
    server.admission.close()


async def test_drops_addresses_with_a_wrong_token_first(
    stack,
):
    server = ListeningAdmission(max_pending=2)
    older = server.connect(stack)
    await wait_until(lambda: server.pending == 1)
    suspected = server.connect(stack, source=ELSEWHERE)
    server.connect(stack, hello(token="wrong"), source=ELSEWHERE)
    await wait_until(lambda: len(server.rejected) == 1)
    server.connect(stack)
    await wait_until(lambda: len(server.rejected) == 2)
    assert server.rejected[1][0] == f"{ELSEWHERE}:{suspected.getsockname()[1]}"
    older.sendall(hello(1))
    server.connect(stack, hello(2), source=ELSEWHERE)
    await wait_until(lambda: sorted(server.admitted) == [1, 2])
    server.admission.close()


async def test_drops_silent_connections_by_their_age(stack):
    server = ListeningAdmission(hello_seconds=0.1)
    first = server.connect(stack)
    await wait_until(lambda: server.pending == 1)
    await asyncio.sleep(0.05)
    second = server.connect(stack, b'{"event"')
    await wait_until(lambda: len(server.rejected) == 2)
    assert [peer for peer, _ in server.rejected] == format_addresses([first, second])
    assert {reason for _, reason in server.rejected} == {"said nothing for 0.1 s"}
    server.admission.close()


async def test_without_descriptors_drops_silent_peers_and_admits_ranks(server, stack):
    peers = [socket.socket() for _ in range(40)]
    for peer in peers:
        stack.enter_context(peer)
    with limit_descriptors(10):
        for peer in peers[:30]:
            peer.connect((LOOPBACK, server.port))
        await wait_until(lambda: len(server.rejected) >= 20)
        for rank, peer in enumerate(peers[30:]):
            peer.connect((LOOPBACK, server.port))
            peer.sendall(hello(rank))
        await wait_until(lambda: len(server.admitted) == 10)
    assert sorted(server.admitted) == list(range(10))


async def test_without_any_descriptor_waits_and_logs_nothing(stack, monkeypatch):
    server = ListeningAdmission(accept_pause_seconds=0.02)
    attempts = []
    log_records = []
    monkeypatch.setattr(logging.getLogger("asyncio"), "handle", log_records.append)
    listening = server.admission._listening_socket

    class FullListening:
        def __getattr__(self, name):
            return getattr(listening, name)

        def accept(self):
            attempts.append(1)
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(server.admission, "_listening_socket", FullListening())
    server.connect(stack, hello(4))
    await wait_until(lambda: len(attempts) >= 3)
    await asyncio.sleep(0.1)
    assert len(attempts) < 12
    monkeypatch.setattr(server.admission, "_listening_socket", listening)
    await wait_until(lambda: server.admitted == [4])
    assert log_records == []
    server.admission.close()


async def test_passes_on_data_after_the_hello(stack):
    calls = []
    admitting = Admission(TOKEN, 10, lambda *arguments: calls.append(arguments), lambda *_: None)
    port = admitting.listen(LOOPBACK)
    peer = stack.enter_context(socket.create_connection((LOOPBACK, port)))
    peer.sendall(hello(1) + b"and more")
    await wait_until(lambda: calls)
    (connection, peer_address, event, remainder), *_ = calls
    connection.close()
    admitting.close()
    assert peer_address == f"{LOOPBACK}:{peer.getsockname()[1]}"
    assert (event, remainder) == (json.loads(hello(1)), b"and more")


@pytest.mark.slow
def test_admits_a_burst_of_ranks_after_the_console_was_stopped():
    burst = measure_burst(ranks=200, idle=300, stopped=1.0)
    assert (burst.admitted, burst.recorded, burst.dropped) == (200, 200, 0)
    assert burst.seconds > 0.9
