"""A rank's channel for events: to the console's collector over TCP, or to a file of its own.

Nothing here imports torch or MPI: a rank connects before it loads either.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import queue
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, Protocol

from spbench_core.events import clock, rank_events
from spbench_core.events.fields import EventError
from spbench_core.events.statuses import LogLevel, PhaseProgress, restarts_deadline
from spbench_workers.connect import connect_by_relay, connect_to_console
from spbench_workers.parent import Parent

REPLY_TIMEOUT = 600.0
"""Seconds to wait for an answer of the console; its death ends the rank at once in any case."""
LOST_STATUS = 75
"""Exit status of a rank whose console is gone (EX_TEMPFAIL)."""
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

        Rank 0 calls it, and each rank that runs a program.
        """

    def close(self) -> None:
        """Send ``bye`` and wait until every event has arrived."""


def encode_event(event: str, rank: int | None, seq: int, fields: dict[str, Any]) -> bytes:
    """Return the line of an event that happens now."""
    head = {"event": event, "rank": rank, "seq": seq}
    return rank_events.encode(head | {"time": clock.now()} | fields)


class _NumberedChannel(ABC):
    """A channel that numbers events and writes each as one line, from any thread."""

    def __init__(self, rank: int | None = None, sent: int = 0) -> None:
        self.rank = rank
        self._seq = sent
        self._lock = threading.Lock()
        self.host_load: Callable[[], Mapping[str, float]] | None = None
        """Tells the load of the host, for the heartbeat of the rank that speaks for it."""
        self._told: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.locate: Callable[[], str] = main_thread_location
        """Tells where this rank stands, for a console that asks."""
        self.kill_children: Callable[[], object] = lambda: None
        """Ends the processes that this rank has started, when it must end at once."""
        self._thread = threading.Thread(target=self._guarded_watch, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the heartbeat."""
        self._thread.start()

    def send(self, event: str, **fields: Any) -> None:
        with self._lock:
            line = encode_event(event, self.rank, self._seq, fields)
            # first, for a KeyboardInterrupt comes as a write returns: launchers send SIGINT
            self._seq += 1
            self._write(line)

    def read_program_reports(self, seconds: float = 0.0) -> list[dict[str, Any]]:
        """Return what the console has told of other ranks' programs, waiting so long for it."""
        words: list[dict[str, Any]] = []
        with contextlib.suppress(queue.Empty):
            while True:
                words.append(self._told.get(timeout=0.0 if words else seconds))
        return words

    def _beat(self) -> None:
        """Send a heartbeat."""
        load = self.host_load() if self.host_load is not None else {}
        self.send("heartbeat", **({"load": load} if load else {}))

    def _guarded_watch(self) -> None:
        # Without its heartbeat a rank would outlive its console and its timeouts.
        try:
            self._watch()
        except BaseException as error:
            self._end(f"stops because its heartbeat failed: {error!r}")

    def _end(self, reason: str) -> NoReturn:
        """End this process with LOST_STATUS, wherever its main thread is."""
        try:
            self.kill_children()
        finally:
            rank = "?" if self.rank is None else self.rank
            end_process(f"rank {rank} {reason}")

    @contextlib.contextmanager
    @abstractmethod
    def guarded_by_kernel(self) -> Iterator[None]:
        """Let the kernel end this process while a call holds Python's lock, as MPI_Init does.

        The heartbeat thread cannot run during such a call.
        """

    @abstractmethod
    def _watch(self) -> None:
        """Send heartbeats, and end this process if the console is gone or its time is over."""

    @abstractmethod
    def _write(self, line: bytes) -> None:
        """Write one line."""


class TcpChannel(_NumberedChannel):
    """A channel to the console, itself or by a relay, whose end before `close` ends the process.

    A thread sends a heartbeat a second and watches for the console's answers and for its end, so
    that no rank outlives the console, wherever the main thread is.
    """

    def __init__(
        self, connection: socket.socket, received: bytes, rank: int | None, *, sent: int
    ) -> None:
        """``rest`` has been received already; so many events were sent."""
        super().__init__(rank, sent)
        self._socket = connection
        self._received = received
        self._replies: queue.Queue[dict[str, Any]] = queue.Queue()
        self._closing = threading.Event()
        self._through = threading.Event()
        self._parent = Parent()

    def receive_cases(self) -> list[dict[str, Any]]:
        cases: list[dict[str, Any]] = self._reply("cases")["cases"]
        return cases

    def close(self) -> None:
        self._closing.set()
        self.send("bye")
        self._reply("bye")
        with contextlib.suppress(OSError):  # the console may have ended it already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(rank_events.HEARTBEAT_INTERVAL)
        self._socket.close()

    def _beat(self) -> None:
        super()._beat()
        message = self._parent.report_end()
        if message is not None and self.rank is not None:
            self.send("log", level=LogLevel.ORPHANED, message=message)

    def _write(self, line: bytes) -> None:
        if self._through.is_set():
            return
        try:
            self._socket.sendall(line)
        except OSError:
            self._lost()

    def _reply(self, kind: str) -> dict[str, Any]:
        try:
            answer = self._replies.get(timeout=REPLY_TIMEOUT)
        except queue.Empty:
            raise TimeoutError(f"the console did not answer in {REPLY_TIMEOUT:g} s") from None
        if answer.get("reply") != kind:
            raise EventError(f"the console answered {answer} instead of {kind!r}")
        return answer

    def _watch(self) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        rest = self._take(self._received)
        due = time.monotonic() + rank_events.HEARTBEAT_INTERVAL
        while True:
            if poller.poll(max(0.0, due - time.monotonic()) * 1000):
                try:
                    data = self._socket.recv(1 << 16)
                except OSError:
                    data = b""
                if not data:
                    self._ended()
                    return
                rest = self._take(rest + data)
            if time.monotonic() >= due:
                if not self._closing.is_set():
                    self._beat()
                due = time.monotonic() + rank_events.HEARTBEAT_INTERVAL

    def _take(self, data: bytes) -> bytes:
        """Act on whole lines, and return what is left."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._answer(json.loads(line))
        return rest

    def _answer(self, reply: dict[str, Any]) -> None:
        if reply.get("reply") == "where":
            self.send("log", level=LogLevel.WHERE, message=self.locate())
            return
        if reply.get("reply") in (LogLevel.PRINTED, LogLevel.BROKEN_OFF):
            self._told.put(reply)
            return
        if reply.get("reply") == "bye":
            self._through.set()
        self._replies.put(reply)

    def _ended(self) -> None:
        if not self._through.is_set():
            self._lost()

    @contextlib.contextmanager
    def guarded_by_kernel(self) -> Iterator[None]:
        """See the base class.

        The console sends nothing to a rank before the rank reports ready.
        """
        number = self._socket.fileno()
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
        # SIGIO, which ends a process that does not handle it, comes with the connection's end.
        fcntl.fcntl(number, fcntl.F_SETFL, flags | os.O_ASYNC)
        try:
            # The end may have come before the line above.
            poller = select.poll()
            poller.register(number, select.POLLRDHUP)
            if poller.poll(0):
                self._ended()
            yield
        finally:
            fcntl.fcntl(number, fcntl.F_SETFL, flags)

    def _lost(self) -> NoReturn:
        self._end("stops because the console is gone")


def end_process(line: str) -> NoReturn:
    """End this process with LOST_STATUS, after a line on stderr if that can be written.

    Nobody may read stderr any more, or a full pipe may take nothing: neither keeps the process.
    """

    def write() -> None:
        with contextlib.suppress(OSError):
            # Not by sys.stderr: a thread that is stuck in a write may hold its lock.
            os.write(2, f"spbench: {line}\n".encode())

    try:
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        writer.join(LAST_LINE_TIMEOUT)
    finally:
        os._exit(LOST_STATUS)


def main_thread_location() -> str:
    """Return ``in wait (exchange.py:88)``: the main thread's innermost frame, and if it sleeps."""
    ident = threading.main_thread().ident
    frame = sys._current_frames().get(ident) if ident is not None else None
    if frame is None:
        return "nowhere"
    code = frame.f_code
    place = f"in {code.co_name} ({Path(code.co_filename).name}:{frame.f_lineno})"
    # The kernel's state of the main thread, whose id is the process's; MPI waits spinning.
    state = Path(f"/proc/self/task/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[0]
    return f"{place}, {rank_events.ASLEEP}" if state == "S" else place


class FileChannel(_NumberedChannel):
    """A channel to a file, where no console can be reached: ``spbench collect`` reads it.

    Each line is in the file when `send` returns. A thread adds a heartbeat a second and, since
    there is no console to do so, ends this process where a case exceeds its timeout.

    Args:
        folder: The folder of the file, which is made where it is missing.
        limits: Seconds for each case, by id; under None those without one: start and end.
    """

    def __init__(self, folder: Path, limits: Mapping[str | None, float] | None = None) -> None:
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        # Several containers of one host may have the same process number in it.
        name = f"{socket.gethostname()}-{os.getpid()}"
        handle, _ = tempfile.mkstemp(".jsonl", f"{name}-", folder)
        self._file = os.fdopen(handle, "ab", buffering=0)
        self._limits = limits or {}
        self._closing = threading.Event()
        self._due = self._after(None)
        self._standing: PhaseProgress | None = None

    def send(self, event: str, **fields: Any) -> None:
        super().send(event, **fields)
        if event in ("case_start", "case_end"):
            self._due = self._after(fields["case"] if event == "case_start" else None)
            self._standing = None
        elif event == "progress":
            before, self._standing = self._standing, (fields["phase"], fields["done"])
            if restarts_deadline(before, self._standing):
                self._due = self._after(fields["case"])

    def receive_cases(self) -> list[dict[str, Any]]:
        return read_cases(os.environ)

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self.send("bye")
        self._file.close()

    def _after(self, case: str | None) -> float:
        return time.monotonic() + self._limits.get(case, math.inf)

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[self._file.write(rest) :]

    def _watch(self) -> None:
        while not self._closing.wait(rank_events.HEARTBEAT_INTERVAL):
            try:
                self._beat()
            except OSError as error:
                self._end(f"stops because its events cannot be written ({error.strerror})")
            if time.monotonic() > self._due:
                self._overdue()

    def _overdue(self) -> None:
        """Say where this rank stands, and end it unless it gets on in the time others need too."""
        self.send("log", level=LogLevel.WHERE, message=self.locate())
        time.sleep(rank_events.HEARTBEAT_INTERVAL)
        if time.monotonic() <= self._due:
            return
        self._end("stops because its case exceeded its timeout")

    @contextlib.contextmanager
    def guarded_by_kernel(self) -> Iterator[None]:
        """See the base class. SIGALRM ends this process when its time to start is over."""
        if math.isfinite(self._due):
            signal.setitimer(signal.ITIMER_REAL, max(0.001, self._due - time.monotonic()))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)


def read_limits(environ: os._Environ[str]) -> dict[str | None, float]:
    """Return the seconds for each case of a batch job, by id.

    Under None those to start and end.

    Empty where there is no file of cases, or it states none.
    """
    path = environ.get(rank_events.ENV_CASES)
    if path is None:
        return {}
    cases = [case for case in json.loads(Path(path).read_text()) if "timeout" in case]
    limits: dict[str | None, float] = {case["id"]: case["timeout"] for case in cases}
    if cases:
        limits[None] = cases[0]["start_timeout"]
    return limits


def read_cases(environ: os._Environ[str]) -> list[dict[str, Any]]:
    """Return the cases of a batch job from the file that SPBENCH_CASES names.

    Raises:
        ConsoleUnreachableError: SPBENCH_CASES is not set.
    """
    path = environ.get(rank_events.ENV_CASES)
    if path is None:
        raise ConsoleUnreachableError(f"no console, and {rank_events.ENV_CASES} names no file")
    cases: list[dict[str, Any]] = json.loads(Path(path).read_text())
    return cases


def open_channel(environ: os._Environ[str]) -> TcpChannel | FileChannel:
    """Connect to the console, or fall back to a file where SPBENCH_EVENTS_DIR is set.

    Raises:
        ConsoleUnreachableError: No collector answered within 5 s, and SPBENCH_EVENTS_DIR is not
            set.
    """
    addresses = environ.get(rank_events.ENV_COLLECTOR, "")
    folder = environ.get(rank_events.ENV_EVENTS_DIR)
    channel = _to_console(addresses.split(","), environ) if addresses else None
    if channel is not None:
        channel.start()
        return channel
    if folder:
        file = FileChannel(Path(folder), read_limits(environ))
        send_hello(file, environ)
        file.start()
        return file
    where = f"at {addresses}" if addresses else f"({rank_events.ENV_COLLECTOR} is not set)"
    raise ConsoleUnreachableError(
        f"no console {where}: start ranks through spbench, or name a benchmark to run by hand"
    )


def _to_console(addresses: list[str], environ: os._Environ[str]) -> TcpChannel | None:
    rank, fields = hello_fields(environ)
    hello = encode_event("hello", rank, 0, fields)
    by_relay = environ.get(rank_events.ENV_FAN_IN) == "node"
    let_in = (
        connect_by_relay(fields["token"], hello)
        if by_relay
        else connect_to_console(addresses, hello)
    )
    return TcpChannel(let_in.connection, let_in.received, rank, sent=1) if let_in else None


_RANK_NAMES = ("MV2_COMM_WORLD", "MVP_COMM_WORLD", "OMPI_COMM_WORLD", "PMI")


def launcher_rank(environ: os._Environ[str]) -> tuple[int | None, int | None]:
    """Return rank and size by the launcher's environment, None where they are not set."""
    pairs = [(f"{name}_RANK", f"{name}_SIZE") for name in _RANK_NAMES]
    for rank, size in [*pairs, ("SLURM_PROCID", "SLURM_NTASKS"), ("PMI_ID", "MPIRUN_NPROCS")]:
        if rank in environ:
            return int(environ[rank]), int(environ[size]) if size in environ else None
    return None, None


def hello_fields(environ: os._Environ[str]) -> tuple[int | None, dict[str, Any]]:
    """Return the rank, and the fields of ``hello``: the token, and the size by the launcher."""
    rank, size = launcher_rank(environ)
    token = environ.get(rank_events.ENV_TOKEN, "")
    process = {"host": socket.gethostname(), "pid": os.getpid()}
    return rank, {"token": token, "schema": rank_events.SCHEMA, **process, "size": size}


def send_hello(channel: Channel, environ: os._Environ[str]) -> None:
    """Send ``hello``: the token, and rank and size by the launcher's environment."""
    channel.rank, fields = hello_fields(environ)
    channel.send("hello", **fields)
