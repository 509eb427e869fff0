"""A folder in shared memory of each rank's own, for the segments of Open MPI.

Open MPI names the segments through which ranks of one host exchange messages by host, user, rank
and a 16-bit hash of the job. Two jobs that run on a host at the same time with equal hashes open
the same segments, and crash or hang: one pair of jobs in 65,536. A rank that is killed leaves its
segment, 16 MiB, behind. Each rank therefore has a folder under a random name, and removes the
folders of ranks that are gone. A rank holds a lock on its folder for as long as it lives, however
it ends.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

from spbench_core.host_facts import SHARED

VARIABLES = (
    "OMPI_MCA_btl_sm_backing_directory",
    "OMPI_MCA_btl_vader_backing_directory",  # its name in Open MPI 4
    "OMPI_MCA_osc_sm_backing_directory",
)
"""Environment variables that tell Open MPI where to create segments."""


def own_folder(environ: MutableMapping[str, str], memory: Path = SHARED) -> Path | None:
    """Create the folder of this process and name it to Open MPI, before MPI starts.

    The folder is removed at the end of the process if MPI was finalized by then.

    Args:
        environ: The environment of this process. Variables that are set there are kept.
        memory: The file system in memory.

    Returns:
        The folder, or None where all variables are set or ``memory`` takes no folder: Open MPI
        then uses its default.
    """
    if all(name in environ for name in VARIABLES):
        return None
    try:
        remove_abandoned(memory)
        folder = _create_locked(memory)
    except OSError:
        return None
    atexit.register(_remove_empty, folder)
    for name in VARIABLES:
        environ.setdefault(name, str(folder))
    return folder


def remove_abandoned(memory: Path = SHARED) -> None:
    """Remove the folders of this user's processes that are gone.

    Raises:
        OSError: ``memory`` cannot be read.
    """
    for name in os.listdir(memory):
        if not name.startswith(_prefix()):
            continue
        with suppress(OSError):  # another user's, no folder, in use, or just removed by its owner
            locked = _lock(memory / name)
            shutil.rmtree(memory / name, ignore_errors=True)
            os.close(locked)


def _create_locked(memory: Path) -> Path:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_prefix(), dir=memory))
        # Until the folder is locked, another rank may take it for an abandoned one.
        with suppress(BlockingIOError, FileNotFoundError):
            locked = _lock(folder)
            if folder.exists():
                return folder
            os.close(locked)


def _lock(folder: Path) -> int:
    """Lock a folder for as long as the descriptor that is returned is open.

    Raises:
        BlockingIOError: Another process holds the lock.
        OSError: The path is no folder of this user.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to another user")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _prefix() -> str:
    return f"spbench-{os.getuid()}-"
