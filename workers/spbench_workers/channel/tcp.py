"""A rank's channel to the console over TCP, directly or through a relay."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from spbench_core.events import rank_events
from spbench_core.events.fields import EventError
from spbench_core.events.statuses import LogLevel
from spbench_workers.channel.base import NumberedChannel

REPLY_TIMEOUT = 600.0
"""Seconds to wait for a reply of the console. If the console ends, the rank ends at once."""
HELPERS = frozenset({"mpispawn", "hydra_pmi_proxy", "slurmstepd", "prted", "orted"})
"""Programs that launchers start on each host and that outlive the ranks which they start.

Shells, wrappers and container runtimes are not listed: they may end before the rank does. Nor is
mpirun: the console notices its end.
"""


class TcpChannel(NumberedChannel):
    """A channel to the console.

    If the connection ends before `close`, this process ends. A thread sends heartbeats,
    reads the console's replies and detects its end, so that no rank outlives the console,
    regardless of its main thread.

    Args:
        connection: The connection, after the console has accepted the rank's hello.
        received: Bytes that have already been received.
        rank: The rank, if it is known.
        first_seq: The number of the next event: earlier ones have already been sent.
        heartbeat_seconds: The interval of heartbeats.
    """

    def __init__(
        self,
        connection: socket.socket,
        received: bytes,
        rank: int | None,
        *,
        first_seq: int,
        heartbeat_seconds: float = rank_events.HEARTBEAT_INTERVAL,
    ) -> None:
        super().__init__(rank, first_seq)
        self._heartbeat_seconds = heartbeat_seconds
        self._socket = connection
        self._received = received
        self._replies: queue.Queue[dict[str, Any]] = queue.Queue()
        self._closing = threading.Event()
        self._finished = threading.Event()
        self._parent = Parent()

    def receive_cases(self) -> list[dict[str, Any]]:
        cases: list[dict[str, Any]] = self._wait_for_reply("cases")["cases"]
        return cases

    def close(self) -> None:
        # The console answers ``bye`` after it has read every event, and only then may the
        # connection end. No heartbeat may follow ``bye``.
        self._closing.set()
        self.send("bye")
        self._wait_for_reply("bye")
        with contextlib.suppress(OSError):  # the console may have ended it already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(self._heartbeat_seconds)
        self._socket.close()

    def _beat(self) -> None:
        super()._beat()
        message = self._parent.report_end()
        if message is not None and self.rank is not None:
            self.send("log", level=LogLevel.ORPHANED, message=message)

    def _write(self, line: bytes) -> None:
        if self._finished.is_set():
            return
        try:
            self._socket.sendall(line)
        except OSError:
            self._lost()

    def _wait_for_reply(self, kind: str) -> dict[str, Any]:
        try:
            reply = self._replies.get(timeout=REPLY_TIMEOUT)
        except queue.Empty:
            raise TimeoutError(f"the console did not answer in {REPLY_TIMEOUT:g} s") from None
        if reply.get("reply") != kind:
            raise EventError(f"the console answered {reply} instead of {kind!r}")
        return reply

    def _watch(self) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        pending = self._handle_lines(self._received)
        next_beat = time.monotonic() + self._heartbeat_seconds
        while True:
            if poller.poll(max(0.0, next_beat - time.monotonic()) * 1000):
                try:
                    received = self._socket.recv(1 << 16)
                except OSError:
                    received = b""
                if not received:
                    self._handle_end()
                    return
                pending = self._handle_lines(pending + received)
            if time.monotonic() >= next_beat:
                if not self._closing.is_set():
                    self._beat()
                next_beat = time.monotonic() + self._heartbeat_seconds

    def _handle_lines(self, received: bytes) -> bytes:
        """Handle complete lines, and return the incomplete last one."""
        *lines, pending = received.split(b"\n")
        for line in lines:
            self._handle_reply(json.loads(line))
        return pending

    def _handle_reply(self, reply: dict[str, Any]) -> None:
        if reply.get("reply") == "where":
            self.send("log", level=LogLevel.WHERE, message=self.locate())
            return
        if reply.get("reply") in (LogLevel.PRINTED, LogLevel.BROKEN_OFF):
            self._program_reports.put(reply)
            return
        if reply.get("reply") == "bye":
            self._finished.set()
        self._replies.put(reply)

    def _handle_end(self) -> None:
        if not self._finished.is_set():
            self._lost()

    @contextlib.contextmanager
    def guarded_by_kernel(self) -> Iterator[None]:
        """Let SIGIO end this process when the connection ends.

        The console sends no data before the rank reports ready, so that none arrive here.
        """
        descriptor = self._socket.fileno()
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        # With O_ASYNC, the end of the connection sends SIGIO, which ends a process without handler.
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
        try:
            # The connection may have ended before the line above.
            poller = select.poll()
            poller.register(descriptor, select.POLLRDHUP)
            if poller.poll(0):
                self._handle_end()
            yield
        finally:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)

    def _lost(self) -> NoReturn:
        self._end("stops because the console is gone")


class Parent:
    """The parent of this process; its end is reported if it is a launcher's helper.

    mpirun_rsh starts an mpispawn on each host, which starts the ranks. If an mpispawn is killed, no
    other process notices, and its ranks run on.
    """

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._name = _read_name(self._pid)

    def report_end(self) -> str | None:
        """Return a message if the parent was a launcher's helper and has ended.

        Later calls return None.
        """
        if self._name not in HELPERS or os.getppid() == self._pid:
            return None
        name, self._name = self._name, None
        return f"its parent process ({name}) has ended"


def _read_name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it is in another process namespace
        return None
