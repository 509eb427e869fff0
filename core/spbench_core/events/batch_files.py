"""Files of a batch job without a console: launches and events of ranks.

::

    plan.json                the plan
    starts                   a line for each start of the script: time, and the scheduler's id
    ended                    the time when the script ended, and the signal that ended it
    jobs/N/cases.json        the cases of job N
    jobs/N/K/cases.json      the cases of its K-th launch
    jobs/N/K/started         the start time
    jobs/N/K/events/*.jsonl  the events of each rank
    jobs/N/K/stdout.log, stderr.log
    jobs/N/K/status          exit status and end time; then the signal that ended the script

Times are seconds since the epoch.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spbench_core.events.rank_events import MAX_LINE

CASES_FILE = "cases.json"
MAX_CASES_BYTES = 64 << 20
"""Bytes of the largest file of cases; ten thousand cases have about 10 MB."""
MAX_WORDS_BYTES = 1 << 20
"""Bytes of the largest file of words; ``starts`` has 30 for each start."""


@dataclass(frozen=True, slots=True)
class LaunchEnd:
    """The end of a launch.

    Attributes:
        status: The exit status.
        time: When it ended.
        signal: The signal that ended the script, if any.
        signal_time: When that signal came.
    """

    status: int
    time: float
    signal: str | None = None
    signal_time: float | None = None


@dataclass(frozen=True, slots=True)
class LaunchFolder:
    """The folder of one launch of a job."""

    path: Path

    @property
    def number(self) -> int:
        """The launch's number among those of its job, from 1."""
        return int(self.path.name)

    @property
    def start_time(self) -> float | None:
        """The time when it began, or None if that was not written."""
        fields = read_words(self.path / "started")
        return parse_time(fields[0]) if fields else None

    @property
    def end(self) -> LaunchEnd | None:
        """Its end, or None if the script did not write it."""
        fields = read_words(self.path / "status")
        end_time = parse_time(fields[1]) if len(fields) > 1 else None
        if end_time is None or not fields[0].isdigit():
            return None
        signal_word = fields[2] if len(fields) > 2 else None
        signal_time = parse_time(fields[3]) if len(fields) > 3 else None
        return LaunchEnd(int(fields[0]), end_time, signal_word, signal_time)

    @property
    def was_interrupted(self) -> bool:
        """Whether it was ended from outside, not because of a case."""
        return self.end is None or self.end.signal is not None

    def read_cases(self) -> list[dict[str, Any]]:
        """Return its cases, one dict per repeat; empty if the file is incomplete."""
        return read_cases(self.path)

    def list_event_files(self) -> list[Path]:
        """Return the files of its ranks' events."""
        files = (self.path / "events").glob("*.jsonl")
        return sorted(path for path in files if path.is_file())


def list_launches(job: Path) -> list[LaunchFolder]:
    """Return the launches of a job, in their order."""
    paths = [path for path in job.glob("[0-9]*") if path.name.isdigit() and path.is_dir()]
    return [LaunchFolder(path) for path in sorted(paths, key=lambda path: int(path.name))]


def read_cases(folder: Path) -> list[dict[str, Any]]:
    """Return the cases of a job or a launch; empty if the file is unreadable."""
    try:
        case_dicts = json.loads(_read_text(folder / CASES_FILE, MAX_CASES_BYTES))
    except (OSError, ValueError):
        return []
    return case_dicts if isinstance(case_dicts, list) else []


def read_complete_lines(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file, without line ends.

    A line that is longer than an event can be is cut at `MAX_LINE`, and so is not a valid event.
    """
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE + 1):
            if line.endswith(b"\n"):
                yield line[:-1]
            elif len(line) > MAX_LINE:
                yield line


def read_words(path: Path) -> list[str]:
    """Return the words of a small file; empty if it cannot be read."""
    try:
        return _read_text(path, MAX_WORDS_BYTES).split()
    except OSError:
        return []


def _read_text(path: Path, max_bytes: int) -> str:
    """Return the content of a file in a folder that any user may have written.

    Raises:
        OSError: It cannot be read, is not a regular file, or has more than ``max_bytes`` bytes.
    """
    # Without O_NONBLOCK, opening a pipe waits until a process writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, encoding="utf-8", errors="replace") as text_file:
        file_status = os.fstat(descriptor)
        if not stat.S_ISREG(file_status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if file_status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"it has more than {max_bytes} bytes", str(path))
        return text_file.read(max_bytes)


def parse_time(text: str) -> float | None:
    """Return a time that a shell wrote, or None if it is invalid."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 < seconds < 1e11 else None


def make_signal_name(word: str) -> str:
    """Return ``SIGTERM`` for ``TERM``."""
    return f"SIG{word}" if f"SIG{word}" in signal.Signals.__members__ else word
