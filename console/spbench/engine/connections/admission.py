"""Admission to the collector: a connection that shows the token first is admitted.

The number of admitted connections is not limited. A silent connection is ended when it is
too old. Only if file descriptors run short, the oldest silent connection is ended earlier, after
everything it has sent was read. Connections from addresses that showed a wrong token go first.
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
"""Connections that wait to be accepted. The kernel limits them to net.core.somaxconn."""
MAX_ACCEPTS = 256
"""Connections that are accepted before the event loop serves the others."""
ACCEPT_PAUSE = 0.1
MAX_SUSPECTS = 4096
"""The number of remembered addresses that showed a wrong token."""
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BROKEN_SOCKET = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP)

Admit = Callable[[socket.socket, str, Event, bytes], None]
"""Takes a connection, its peer, its hello, and the bytes after the hello."""
Reject = Callable[[str, str], None]
"""Takes the peer of a connection that was ended, and the reason."""


def parse_hello(line: bytes, token: bytes) -> Event | None:
    """Return the hello in a line if it shows the token; otherwise None."""
    try:
        hello = decode(line) if len(line) < MAX_HELLO else {}
    except EventError:
        return None
    sent_token = str(hello.get("token", "")).encode(errors="replace")
    is_valid = hello.get("event") == "hello" and hmac.compare_digest(sent_token, token)
    return hello if is_valid else None


@dataclass(slots=True, eq=False)
class PendingConnection:
    """A connection that has not shown the token, and the bytes it has sent so far."""

    connection: socket.socket
    address: str
    peer: str
    since: float = field(default_factory=time.monotonic)
    received: bytes = b""


class Admission:
    """The listening socket, and the connections that have not shown the token.

    Args:
        token: The run's token.
        max_pending: The most connections without the token at a time.
        admit: Takes a connection that has shown the token.
        reject: Called for a connection that was ended.
        hello_seconds: The age at which a connection without the token is ended.
        accept_pause_seconds: The time without accepting if no descriptor is free and no silent
            connection can be ended.
    """

    def __init__(
        self,
        token: str,
        max_pending: int,
        admit: Admit,
        reject: Reject,
        *,
        hello_seconds: float = CONNECT_TIMEOUT,
        accept_pause_seconds: float = ACCEPT_PAUSE,
    ) -> None:
        self._hello_seconds = hello_seconds
        self._accept_pause_seconds = accept_pause_seconds
        self._token = token.encode()
        self._max_pending = max_pending
        self._admit = admit
        self._reject = reject
        self._loop = asyncio.get_running_loop()
        self._listening_socket: socket.socket | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._accept_timer: asyncio.TimerHandle | None = None
        self._silent: dict[PendingConnection, None] = {}
        self._suspected: dict[PendingConnection, None] = {}
        self._suspects: set[str] = set()

    def listen(self, host: str, port: int = 0) -> int:
        """Listen on that address and return the port; 0 is any free port.

        Raises:
            OSError: The port is in use, or the address is not this machine's.
        """
        self._listening_socket = socket.create_server((host, port), backlog=BACKLOG)
        self._listening_socket.setblocking(False)
        self._loop.add_reader(self._listening_socket, self._accept)
        bound_port: int = self._listening_socket.getsockname()[1]
        return bound_port

    @property
    def pending(self) -> int:
        """The number of connections that have not shown the token."""
        return len(self._silent) + len(self._suspected)

    def close(self) -> None:
        """Stop listening, and end connections that have not shown the token."""
        for timer in (self._expiry_timer, self._accept_timer):
            if timer is not None:
                timer.cancel()
        if self._listening_socket is not None:
            self._loop.remove_reader(self._listening_socket)
            self._listening_socket.close()
            self._listening_socket = None
        for pending in (*self._silent, *self._suspected):
            self._forget(pending)
            pending.connection.close()

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTS):
            try:
                if self._listening_socket is None:
                    return
                connection, name = self._listening_socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _BROKEN_SOCKET:
                    raise
                if error.errno not in _OUT_OF_RESOURCES:
                    # an error of that connection's network, which Linux reports on accept
                    continue
                if not self._end_oldest_silent():
                    self._accept_later()
                    return
                continue
            self._add(connection, name)

    def _accept_later(self) -> None:
        """Stop accepting for a while.

        The ready queue would wake the loop again and again.
        """
        assert self._listening_socket is not None
        self._loop.remove_reader(self._listening_socket)
        self._accept_timer = self._loop.call_later(self._accept_pause_seconds, self._accept_again)

    def _accept_again(self) -> None:
        if self._listening_socket is not None:
            self._loop.add_reader(self._listening_socket, self._accept)

    def _add(self, connection: socket.socket, name: tuple[str, int]) -> None:
        connection.setblocking(False)
        pending = PendingConnection(connection, name[0], f"{name[0]}:{name[1]}")
        self._find_group(pending)[pending] = None
        self._loop.add_reader(connection, self._read, pending)
        if self._expiry_timer is None:
            self._expiry_timer = self._loop.call_later(self._hello_seconds, self._end_expired)
        # A rank's hello has usually arrived, so that reading now saves a turn of the loop.
        self._read(pending)
        if self.pending > self._max_pending:
            self._end_oldest_silent()

    def _find_group(self, pending: PendingConnection) -> dict[PendingConnection, None]:
        return self._suspected if pending.address in self._suspects else self._silent

    def _read(self, pending: PendingConnection) -> None:
        try:
            received = pending.connection.recv(MAX_HELLO + 1 - len(pending.received))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            received = b""
        if not received:
            self._forget(pending)
            pending.connection.close()
            return
        pending.received += received
        line, newline, remainder = pending.received.partition(b"\n")
        if newline:
            self._check_hello(pending, line, remainder)
        elif len(pending.received) > MAX_HELLO:
            self._end(pending, "sent more than a greeting")

    def _check_hello(self, pending: PendingConnection, line: bytes, remainder: bytes) -> None:
        hello = parse_hello(line, self._token)
        if hello is not None:
            self._forget(pending)
            self._admit(pending.connection, pending.peer, hello, remainder)
            return
        self._suspect_address(pending.address)
        self._end(pending, "did not show the run's token")

    def _suspect_address(self, address: str) -> None:
        if address in self._suspects or len(self._suspects) == MAX_SUSPECTS:
            return
        self._suspects.add(address)
        for pending in [other for other in self._silent if other.address == address]:
            del self._silent[pending]
            self._suspected[pending] = None

    def _end_expired(self) -> None:
        """End connections that are too old, and schedule the next call."""
        latest_expired = time.monotonic() - self._hello_seconds
        groups = (self._silent, self._suspected)
        for group in groups:
            while group and (oldest := next(iter(group))).since <= latest_expired:
                self._end_if_silent(oldest, f"said nothing for {self._hello_seconds:g} s")
        oldest_times = [next(iter(group)).since for group in groups if group]
        self._expiry_timer = None
        if oldest_times:
            delay = max(0.0, min(oldest_times) - latest_expired)
            self._expiry_timer = self._loop.call_later(delay, self._end_expired)

    def _end_oldest_silent(self) -> bool:
        """End the oldest connection that stays silent; False if there is none."""
        while group := self._suspected or self._silent:
            reason = "was the oldest that had not spoken when connections ran short"
            if self._end_if_silent(next(iter(group)), reason):
                return True
        return False

    def _end_if_silent(self, pending: PendingConnection, reason: str) -> bool:
        """Read a connection, and end it if its hello has not arrived by now."""
        self._read(pending)
        is_silent = pending in self._silent or pending in self._suspected
        if is_silent:
            self._end(pending, reason)
        return is_silent

    def _end(self, pending: PendingConnection, reason: str) -> None:
        self._forget(pending)
        pending.connection.close()
        self._reject(pending.peer, reason)

    def _forget(self, pending: PendingConnection) -> None:
        with suppress(ValueError, OSError):
            self._loop.remove_reader(pending.connection)
        self._silent.pop(pending, None)
        self._suspected.pop(pending, None)
