"""A program as the child process of a rank: start, output, and end with the rank."""

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
"""Seconds between two calls of ``on_tick``."""
GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""
DRAIN = 1.0
"""Seconds to read output after the program's end, because other processes may hold its pipes."""
MAX_COPIED_BYTES = 4 << 20
"""Most bytes of each stream that are copied to the rank's stream."""
_POLL_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


class CannotStartError(CannotRunError):
    """The program cannot be started: it does not exist or is not executable."""

    missing = True


@dataclass(frozen=True, slots=True)
class ProgramCommand:
    """The command of a program.

    Attributes:
        argv: The program, which is searched in PATH, and its arguments.
        cwd: Its working folder; None for that of the rank.
        env: Its complete environment.
    """

    argv: Sequence[str]
    cwd: str | None
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """The exit code of a program, negative after a signal, and its seconds."""

    code: int
    seconds: float

    @property
    def description(self) -> str:
        """A text about its end."""
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            return f"was ended by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"was ended by signal {-self.code}"


class ChildProgram:
    """A program that runs as this process's child, with its output copied here.

    The program and its children are a separate process group. It inherits all descriptors that this
    process has from its launcher, dies with this process, and has an empty standard input.

    Args:
        command: The program.
        on_line: Called with each line of its output and error output.
        on_tick: Called each second while it runs; a returned reason ends the program.
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
        """The reason why it was stopped; None if it ended without being stopped."""
        self._pid = 0

    def describe_state(self) -> str:
        """Return the position of the rank while the program runs: ``in sleep, asleep``."""
        location = f"in {Path(self._command.argv[0]).name}"
        try:
            state = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return location
        return f"{location}, {ASLEEP}" if state == "S" else location

    def kill(self) -> None:
        """Kill the program and its children; safe in any thread."""
        if self._pid:
            _signal(self._pid, signal.SIGKILL)

    def run(self) -> ProgramEnd:
        """Start the program, wait for it, and return its end.

        Raises:
            CannotStartError: The program cannot be started.
        """
        start = time.perf_counter()
        process = self._start()
        self._pid = process.pid
        previous_handler = signal.signal(signal.SIGTERM, _make_terminator(process.pid))
        try:
            end_time = self._follow(process)
        finally:
            signal.signal(signal.SIGTERM, previous_handler)
            self.kill()  # remaining children
            self._pid = 0
        return ProgramEnd(process.returncode, end_time - start)

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
            raise CannotStartError(_explain_failure(command, error)) from None

    def _follow(self, process: subprocess.Popen[bytes]) -> float:
        """Read the output until the program ends; return the time of the end."""
        end_time: float | None = None
        kill_time: float | None = None
        next_tick = time.monotonic() + TICK
        with _Streams(process, self._on_line) as streams:
            while end_time is None or streams.open:
                streams.read(_POLL_SECONDS)
                now = time.perf_counter()
                if end_time is None and process.poll() is not None:
                    end_time = now
                elif end_time is not None and now > end_time + DRAIN:
                    break
                if end_time is None and time.monotonic() >= next_tick:
                    next_tick += TICK
                    if self.stop_reason is None and (reason := self._on_tick()) is not None:
                        self.stop_reason = reason
                        kill_time = now + GRACE
                        _signal(process.pid, signal.SIGTERM)
                if kill_time is not None and now > kill_time:
                    kill_time = None
                    _signal(process.pid, signal.SIGKILL)
            streams.end()
        return end_time


class _Streams:
    """The program's two streams, which are copied and split into lines.

    The end of the program also wakes the reader if the system supports pidfd.
    """

    def __init__(self, process: subprocess.Popen[bytes], on_line: Callable[[str], object]) -> None:
        self._on_line = on_line
        self._selector = selectors.DefaultSelector()
        assert process.stdout is not None
        assert process.stderr is not None
        for stream, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            self._selector.register(
                stream, selectors.EVENT_READ, _Stream(stream.fileno(), target.fileno())
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
        """Wait up to ``seconds`` for output, and pass on complete lines."""
        for key, _ in self._selector.select(seconds):
            stream = key.data
            if stream is None:  # the program has ended, which is signalled only once
                self._selector.unregister(key.fileobj)
            elif not self._read_stream(stream):
                self._selector.unregister(key.fileobj)
                self.open -= 1

    def end(self) -> None:
        """Pass on the incomplete last lines."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._emit_lines(key.data.splitter.end())

    def _read_stream(self, stream: _Stream) -> bool:
        data = stream.read()
        self._emit_lines(stream.splitter.feed(data) if data else stream.splitter.flush())
        return bool(data)

    def _emit_lines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self._on_line(line)


class _Stream:
    """One stream of the program and the stream that it is copied to."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._remaining = MAX_COPIED_BYTES
        self.splitter = LineSplitter()

    def read(self) -> bytes:
        data = os.read(self._source, 1 << 16)
        if data and self._remaining > 0:
            self._copy(data[: self._remaining])
            self._remaining -= len(data)
            if self._remaining <= 0:
                self._copy(b"\nspbench: the rest of this output is left out\n")
        return data

    def _copy(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the launcher is gone, and this rank will soon be
            while data:
                data = data[os.write(self._target, data) :]


def _die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _make_terminator(group: int) -> Callable[[int, FrameType | None], None]:
    """Return a signal handler that kills the program's group and ends this process."""

    def end(number: int, _: FrameType | None) -> None:
        _signal(group, signal.SIGKILL)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    return end


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _explain_failure(command: ProgramCommand, error: Exception) -> str:
    name = command.argv[0]
    folder = command.cwd or os.getcwd()
    if command.cwd is not None and not os.path.isdir(command.cwd):
        return f"cannot start {name}: there is no folder {folder}"
    if isinstance(error, FileNotFoundError):
        location = f"in {folder}" if "/" in name else "in PATH"
        return f"cannot start {name}: there is none {location}; install it, or give its path"
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"cannot start {name}: {reason} (in {folder})"
