"""A rank's channel, the numbering of events, and the immediate end of a rank."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from spbench_core.events import fields as event_fields
from spbench_core.events import rank_events

LOST_STATUS = 75
"""Exit status of a rank that has lost its console (EX_TEMPFAIL)."""
LAST_LINE_TIMEOUT = 1.0
"""Seconds that the last line of a rank may take to be written."""


class ConsoleUnreachableError(ConnectionError):
    """No collector has answered, and there is no folder for the events."""


class Channel(Protocol):
    """The channel of a rank: it sends events, and receives the cases of the job."""

    rank: int | None

    def send(self, event: str, **fields: Any) -> None:
        """Number an event and send it; it has left this process when this returns."""

    def receive_cases(self) -> list[dict[str, Any]]:
        """Return the cases of this job.

        Only rank 0 calls it, or each rank that runs a program.
        """

    def close(self) -> None:
        """Send ``bye`` and wait until every event has arrived."""


def encode_event(event: str, rank: int | None, seq: int, fields: dict[str, Any]) -> bytes:
    """Return the line of an event that happens now."""
    head = {"event": event, "rank": rank, "seq": seq}
    return rank_events.encode(head | {"time": event_fields.now()} | fields)


class NumberedChannel(ABC):
    """A channel that numbers events and writes each as one line, from any thread.

    Attributes:
        rank: The rank, once it is known.
        host_load: Returns the load of the host, for the heartbeat of one rank per host.
        gpu_load: Returns new readings of the host's GPUs, for the same heartbeat.
        locate: Returns the position of the main thread, when the console asks for it.
        kill_children: Ends the processes that this rank has started, before it ends at once.
    """

    def __init__(self, rank: int | None = None, first_seq: int = 0) -> None:
        self.rank = rank
        self.host_load: Callable[[], Mapping[str, float]] | None = None
        self.gpu_load: Callable[[], Sequence[Mapping[str, Any]]] | None = None
        self.locate: Callable[[], str] = locate_main_thread
        self.kill_children: Callable[[], object] = lambda: None
        self._seq = first_seq
        self._lock = threading.Lock()
        self._program_reports: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._guarded_watch, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the heartbeat."""
        self._thread.start()

    def send(self, event: str, **fields: Any) -> None:
        with self._lock:
            line = encode_event(event, self.rank, self._seq, fields)
            # Before the write: when a launcher sends SIGINT, KeyboardInterrupt is raised as soon as
            # the write returns. The next event must have another number.
            self._seq += 1
            self._write(line)

    def read_program_reports(self, seconds: float = 0.0) -> list[dict[str, Any]]:
        """Return the console's reports on other ranks' programs.

        It waits only for the first one.

        Args:
            seconds: The longest wait.
        """
        reports: list[dict[str, Any]] = []
        with contextlib.suppress(queue.Empty):
            while True:
                reports.append(self._program_reports.get(timeout=0.0 if reports else seconds))
        return reports

    def _beat(self) -> None:
        """Send a heartbeat."""
        fields: dict[str, Any] = {}
        if self.host_load is not None:
            fields["load"] = self.host_load()
        if self.gpu_load is not None:
            fields["gpus"] = self.gpu_load()
        self.send("heartbeat", **{name: value for name, value in fields.items() if value})

    def _guarded_watch(self) -> None:
        # Without its heartbeat a rank would outlive its console and its timeouts.
        try:
            self._watch()
        except BaseException as error:
            self._end(f"stops because its heartbeat failed: {error!r}")

    def _end(self, reason: str) -> NoReturn:
        """End this process with LOST_STATUS, regardless of its main thread."""
        try:
            self.kill_children()
        finally:
            rank = "?" if self.rank is None else self.rank
            end_process(f"rank {rank} {reason}")

    @contextlib.contextmanager
    @abstractmethod
    def guarded_by_kernel(self) -> Iterator[None]:
        """Let the kernel end this process during a call that holds Python's lock.

        MPI_Init is such a call: the heartbeat thread cannot run until it returns.
        """

    @abstractmethod
    def _watch(self) -> None:
        """Send heartbeats; end this process if the console has ended or its time is over."""

    @abstractmethod
    def _write(self, line: bytes) -> None:
        """Write one line."""


def end_process(line: str) -> NoReturn:
    """End this process with LOST_STATUS, after a line on stderr if possible.

    The reader of stderr may have ended, or its pipe may be full: neither delays the end.
    """

    def write() -> None:
        with contextlib.suppress(OSError):
            # Not through sys.stderr: a thread that is blocked in a write may hold its lock.
            os.write(2, f"spbench: {line}\n".encode())

    try:
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        writer.join(LAST_LINE_TIMEOUT)
    finally:
        os._exit(LOST_STATUS)


def locate_main_thread() -> str:
    """Return the main thread's innermost frame, like ``in wait (exchange.py:88)``.

    The text also states whether the thread sleeps.
    """
    ident = threading.main_thread().ident
    frame = sys._current_frames().get(ident) if ident is not None else None
    if frame is None:
        return "nowhere"
    code = frame.f_code
    location = f"in {code.co_name} ({Path(code.co_filename).name}:{frame.f_lineno})"
    # The kernel's state of the main thread, which has the id of the process. MPI waits spinning, so
    # that a sleeping thread does not wait for a message.
    state = Path(f"/proc/self/task/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[0]
    return f"{location}, {rank_events.ASLEEP}" if state == "S" else location
