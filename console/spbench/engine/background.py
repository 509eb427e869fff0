"""Runs in the background: ``spbench run --headless`` in a session of its own.

Such a run outlives whoever started it. Who watches it reads its folder and signals its console.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from spbench.engine.faults.launcher_output import end_of_file
from spbench.errors import ExitCode, FailedRunError, UsageError
from spbench.launch.choice import NOTHING_CHOSEN, LaunchChoice
from spbench.record.runs.cancel import leave_word
from spbench.record.runs.event_log import unwritable
from spbench.record.runs.folder import RunFolder, list_runs
from spbench.safe_files import create_file, make_folders

_MOST_LINES = 20
"""Lines of a log that say why a run did not begin."""
_VALUED = ("--home", "--json")
_BARE = ("--headless", "--no-samples")
"""Options, with a value or without, that say where a run goes and not what it does."""
_started: list[subprocess.Popen[bytes]] = []
"""Consoles that were started here, held until they have ended, whoever still watches them."""


class Launched:
    """A run that was started, from before it has a folder until its console has ended.

    Attributes:
        pid: Its console.
        log: What the console prints.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], home: Path, log: Path, seen: set[str]
    ) -> None:
        self.pid = process.pid
        self.log = log
        self._process = process
        self._runs = home / "runs"
        self._seen = seen
        self._folder: RunFolder | None = None

    def folder(self) -> RunFolder | None:
        """Return the run's folder, None while there is none; each other's is read only once."""
        if self._folder is None:
            for name in sorted(_names(self._runs) - self._seen):
                folder = RunFolder(self._runs / name)
                console = _console(folder)
                if console.get("pid") == self.pid and console.get("host") == socket.gethostname():
                    self._folder = folder
                elif console:
                    self._seen.add(name)
        return self._folder

    def ended(self) -> ExitCode | int | None:
        """Return how the console ended, None while it runs.

        A number that is no exit code of spbench is given as it is; below 0 it is a signal's.
        """
        status = self._process.poll()
        return ExitCode(status) if status in list(ExitCode) else status

    def complaint(self) -> str | None:
        """Return why a run ended without a folder: the last lines that its console printed.

        None while it runs, and where it has a folder.
        """
        status = self.ended()
        if status is None or self.folder() is not None:
            return None
        lines = end_of_file(self.log).splitlines()
        told = "\n".join(line.removeprefix("spbench: error: ") for line in lines[-_MOST_LINES:])
        return told.strip() or f"the run ended with status {status:d} and said nothing"

    def cancel(self) -> None:
        """Let the run end as by Ctrl-C, also before it has a folder."""
        if self.ended() is None:
            self._process.send_signal(signal.SIGINT)


def start(words: Sequence[str], home: Path, environ: Mapping[str, str], cwd: Path) -> Launched:
    """Start ``spbench run`` with these words, of `run_words` or `again`.

    Raises:
        FailedRunError: Its folder is gone, its log cannot be written, or its process not started.
    """
    if not cwd.is_dir():  # else the log would make it again
        raise FailedRunError(f"cannot start a run in {cwd}: there is no such folder any more")
    home = home.absolute()
    argv = (sys.executable, "-m", "spbench", "run", *words, "--headless", "--home", str(home))
    seen = _names(home / "runs")
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    log = home / "console" / f"{stamp}-{secrets.token_hex(2)}.log"
    try:
        make_folders(log.parent)
        output = create_file(log, 0o600, root=log.parent)
    except OSError as error:
        raise unwritable(log, error) from None
    with output:
        try:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise FailedRunError(f"cannot start a run with {argv[0]} in {cwd}: {why}") from None
    _started[:] = [other for other in _started if other.poll() is None] + [process]
    return Launched(process, home, log, seen)


def running(home: Path) -> list[RunFolder]:
    """Return the runs under a home whose consoles live on this host, the oldest first."""
    unfinished = (folder for folder in list_runs(home) if not folder.report.exists())
    return [folder for folder in unfinished if folder.alive()]


def any_started() -> bool:
    """Whether a run that this process has started still goes on."""
    return any(process.poll() is None for process in _started)


def cancel(folder: RunFolder) -> None:
    """Let a run end as by Ctrl-C; once more gives its ranks no time to end.

    Raises:
        UsageError: Its console runs elsewhere, has ended, or is another user's.
    """
    console = _console(folder)
    host = console.get("host")
    if host and host != socket.gethostname():
        raise UsageError(f"run {folder.id} runs on {host}; cancel it there")
    if not folder.alive():
        raise UsageError(f"run {folder.id} has ended; there is nothing to cancel")
    leave_word(folder)
    try:
        os.kill(int(str(console["pid"])), signal.SIGINT)
    except ProcessLookupError:
        raise UsageError(f"run {folder.id} has ended; there is nothing to cancel") from None
    except PermissionError:
        raise UsageError(f"run {folder.id} is another user's; only they can cancel it") from None


def run_words(
    suite: Path,
    chosen: LaunchChoice = NOTHING_CHOSEN,
    *,
    keyword: str | None = None,
    cases: Iterable[str] = (),
    inject: str | None = None,
    overrides: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the words behind ``spbench run`` that ask for a run."""
    words = [] if keyword is None else ["-k", keyword]
    words += [word for case in cases for word in ("--case", case)]
    words += [] if inject is None else ["--inject", inject]
    words += chosen.words()
    words += [word for text in overrides for word in ("--set", text)]
    # A name that begins with a dash would be read as an option.
    file = f"./{suite}" if str(suite).startswith("-") else str(suite)
    return (file, *words)


def again(folder: RunFolder) -> tuple[str, ...]:
    """Return the words that ask for what a run was asked for; `start` them in `started_in`.

    Raises:
        UsageError: The run does not say.
    """
    run = folder.read_json("run.json")
    words = run.get("argv")
    if isinstance(words, list) and words[:1] == ["run"]:
        return tuple(_without_place(list(map(str, words[1:]))))
    if isinstance(file := run.get("file"), str):
        return run_words(Path(file))
    raise UsageError(f"run {folder.id} does not say what it was asked for; start it by its suite")


def started_in(folder: RunFolder) -> Path | None:
    """Return the folder in which a run was started, to which its words refer; None: it is gone."""
    cwd = folder.read_json("run.json").get("cwd")
    return Path(cwd) if isinstance(cwd, str) and Path(cwd).is_dir() else None


def _without_place(words: list[str]) -> Iterable[str]:
    """Leave out what says where the run, its lines and its report go."""
    rest = iter(words)
    for word in rest:
        if word in _VALUED:
            next(rest, None)
        elif word not in _BARE and word.partition("=")[0] not in _VALUED:
            yield word


def _console(folder: RunFolder) -> dict[str, object]:
    console = folder.read_json("run.json").get("console")
    return console if isinstance(console, dict) else {}


def _names(folder: Path) -> set[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        return {entry.name for entry in entries}
    return set()
