"""Runs in the background: ``spbench run --headless`` in its own session.

Such a run outlives the process that started it. Views read its folder and signal its console.
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
from itertools import pairwise
from pathlib import Path

from spbench.engine.faults.launcher_output import read_tail
from spbench.engine.stop import request_cancel
from spbench.errors import ExitCode, FailedRunError, UsageError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice
from spbench.record.runs.files import unwritable_error
from spbench.record.runs.folder import RunFolder, list_runs
from spbench.safe_files import create_file, make_folders

WITHOUT_FAULTS = "--without-faults"
"""The option of ``--failed`` that does not plant the faults of the run again."""
WITHOUT_CANCELLED = "--without-cancelled"
"""The option of ``--failed`` that leaves out the cancelled cases."""
_INJECT = "--inject"
_MAX_LINES = 20
"""The number of last log lines that are shown if a run did not begin."""
_OUTPUT_OPTIONS = ("--home", "--json", "--junit", "--html")
"""Options with a value for the output of a run and not for its content."""
_OUTPUT_FLAGS = ("--headless", "--no-samples", "--quiet", "-q", "--verbose", "-v")
"""Options without a value for the output of a run and not for its content."""
_started: list[subprocess.Popen[bytes]] = []
"""Consoles that this process started, kept until they have ended."""


class BackgroundRun:
    """A started run, from before it has a folder until its console has ended.

    Attributes:
        pid: The process of its console.
        log: The file with the console's output.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], home: Path, log: Path, known_names: set[str]
    ) -> None:
        self.pid = process.pid
        self.log = log
        self._process = process
        self._runs = home / "runs"
        self._known_names = known_names
        self._folder: RunFolder | None = None

    def find_folder(self) -> RunFolder | None:
        """Return the run's folder; None while there is none.

        Folders of other runs are read only once.
        """
        if self._folder is None:
            for name in sorted(_list_names(self._runs) - self._known_names):
                folder = RunFolder(self._runs / name)
                console = _read_console(folder)
                if console.get("pid") == self.pid and console.get("host") == socket.gethostname():
                    self._folder = folder
                elif console:
                    self._known_names.add(name)
        return self._folder

    def get_exit_status(self) -> ExitCode | int | None:
        """Return the console's exit code; None while it runs.

        A status that is not an exit code of spbench is returned as it is. A negative one is the
        number of a signal.
        """
        status = self._process.poll()
        return ExitCode(status) if status in list(ExitCode) else status

    def read_last_lines(self) -> str | None:
        """Return the last lines of the console's output if a run ended without a folder.

        None while it runs, and if it has a folder.
        """
        status = self.get_exit_status()
        if status is None or self.find_folder() is not None:
            return None
        lines = read_tail(self.log).splitlines()[-_MAX_LINES:]
        text = "\n".join(line.removeprefix("spbench: error: ") for line in lines)
        return text.strip() or f"the run ended with status {status:d} and said nothing"

    def cancel(self) -> None:
        """End the run like Ctrl-C does, also before it has a folder."""
        if self.get_exit_status() is None:
            self._process.send_signal(signal.SIGINT)


def start_run(
    args: Sequence[str], home: Path, environ: Mapping[str, str], cwd: Path
) -> BackgroundRun:
    """Start ``spbench run`` with arguments of `build_run_args` or `build_rerun_args`.

    Raises:
        FailedRunError: The folder ``cwd`` is missing, the log cannot be written, or the process
            cannot be started.
    """
    if not cwd.is_dir():  # writing the log would create it
        raise FailedRunError(f"cannot start a run in {cwd}: there is no such folder any more")
    home = home.absolute()
    argv = (sys.executable, "-m", "spbench", "run", *args, "--headless", "--home", str(home))
    known_names = _list_names(home / "runs")
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    log = home / "console" / f"{stamp}-{secrets.token_hex(2)}.log"
    try:
        make_folders(log.parent)
        output = create_file(log, 0o600, root=log.parent)
    except OSError as error:
        raise unwritable_error(log, error) from None
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
            reason = getattr(error, "strerror", None) or error
            raise FailedRunError(f"cannot start a run with {argv[0]} in {cwd}: {reason}") from None
    # kept, so that a console that has ended is waited for and leaves no zombie
    _started[:] = [other for other in _started if other.poll() is None] + [process]
    return BackgroundRun(process, home, log, known_names)


def find_running(home: Path) -> list[RunFolder]:
    """Return the runs of a home with live consoles on this host, the oldest first."""
    unfinished = (folder for folder in list_runs(home) if not folder.report.exists())
    return [folder for folder in unfinished if folder.is_alive()]


def has_running() -> bool:
    """Whether a run that this process has started is still running."""
    return any(process.poll() is None for process in _started)


def list_started_pids() -> list[int]:
    """Return the process numbers of running runs that this process started."""
    return [process.pid for process in _started if process.poll() is None]


def cancel_run(folder: RunFolder) -> None:
    """End a run like Ctrl-C does. A second call leaves its ranks no time to end.

    Raises:
        UsageError: Its console runs elsewhere, has ended, or is another user's.
    """
    console = _read_console(folder)
    host = console.get("host")
    if host and host != socket.gethostname():
        raise UsageError(f"run {folder.id} runs on {host}; cancel it there")
    if not folder.is_alive():
        raise UsageError(f"run {folder.id} has ended; there is nothing to cancel")
    # before the signal, since the console reads the request when it gets the signal
    request_cancel(folder)
    try:
        os.kill(int(str(console["pid"])), signal.SIGINT)
    except ProcessLookupError:
        raise UsageError(f"run {folder.id} has ended; there is nothing to cancel") from None
    except PermissionError:
        raise UsageError(f"run {folder.id} is another user's; only they can cancel it") from None


def build_run_args(
    suite: Path,
    launch_choice: LaunchChoice = DEFAULT_CHOICE,
    *,
    keyword: str | None = None,
    cases: Iterable[str] = (),
    inject: Iterable[str] = (),
    overrides: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the arguments of ``spbench run`` for a new run."""
    args = [] if keyword is None else ["-k", keyword]
    args += [arg for case in cases for arg in ("--case", case)]
    args += [arg for fault in inject for arg in ("--inject", fault)]
    args += launch_choice.to_args()
    args += [arg for override in overrides for arg in ("--set", override)]
    # A name that begins with a dash would be read as an option.
    file = f"./{suite}" if str(suite).startswith("-") else str(suite)
    return (file, *args)


def build_rerun_args(
    folder: RunFolder, repeat: int | None = None, *, with_faults: bool = True
) -> tuple[str, ...]:
    """Return the arguments to repeat a run from `find_start_folder`.

    Args:
        folder: The run.
        repeat: Launches of each case. Default: as in the run.
        with_faults: Whether the faults of the run are planted again.

    Raises:
        UsageError: The run's run.json has neither arguments nor a suite.
    """
    run = folder.read_json("run.json")
    argv = run.get("argv")
    if isinstance(argv, list) and argv[:1] == ["run"]:
        args = tuple(_remove_output_options(list(map(str, argv[1:]))))
    elif isinstance(file := run.get("file"), str):
        args = build_run_args(Path(file))
    else:
        raise UsageError(
            f"run {folder.id} does not say what it was asked for; start it by its suite"
        )
    if not with_faults:
        args = _remove_faults(args)
    return args if repeat is None else _set_repeat(args, repeat)


def _remove_faults(args: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments without faults; ``--failed`` would repeat those of a run."""
    other_args = [
        arg
        for before, arg in pairwise(("", *args))
        if _INJECT not in (before, arg) and not arg.startswith(f"{_INJECT}=")
    ]
    repeats_failed = any(arg.partition("=")[0] == "--failed" for arg in other_args)
    has_option = WITHOUT_FAULTS in other_args
    return (*other_args, *([WITHOUT_FAULTS] if repeats_failed and not has_option else []))


def _set_repeat(args: Sequence[str], repeat: int) -> tuple[str, ...]:
    """Return arguments with another number of launches; a key is set only once."""
    other_args: list[str] = []
    for arg in args:
        is_repeat = arg.removeprefix("--set=").startswith("repeat=")
        if is_repeat and other_args[-1:] == ["--set"]:
            other_args.pop()
        elif not (is_repeat and arg.startswith("--set=")):
            other_args.append(arg)
    return (*other_args, "--set", f"repeat={repeat}")


def find_start_folder(folder: RunFolder) -> Path | None:
    """Return the folder in which a run was started; None if it is missing."""
    cwd = folder.read_json("run.json").get("cwd")
    return Path(cwd) if isinstance(cwd, str) and Path(cwd).is_dir() else None


def _remove_output_options(args: list[str]) -> Iterable[str]:
    remaining = iter(args)
    for arg in remaining:
        if arg in _OUTPUT_OPTIONS:
            next(remaining, None)
        elif arg not in _OUTPUT_FLAGS and arg.partition("=")[0] not in _OUTPUT_OPTIONS:
            yield arg


def _read_console(folder: RunFolder) -> dict[str, object]:
    console = folder.read_json("run.json").get("console")
    return console if isinstance(console, dict) else {}


def _list_names(folder: Path) -> set[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        return {entry.name for entry in entries}
    return set()
