"""Run folders ``<home>/runs/<id>/`` with suite, jobs, events and report."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spbench.errors import MissingError, UsageError, did_you_mean
from spbench.record.runs.files import (
    MAX_JSON_BYTES,
    PRIVATE,
    SHARED,
    TooLargeError,
    file_mode,
    read_json,
    unwritable_error,
    write_chunks,
)
from spbench.safe_files import make_folders, open_folder

if TYPE_CHECKING:
    from spbench.record.state import RunState

FileStamp = tuple[int, int]
"""The time of a file's last change in nanoseconds, and its size in bytes."""
NO_FILE: FileStamp = (0, 0)
"""The stamp of a missing file, and of a folder, a pipe or a device."""

DEFAULT_HOME = Path(".spbench")
ENV_HOME = "SPBENCH_HOME"
QUIET = 600.0
"""Seconds without an event after which the console of a run on another host counts as ended.

Ranks send a heartbeat per second, but a launch may take minutes, and clocks of hosts may differ.
"""
_CLOCK_SLACK = 10.0
"""Seconds by which the kernel's clock since boot may differ from the time of day."""
_START_TICKS = 19
"""The index of the process's start among the fields of /proc/PID/stat after the program's name."""
_LAST = re.compile(r"last(?:~(\d{1,9}))?")


def file_stamp(path: Path | str) -> FileStamp:
    """Return a stamp that changes whenever the file changes."""
    try:
        status = os.stat(path)
    except OSError:
        return NO_FILE
    return (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else NO_FILE


def explain_unreadable(stamp: FileStamp) -> str | None:
    """Return why a run with a run.json of this stamp cannot be read; None if it can."""
    size = stamp[1]
    if size <= MAX_JSON_BYTES:
        return None
    return str(TooLargeError(Path("run.json"), size, MAX_JSON_BYTES))


def find_home(option: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the folder of the runs: --home, SPBENCH_HOME, or ``.spbench``."""
    return option or Path(environ.get(ENV_HOME) or DEFAULT_HOME)


def find_working_folder() -> str:
    """Return the folder in which this command runs.

    Raises:
        UsageError: It was deleted.
    """
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError("the folder in which you are was deleted; go to another one") from None


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def id(self) -> str:
        """The run's id, which is the folder's name."""
        return self.path.name

    @property
    def events(self) -> Path:
        """The event log."""
        return self.path / "events.jsonl"

    @property
    def report(self) -> Path:
        """The report, once the run has ended."""
        return self.path / "report.json"

    @property
    def report_line(self) -> str:
        """The last line about a run that has ended.

        A full disk may have left it without a report.
        """
        if self.report.exists():
            return f"report: {self.report}"
        return f"no report was written; events: {self.events}"

    def create_job_folder(self, number: int) -> Path:
        """Return the folder of a job, which is created if it is missing.

        Raises:
            FailedRunError: It cannot be created. A link is not followed.
        """
        folder = self.path / "jobs" / str(number)
        try:
            mode = self.path.stat().st_mode & SHARED
            with open_folder(folder, self.path, mode):  # a removed run's folder is not recreated
                pass
        except OSError as error:
            raise unwritable_error(folder, error) from None
        return folder

    def write_text(self, name: str, text: str) -> None:
        """Write a file of this folder atomically."""
        self.write_chunks(name, (text,))

    def write_chunks(self, name: str, chunks: Iterable[str]) -> None:
        """Write a file of this folder like `write_text`, from parts of its text."""
        mode = file_mode(self.path)
        write_chunks(self.path / name, chunks, make_folder=False, mode=mode, root=self.path)

    def write_json(self, name: str, content: object) -> None:
        """Write a JSON file of this folder atomically."""
        self.write_text(name, json.dumps(content, indent=1, allow_nan=False) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file; empty if it is missing or damaged."""
        try:
            content = read_json(self.path / name)
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def explain_unreadable(self) -> str | None:
        """Return why the run cannot be read, if its run.json is too large; otherwise None."""
        return explain_unreadable(file_stamp(f"{self.path}/run.json"))

    def check_readable(self) -> None:
        """Reject a run that cannot be read.

        Raises:
            UsageError: Its run.json is too large.
        """
        if reason := self.explain_unreadable():
            raise UsageError(f"cannot read run {self.id}: {self.path}/{reason}")

    def read_pid(self) -> int | None:
        """Return the process number of the console that writes this run; None if unknown."""
        pid = self._read_console().get("pid")
        return pid if isinstance(pid, int) else None

    def is_alive(self) -> bool | None:
        """Whether the console that writes this run is still running.

        None means that it is on another host and the log has grown recently. Only the log shows it
        then.
        """
        console = self._read_console()
        if self.find_other_host() is not None:
            return None if self._is_growing() else False
        if console.get("host") != socket.gethostname():
            return False
        process_started = find_process_start(console.get("pid"))
        recorded_start = console.get("started")
        if process_started is None or not isinstance(recorded_start, (int, float)):
            return False
        # a later process may have the same number
        if isinstance(console.get("since_boot"), (int, float)):
            return bool(process_started == console["since_boot"])
        # Older run folders only have a time by the system's clock, which may have been set since.
        return process_started + _find_boot_time() <= recorded_start + _CLOCK_SLACK

    def find_other_host(self) -> str | None:
        """Return the host of the console that writes this run; None if it is this one."""
        host = self._read_console().get("host")
        return host if isinstance(host, str) and host != socket.gethostname() else None

    def _read_console(self) -> dict[str, Any]:
        console = self.read_json("run.json").get("console")
        return console if isinstance(console, dict) else {}

    def _is_growing(self) -> bool:
        """Whether the log has grown recently; before there is one, run.json is checked."""
        log = self.events if self.events.exists() else self.path / "run.json"
        with suppress(OSError):
            return time.time() - log.stat().st_mtime < QUIET
        return False

    def replay(self) -> RunState:
        """Return the state after all recorded events, without invalid lines.

        Raises:
            UsageError: The log cannot be read, or has no valid beginning.
        """
        # imported here, because commands that only list runs do not need these modules
        from spbench.record.runs.follow import RecordedEvents
        from spbench.record.state import RunState

        state = RunState()
        events = RecordedEvents(self.events)
        for event in events:
            state.apply(event)
        state.skipped_message = events.skipped_message
        if state.run is None and state.skipped_message:
            raise UsageError(f"the beginning of this run is lost: {state.skipped_message}")
        return state


def find_process_start(pid: object) -> float | None:
    """Return the start of a process of spbench in seconds since the boot.

    None if there is no process of that number, or if it is another program's.
    """
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # any program may have a file below a folder called spbench in its command line
    if b"spbench" not in map(os.path.basename, argv):
        return None
    return int(after_name[_START_TICKS]) / os.sysconf("SC_CLK_TCK")


def _find_boot_time() -> float:
    """Return the time of this host's boot, in seconds since the epoch."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def create_run(home: Path, suite: str, *, shared: bool = False) -> RunFolder:
    """Create the folder of a new run. Its id has the start time and the suite's name.

    Only its owner may read it, unless it is ``shared``.

    Raises:
        MissingError: The folder cannot be created.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", suite.lower()).strip("-")[:24] or "run"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    while True:
        path = home / "runs" / f"{stamp}-{slug}-{secrets.token_hex(2)}"
        try:
            make_folders(path.parent)
            path.mkdir(SHARED if shared else PRIVATE)
        except OSError as error:
            if path.is_dir():
                continue  # a run of the same second has this id, with a chance of 1 in 65,536
            raise unwritable_home_error(path, error) from None
        return RunFolder(path)


def unwritable_home_error(path: Path, error: OSError) -> MissingError:
    """Return the error for a home in which no run can be recorded."""
    return MissingError(
        f"{unwritable_error(path, error)}; choose another folder by --home or SPBENCH_HOME"
    )


def list_runs(home: Path) -> list[RunFolder]:
    """Return the runs of a home with printable names, the oldest first."""
    return [folder for folder, _ in list_stamped_runs(home)]


def list_stamped_runs(home: Path) -> list[tuple[RunFolder, FileStamp]]:
    """Return the runs of a home with the stamps of their run.json, the oldest first."""
    runs = home / "runs"
    if not runs.is_dir():
        return []
    names = sorted(name for name in os.listdir(runs) if name.isprintable())
    # With ten thousand runs, creating a Path for each takes longer than reading its status.
    stamps = [(name, file_stamp(f"{runs}/{name}/run.json")) for name in names]
    return [(RunFolder(runs / name), stamp) for name, stamp in stamps if stamp != NO_FILE]


def find_run(home: Path, name: str) -> RunFolder:
    """Return the run with this id, or with this beginning or last part of its id.

    ``last`` is the newest run, ``last~1`` the one before it, and so on.

    Raises:
        UsageError: There is none, there are several, or it cannot be read.
    """
    folder = _find_named(home, name)
    folder.check_readable()
    return folder


def _find_named(home: Path, name: str) -> RunFolder:
    folders = list_runs(home)
    from_last = _LAST.fullmatch(name)
    if from_last and folders:
        return _select_from_last(folders, int(from_last[1] or 0), home)
    suffix = f"-{name}"
    matches = [
        folder for folder in folders if folder.id.startswith(name) or folder.id.endswith(suffix)
    ]
    exact = [folder for folder in matches if folder.id == name]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    if matches:
        ids = ", ".join(folder.id for folder in matches[:3])
        raise UsageError(
            f"{len(matches)} runs begin or end with {name!r} ({ids}, ...); write more of the id"
        )
    locked = home / "runs" / name
    if locked.name == name and locked.is_dir() and not os.access(locked, os.R_OK | os.X_OK):
        raise UsageError(
            f"run {name} is another user's, who has not shared it: see --shared of spbench run"
        )
    suggestion = did_you_mean(name, (folder.id for folder in folders))
    raise UsageError(f"no run {name!r} under {home}{suggestion}; see spbench results list")


def _select_from_last(folders: list[RunFolder], steps_back: int, home: Path) -> RunFolder:
    if steps_back < len(folders):
        return folders[-1 - steps_back]
    are_runs = "is 1 run" if len(folders) == 1 else f"are {len(folders)} runs"
    raise UsageError(f"there {are_runs} under {home}, none of them last~{steps_back}")
