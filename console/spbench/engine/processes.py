"""The launcher's process, and all other processes of a run on this host."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from spbench.errors import FailedRunError, MissingError
from spbench.launch.launcher import Command
from spbench.record.runs.files import file_mode, unwritable_error
from spbench.safe_files import create_file
from spbench_core.events.rank_events import ENV_RUN

_SEGMENT = re.compile(r" (/dev/shm/(?:mpich_shm_|sm_segment\.|vader_segment\.)\S+)$", re.MULTILINE)
"""The shared memory of an MPI library, in a line of /proc/PID/maps.

MPICH 5.0.2 removes ``mpich_shm_*`` in MPI_Finalize, Open MPI ``sm_segment.*`` and, before 5,
``vader_segment.*``: if ranks are killed, the files remain. The name of MPICH's file is random, so
only the ranks that have it mapped show to which run it belongs. Measured with 5.0.2.
"""
POLL_INTERVAL = 0.05
"""Seconds between two searches for processes that still run."""
KILL_TIMEOUT = 10.0
"""Seconds in which a killed process must have ended."""


@contextmanager
def create_launcher_folder(command: Command) -> Iterator[Mapping[str, str]]:
    """Create a folder for the launcher's files; yield the variables that name it.

    The folder is removed at the end in any case. There are no variables if the launcher uses no
    folder, or if none can be created: then its own message reports the problem.
    """
    variables: dict[str, str] = {}
    with ExitStack() as stack:
        if command.folder_variables:
            with suppress(OSError):
                folder = TemporaryDirectory(prefix="spbench-launcher-", ignore_cleanup_errors=True)
                variables = dict.fromkeys(command.folder_variables, stack.enter_context(folder))
        yield variables


async def start_launcher(command: Command, folder: Path, root: Path) -> asyncio.subprocess.Process:
    """Start the launcher in a new session, with output in files of the job.

    Args:
        command: The launcher.
        folder: The job's folder.
        root: The run's folder, below which links are not followed.

    Raises:
        MissingError: The program cannot be run.
        FailedRunError: The files cannot be written.
    """
    mode = file_mode(folder)
    try:
        with (
            create_file(folder / "stdout.log", mode, root=root) as stdout,
            create_file(folder / "stderr.log", mode, root=root) as stderr,
        ):
            try:
                return await asyncio.create_subprocess_exec(
                    *command.argv,
                    env=dict(command.env),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
            except (FileNotFoundError, PermissionError) as error:
                raise MissingError(f"cannot run {command.argv[0]}: {error.strerror}") from None
    except OSError as error:
        raise unwritable_error(folder, error) from None


def find_processes(run_id: str) -> list[int]:
    """Return the other processes on this host with the run's id in their environment."""
    mark = f"{ENV_RUN}={run_id}".encode()
    pids = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            environ = Path(entry.path, "environ").read_bytes()
            if mark in environ.split(b"\0"):
                pids.append(int(entry.name))
    return pids


def find_segments(run_id: str) -> set[Path]:
    """Return the shared memory of MPI that processes of the run have mapped."""
    return {path for pid in find_processes(run_id) for path in _read_mapped_segments(pid)}


def remove_unused_segments(segments: Collection[Path]) -> None:
    """Remove files of shared memory of this user that no process has mapped.

    Args:
        segments: The result of `find_segments` while the ranks were alive.
    """
    unused = {path for path in segments if _is_own(path)}
    for entry in os.scandir("/proc") if unused else ():
        if entry.name.isdigit():
            unused -= _read_mapped_segments(int(entry.name))
    for path in unused:
        with suppress(OSError):
            path.unlink()


def _read_mapped_segments(pid: int) -> set[Path]:
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return set()
    return set(map(Path, _SEGMENT.findall(maps)))


def _is_own(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


async def end_processes(
    process: asyncio.subprocess.Process,
    run_id: str,
    grace: float,
    kill_now: asyncio.Event,
    *,
    kill_seconds: float = KILL_TIMEOUT,
) -> None:
    """End all processes of the run on this host: terminate, wait, kill.

    Launchers move ranks out of their process group: Open MPI gives each its own, Hydra a session.
    So the remaining processes are found by the run's id in their environment.

    Args:
        process: The launcher.
        run_id: The run with the processes to end.
        grace: Seconds between SIGTERM and SIGKILL.
        kill_now: If it is set, SIGKILL follows immediately.
        kill_seconds: Seconds in which a killed process must have ended.

    Raises:
        FailedRunError: A killed process does not end, because it waits in the kernel.
    """
    _signal_group(process, signal.SIGTERM)
    if await _wait_for_end(process, run_id, grace, kill_now):
        return
    _signal_group(process, signal.SIGKILL)
    deadline = time.monotonic() + kill_seconds
    while (pids := find_processes(run_id)) or process.returncode is None:
        if time.monotonic() > deadline:
            numbers = ", ".join(map(str, pids or [process.pid]))
            raise FailedRunError(
                f"processes {numbers} do not end {kill_seconds:g} s after SIGKILL: they wait in "
                "the kernel, for a file system or a device, say"
            )
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(POLL_INTERVAL)


async def _wait_for_end(
    process: asyncio.subprocess.Process, run_id: str, grace: float, kill_now: asyncio.Event
) -> bool:
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and not kill_now.is_set():
        if process.returncode is not None and not find_processes(run_id):
            return True
        await asyncio.sleep(POLL_INTERVAL)
    return False


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
