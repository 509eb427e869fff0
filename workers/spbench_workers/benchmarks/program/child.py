"""A program as the child of a rank: started in its place, read as it prints, ended with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from spbench_core.events.rank_events import ASLEEP
from spbench_core.programs.output import LineSplitter
from spbench_parallel.errors import CannotRunError

TICK = 1.0
"""Seconds between two calls of whoever follows the program."""
GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""
DRAIN = 1.0
"""Seconds that output may still come after the program's end: others may hold its pipes."""
MAX_COPIED_BYTES = 4 << 20
"""Bytes of each stream that are written to the rank's own."""
_WAIT = 0.1
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


class CannotStartError(CannotRunError):
    """The program cannot be started: it is not there, or not executable."""

    missing = True


@dataclass(frozen=True, slots=True)
class ProgramCommand:
    """A program as it is started.

    Attributes:
        argv: Its words; the first one is looked for in PATH.
        cwd: Its working folder; None: the rank's.
        env: Its whole environment.
    """

    argv: Sequence[str]
    cwd: str | None
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """The end of a program: its exit code, negative after a signal, and its seconds."""

    code: int
    seconds: float

    @property
    def description(self) -> str:
        """How it ended, in words."""
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            return f"was ended by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"was ended by signal {-self.code}"


class ChildProgram:
    """A program that runs as this process's child; its output is copied to this process's own.

    It and what it starts are a process group of their own. It gets all descriptors that this
    process has from its launcher, dies with it, and takes nothing from its standard input.

    Args:
        command: The program.
        on_line: Called with each line of its output and of its error output.
        on_tick: Called each second while it runs; a sentence it returns ends the program.
    """

    def __init__(
        self,
        command: ProgramCommand,
        on_line: Callable[[str], object],
        on_tick: Callable[[], str | None],
    ) -> None:
        self._command = command
        self._on_line = on_line
        self._on_tick = on_tick
        self.stop_reason: str | None = None
        """Why it was ended before its time; None where it ended by itself."""
        self._pid = 0

    def describe_state(self) -> str:
        """Return where a rank stands while the program runs: ``in sleep, asleep``."""
        name = f"in {Path(self._command.argv[0]).name}"
        try:
            state = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return name
        return f"{name}, {ASLEEP}" if state == "S" else name

    def kill(self) -> None:
        """Kill it and the processes that it has started, from any thread."""
        if self._pid:
            _signal(self._pid, signal.SIGKILL)

    def run(self) -> ProgramEnd:
        """Start it, and return its end.

        Raises:
            CannotStartError: It cannot be started.
        """
        start = time.perf_counter()
        process = self._start()
        self._pid = process.pid
        before = signal.signal(signal.SIGTERM, _ending_too(process.pid))
        try:
            ended = self._follow(process)
        finally:
            signal.signal(signal.SIGTERM, before)
            self.kill()  # what it has left behind
            self._pid = 0
        return ProgramEnd(process.returncode, ended - start)

    def _start(self) -> subprocess.Popen[bytes]:
        command = self._command
        try:
            return subprocess.Popen(
                command.argv,
                cwd=command.cwd,
                env=dict(command.env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                close_fds=False,  # a launcher's connection to its MPI processes is one of them
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except (OSError, ValueError) as error:
            raise CannotStartError(_why_not(command, error)) from None

    def _follow(self, process: subprocess.Popen[bytes]) -> float:
        """Read what it prints until it has ended; return when that was."""
        ended: float | None = None
        killing: float | None = None
        due = time.monotonic() + TICK
        with _Streams(process, self._on_line) as streams:
            while ended is None or streams.open:
                streams.read(_WAIT)
                now = time.perf_counter()
                if ended is None and process.poll() is not None:
                    ended = now
                elif ended is not None and now > ended + DRAIN:
                    break
                if ended is None and time.monotonic() >= due:
                    due += TICK
                    if self.stop_reason is None and (why := self._on_tick()) is not None:
                        self.stop_reason = why
                        killing = now + GRACE
                        _signal(process.pid, signal.SIGTERM)
                if killing is not None and now > killing:
                    killing = None
                    _signal(process.pid, signal.SIGKILL)
            streams.end()
        return ended


class _Streams:
    """The program's two streams: copied to this process's own, and split into lines.

    Its end wakes the reader as well, where the system can tell it.
    """

    def __init__(self, process: subprocess.Popen[bytes], on_line: Callable[[str], object]) -> None:
        self._on_line = on_line
        self._selector = selectors.DefaultSelector()
        assert process.stdout is not None
        assert process.stderr is not None
        for stream, own in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            self._selector.register(
                stream, selectors.EVENT_READ, _Stream(stream.fileno(), own.fileno())
            )
        self._files = (process.stdout, process.stderr)
        self._splitters: list[LineSplitter] = []
        self.open = len(self._files)
        self._end: int | None = None
        with contextlib.suppress(OSError):  # Linux before 5.3
            self._end = os.pidfd_open(process.pid)
            self._selector.register(self._end, selectors.EVENT_READ)

    def __enter__(self) -> _Streams:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for file in self._files:
            file.close()
        if self._end is not None:
            os.close(self._end)

    def read(self, seconds: float) -> None:
        """Wait so long for output, and hand on the lines that have come."""
        for key, _ in self._selector.select(seconds):
            stream = key.data
            if stream is None:  # the program has ended: told once
                self._selector.unregister(key.fileobj)
            elif not self._take(stream):
                self._selector.unregister(key.fileobj)
                self.open -= 1

    def end(self) -> None:
        """Hand on the half lines at the end."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._hand_on(key.data.splitter.end())

    def _take(self, stream: _Stream) -> bool:
        data = stream.read()
        self._hand_on(stream.splitter.feed(data) if data else stream.splitter.flush())
        return bool(data)

    def _hand_on(self, lines: Iterator[str]) -> None:
        for line in lines:
            self._on_line(line)


class _Stream:
    """One stream of the program, and the one that it is copied to."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._left = MAX_COPIED_BYTES
        self.splitter = LineSplitter()

    def read(self) -> bytes:
        data = os.read(self._source, 1 << 16)
        if data and self._left > 0:
            self._copy(data[: self._left])
            self._left -= len(data)
            if self._left <= 0:
                self._copy(b"\nspbench: the rest of this output is left out\n")
        return data

    def _copy(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the launcher is gone, and this rank will soon be
            while data:
                data = data[os.write(self._target, data) :]


def _die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _ending_too(group: int) -> Callable[[int, FrameType | None], None]:
    """Return a handler that ends the program's group, and then this process as SIGTERM does."""

    def end(number: int, _: FrameType | None) -> None:
        _signal(group, signal.SIGKILL)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    return end


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _why_not(command: ProgramCommand, error: Exception) -> str:
    name = command.argv[0]
    folder = command.cwd or os.getcwd()
    if command.cwd is not None and not os.path.isdir(command.cwd):
        return f"cannot start {name}: there is no folder {folder}"
    if isinstance(error, FileNotFoundError):
        where = f"in {folder}" if "/" in name else "in PATH"
        return f"cannot start {name}: there is none {where}; install it, or give its path"
    why = error.strerror if isinstance(error, OSError) else str(error)
    return f"cannot start {name}: {why} (in {folder})"
