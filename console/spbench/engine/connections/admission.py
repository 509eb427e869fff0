"""Admission to the collector: whoever shows the token first thing is let in, in any number.

A connection that has not spoken is ended by its age alone. Only where file descriptors run short
does the oldest silent one go before its time, after what it has sent so far was read; those from
addresses that showed a wrong token go first.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from spbench_core.events.fields import Event, EventError
from spbench_core.events.rank_events import CONNECT_TIMEOUT, MAX_HELLO, decode

BACKLOG = 1 << 16
"""Connections that wait to be accepted; the kernel allows at most net.core.somaxconn of them."""
ACCEPTS = 256
"""Connections accepted before the others' events have their turn."""
PAUSE = 0.1
"""Seconds without accepting, where there is no descriptor left and nobody to end for one."""
MAX_SUSPECTS = 4096
"""Addresses that showed a wrong token and are remembered."""
_SHORT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BROKEN = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP)

Admit = Callable[[socket.socket, str, Event, bytes], None]
"""Called with a connection, its peer, its hello, and what came after that."""
Reject = Callable[[str, str], None]
"""Called with the peer of a connection that was ended, and why."""


def parse_hello(line: bytes, token: bytes) -> Event | None:
    """Return the hello that a line is, if it shows the token."""
    try:
        hello = decode(line) if len(line) < MAX_HELLO else {}
    except EventError:
        return None
    shown = str(hello.get("token", "")).encode(errors="replace")
    right = hello.get("event") == "hello" and hmac.compare_digest(shown, token)
    return hello if right else None


@dataclass(slots=True, eq=False)
class PendingConnection:
    """A connection that has yet to show the token, and what it has sent so far."""

    connection: socket.socket
    address: str
    peer: str
    since: float = field(default_factory=time.monotonic)
    received: bytes = b""


class Admission:
    """Listens for connections, and keeps each until it has shown the token or is ended."""

    def __init__(self, token: str, max_pending: int, admit: Admit, reject: Reject) -> None:
        """``room`` is how many strangers may hold a descriptor at once."""
        self._token = token.encode()
        self._room = max_pending
        self._admit = admit
        self._turned_away = reject
        self._loop = asyncio.get_running_loop()
        self._listening: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._silent: dict[PendingConnection, None] = {}
        self._suspected: dict[PendingConnection, None] = {}
        self._suspects: set[str] = set()

    def listen(self, host: str, port: int = 0) -> int:
        """Listen on that address and return the port; 0 is any free one.

        Raises:
            OSError: The port is taken, or the address not this machine's.
        """
        self._listening = socket.create_server((host, port), backlog=BACKLOG)
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening, self._accept)
        taken: int = self._listening.getsockname()[1]
        return taken

    @property
    def pending(self) -> int:
        """The number of connections that have yet to show the token."""
        return len(self._silent) + len(self._suspected)

    def close(self) -> None:
        """Listen no more, and end those who have not shown the token."""
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        for stranger in (*self._silent, *self._suspected):
            self._let_go(stranger)
            stranger.connection.close()

    # Accepting

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                if self._listening is None:
                    return
                connection, name = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _BROKEN:
                    raise
                if error.errno not in _SHORT_OF:
                    continue  # an error of that connection's network, which Linux tells here
                if not self._make_room():
                    self._accept_later()
                    return
                continue
            self._take_in(connection, name)

    def _accept_later(self) -> None:
        """Leave the queue alone for a while: it would be ready at once, again and again."""
        assert self._listening is not None
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(PAUSE, self._accept_again)

    def _accept_again(self) -> None:
        if self._listening is not None:
            self._loop.add_reader(self._listening, self._accept)

    def _take_in(self, connection: socket.socket, name: tuple[str, int]) -> None:
        connection.setblocking(False)
        stranger = PendingConnection(connection, name[0], f"{name[0]}:{name[1]}")
        self._among(stranger)[stranger] = None
        self._loop.add_reader(connection, self._read, stranger)
        if self._timer is None:
            self._timer = self._loop.call_later(CONNECT_TIMEOUT, self._end_the_old)
        # A rank's hello is mostly there by now, and a turn of the loop is saved.
        self._read(stranger)
        if self.pending > self._room:
            self._make_room()

    def _among(self, stranger: PendingConnection) -> dict[PendingConnection, None]:
        return self._suspected if stranger.address in self._suspects else self._silent

    # Reading

    def _read(self, stranger: PendingConnection) -> None:
        try:
            data = stranger.connection.recv(MAX_HELLO + 1 - len(stranger.received))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._let_go(stranger)
            stranger.connection.close()
            return
        stranger.received += data
        line, newline, rest = stranger.received.partition(b"\n")
        if newline:
            self._judge(stranger, line, rest)
        elif len(stranger.received) > MAX_HELLO:
            self._end(stranger, "sent more than a greeting")

    def _judge(self, stranger: PendingConnection, line: bytes, rest: bytes) -> None:
        hello = parse_hello(line, self._token)
        if hello is not None:
            self._let_go(stranger)
            self._admit(stranger.connection, stranger.peer, hello, rest)
            return
        self._suspect(stranger.address)
        self._end(stranger, "did not show the run's token")

    def _suspect(self, address: str) -> None:
        if address in self._suspects or len(self._suspects) == MAX_SUSPECTS:
            return
        self._suspects.add(address)
        for stranger in [one for one in self._silent if one.address == address]:
            del self._silent[stranger]
            self._suspected[stranger] = None

    # Ending

    def _end_the_old(self) -> None:
        """End what is too old, and come again when the next is."""
        old = time.monotonic() - CONNECT_TIMEOUT
        for strangers in (self._silent, self._suspected):
            while strangers and (oldest := next(iter(strangers))).since <= old:
                self._end_if_silent(oldest, f"said nothing for {CONNECT_TIMEOUT:g} s")
        left = [next(iter(one)).since for one in (self._silent, self._suspected) if one]
        again = max(0.0, min(left) - old) if left else None
        self._timer = None if again is None else self._loop.call_later(again, self._end_the_old)

    def _make_room(self) -> bool:
        """End the oldest who stays silent; False where there is none."""
        while strangers := self._suspected or self._silent:
            why = "was the oldest that had not spoken when connections ran short"
            if self._end_if_silent(next(iter(strangers)), why):
                return True
        return False

    def _end_if_silent(self, stranger: PendingConnection, why: str) -> bool:
        """Read what has come; end the connection if its hello is not there by now."""
        self._read(stranger)
        silent = stranger in self._silent or stranger in self._suspected
        if silent:
            self._end(stranger, why)
        return silent

    def _end(self, stranger: PendingConnection, why: str) -> None:
        self._let_go(stranger)
        stranger.connection.close()
        self._turned_away(stranger.peer, why)

    def _let_go(self, stranger: PendingConnection) -> None:
        with suppress(ValueError, OSError):
            self._loop.remove_reader(stranger.connection)
        self._silent.pop(stranger, None)
        self._suspected.pop(stranger, None)
