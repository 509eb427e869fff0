import asyncio
import os
import socket
from contextlib import asynccontextmanager

import pytest

from spbench_core.events.fan_in import HEARTBEAT_FRAME, FrameDecoder, encode_frame
from spbench_workers import relay as module
from spbench_workers.channel.connect import make_relay_name
from spbench_workers.relay import carry_events

PATIENCE = 5.0


class Node:
    """A running relay, the console's end of its connection, and its ranks."""

    def __init__(self, **times):
        self.name = make_relay_name(f"token of {os.getpid()}")
        self.console, relay_end = socket.socketpair()
        self.console.setblocking(False)
        relay_end.setblocking(False)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self.name)
        listening.listen()
        self.task = asyncio.create_task(carry_events(listening, relay_end, b"", **times))
        self.pieces = FrameDecoder()
        self.ranks = []

    async def connect_rank(self):
        reader, writer = await asyncio.open_unix_connection(self.name)
        self.ranks.append(writer)
        return reader, writer

    async def receive(self, count):
        """Return the next `count` pieces at the console, without heartbeats."""
        pieces = []
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE):
            while len(pieces) < count:
                data = await loop.sock_recv(self.console, 1 << 16)
                pieces += [piece for piece in self.pieces.feed(data) if piece[0]]
        return pieces

    async def send(self, data):
        await asyncio.get_running_loop().sock_sendall(self.console, data)

    async def end(self):
        self.console.close()
        for writer in self.ranks:
            writer.close()
        async with asyncio.timeout(PATIENCE):
            await self.task


@asynccontextmanager
async def open_node(**times):
    node = Node(**times)
    yield node
    await node.end()


@pytest.fixture
async def node():
    async with open_node() as node:
        yield node


async def test_forwards_messages_and_the_end_of_a_rank(node):
    _, first = await node.connect_rank()
    first.write(b"one\n")
    assert await node.receive(1) == [(1, b"one\n")]
    _, second = await node.connect_rank()
    second.write(b"two\n")
    assert await node.receive(1) == [(2, b"two\n")]
    first.close()
    assert await node.receive(1) == [(1, b"")]


async def test_forwards_replies_and_disconnects_on_an_empty_one(node):
    first, writer = await node.connect_rank()
    writer.write(b"here\n")
    second, second_writer = await node.connect_rank()
    second_writer.write(b"here\n")
    await node.receive(2)
    await node.send(
        encode_frame(2, b"for the second\n")
        + encode_frame(1, b"")
        + encode_frame(9, b"for nobody\n")
    )
    async with asyncio.timeout(PATIENCE):
        assert await second.readline() == b"for the second\n"
        assert await first.read() == b""


async def test_ends_with_the_last_rank_after_sending(node):
    _, writer = await node.connect_rank()
    writer.write(b"bye\n")
    writer.close()
    assert await node.receive(2) == [(1, b"bye\n"), (1, b"")]
    async with asyncio.timeout(PATIENCE):
        await node.task


async def test_disconnects_ranks_with_the_console(node):
    reader, writer = await node.connect_rank()
    writer.write(b"here\n")
    await node.receive(1)
    node.console.close()
    async with asyncio.timeout(PATIENCE):
        assert await reader.read() == b""
        await node.task


async def test_rejects_another_user(node, monkeypatch):
    monkeypatch.setattr(module, "read_peer_user", lambda connection: os.getuid() + 1)
    reader, writer = await node.connect_rank()
    async with asyncio.timeout(PATIENCE):
        assert await reader.read() == b""
    monkeypatch.undo()
    _, writer = await node.connect_rank()
    writer.write(b"mine\n")
    assert await node.receive(1) == [(1, b"mine\n")]


async def test_sends_heartbeats(node):
    async with asyncio.timeout(PATIENCE):
        data = await asyncio.get_running_loop().sock_recv(node.console, 1 << 16)
    assert data.startswith(HEARTBEAT_FRAME)


async def flood(writer):
    """Write until a write takes too long; return the number of MiB."""
    mebibytes = 0
    while mebibytes < 64:
        writer.write(b"x" * (1 << 20))
        try:
            async with asyncio.timeout(0.3):
                await writer.drain()
        except TimeoutError:
            break
        mebibytes += 1
    return mebibytes


async def test_ranks_wait_while_the_console_reads_nothing(node):
    _, writer = await node.connect_rank()
    writer.transport.set_write_buffer_limits(high=1)
    assert await flood(writer) < 16  # the buffers of the relay and of both sockets are smaller
    writer.transport.abort()


async def test_sends_many_bytes_without_waiting():
    async with open_node(gather_seconds=60.0) as node:
        _, writer = await node.connect_rank()
        writer.write(b"x" * (2 * module.MAX_WAITING_BYTES))
        pieces = await node.receive(1)
        assert pieces[0][0] == 1


def test_the_name_of_a_relay_depends_on_the_token():
    assert make_relay_name("a") != make_relay_name("b")
    assert make_relay_name("a").startswith("\0spbench-")
    assert "a" * 20 not in make_relay_name("a" * 20)
