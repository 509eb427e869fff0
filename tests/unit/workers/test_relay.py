import asyncio
import os
import socket

import pytest

from spbench_core.events.fan_in import HEARTBEAT_FRAME, FrameDecoder, encode_frame
from spbench_workers import relay as module
from spbench_workers.channel.connect import relay_name
from spbench_workers.relay import carry_events

PATIENCE = 5.0


class Node:
    """A relay that runs here, the console's end of its connection, and its ranks."""

    def __init__(self):
        self.name = relay_name(f"token of {os.getpid()}")
        self.console, there = socket.socketpair()
        self.console.setblocking(False)
        there.setblocking(False)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self.name)
        listening.listen()
        self.carrying = asyncio.create_task(carry_events(listening, there, b""))
        self.pieces = FrameDecoder()
        self.ranks = []

    async def rank(self):
        reader, writer = await asyncio.open_unix_connection(self.name)
        self.ranks.append(writer)
        return reader, writer

    async def heard(self, count):
        """The next pieces at the console, so many; signs of life left out."""
        found = []
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE):
            while len(found) < count:
                data = await loop.sock_recv(self.console, 1 << 16)
                found += [one for one in self.pieces.feed(data) if one[0]]
        return found

    async def say(self, data):
        await asyncio.get_running_loop().sock_sendall(self.console, data)

    async def end(self):
        self.console.close()
        for writer in self.ranks:
            writer.close()
        async with asyncio.timeout(PATIENCE):
            await self.carrying


@pytest.fixture
async def node():
    node = Node()
    yield node
    await node.end()


async def test_what_a_rank_says_comes_in_its_channel_and_its_end_too(node):
    _, first = await node.rank()
    first.write(b"one\n")
    assert await node.heard(1) == [(1, b"one\n")]
    _, second = await node.rank()
    second.write(b"two\n")
    assert await node.heard(1) == [(2, b"two\n")]
    first.close()
    assert await node.heard(1) == [(1, b"")]


async def test_an_answer_goes_to_its_rank_and_an_empty_one_ends_it(node):
    first, writer = await node.rank()
    writer.write(b"here\n")
    second, other = await node.rank()
    other.write(b"here\n")
    await node.heard(2)
    await node.say(
        encode_frame(2, b"for the second\n")
        + encode_frame(1, b"")
        + encode_frame(9, b"for nobody\n")
    )
    async with asyncio.timeout(PATIENCE):
        assert await second.readline() == b"for the second\n"
        assert await first.read() == b""


async def test_with_the_last_rank_all_is_sent_and_the_relay_ends(node):
    _, writer = await node.rank()
    writer.write(b"bye\n")
    writer.close()
    assert await node.heard(2) == [(1, b"bye\n"), (1, b"")]
    async with asyncio.timeout(PATIENCE):
        await node.carrying


async def test_with_the_console_its_ranks_end(node):
    reader, writer = await node.rank()
    writer.write(b"here\n")
    await node.heard(1)
    node.console.close()
    async with asyncio.timeout(PATIENCE):
        assert await reader.read() == b""
        await node.carrying


async def test_another_user_is_not_let_in(node, monkeypatch):
    monkeypatch.setattr(module, "peer_user", lambda connection: os.getuid() + 1)
    reader, writer = await node.rank()
    async with asyncio.timeout(PATIENCE):
        assert await reader.read() == b""
    monkeypatch.undo()
    _, writer = await node.rank()
    writer.write(b"mine\n")
    assert await node.heard(1) == [(1, b"mine\n")]


async def test_it_lives_as_long_as_it_says_so(node):
    async with asyncio.timeout(PATIENCE):
        data = await asyncio.get_running_loop().sock_recv(node.console, 1 << 16)
    assert data.startswith(HEARTBEAT_FRAME)


async def flood(writer):
    """Write until it takes too long; return how many MiB went."""
    sent = 0
    while sent < 64:
        writer.write(b"x" * (1 << 20))
        try:
            async with asyncio.timeout(0.3):
                await writer.drain()
        except TimeoutError:
            break
        sent += 1
    return sent


async def test_ranks_wait_while_the_console_takes_nothing(node):
    _, writer = await node.rank()
    writer.transport.set_write_buffer_limits(high=1)
    assert await flood(writer) < 16  # the relay and both sockets hold no more
    writer.transport.abort()


async def test_many_bytes_do_not_wait_for_more(node, monkeypatch):
    monkeypatch.setattr(module, "GATHER", 60.0)
    _, writer = await node.rank()
    writer.write(b"x" * (2 * module.MOST_WAITING))
    pieces = await node.heard(1)
    assert pieces[0][0] == 1


def test_a_relay_has_a_name_that_only_the_token_tells():
    assert relay_name("a") != relay_name("b")
    assert relay_name("a").startswith("\0spbench-")
    assert "a" * 20 not in relay_name("a" * 20)
