"""A private folder in shared memory for the files of each rank's Open MPI.

Ranks on one host exchange messages through files that Open MPI names by host, user, rank and a
16-bit hash of the job. Two jobs that run on a host at the same time with the same hash open the
same files, and then crash or hang: one pair of jobs in 65,536. A killed rank leaves a file of 16
MiB behind. Each rank therefore creates a folder with a random name, and removes the folders of
ranks that have ended. A rank locks its folder, and the kernel releases the lock however the rank
ends.
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

from spbench_core.host_facts import SHARED_MEMORY

VARIABLES = (
    "OMPI_MCA_btl_sm_backing_directory",
    "OMPI_MCA_btl_vader_backing_directory",  # its name in Open MPI 4
    "OMPI_MCA_osc_sm_backing_directory",
)
"""Environment variables by which Open MPI chooses the folder of its files."""


def set_private_folder(
    environ: MutableMapping[str, str], memory: Path = SHARED_MEMORY
) -> Path | None:
    """Create a private folder, and set Open MPI's variables to it, before MPI starts.

    The folder is removed when the process exits, if MPI is finalized by then.

    Args:
        environ: The environment of this process. Variables that are set already are kept.
        memory: The file system in which to create the folder.

    Returns:
        The folder; None if all variables are set already or the folder cannot be created, and
        Open MPI uses its default.
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


def remove_abandoned(memory: Path = SHARED_MEMORY) -> None:
    """Remove the folders of processes of this user that have ended.

    Raises:
        OSError: ``memory`` cannot be read.
    """
    for name in os.listdir(memory):
        if name.startswith(_prefix()):
            with suppress(OSError):  # in use, just removed, a link, or another user's
                descriptor = _lock_folder(memory / name)
                shutil.rmtree(memory / name, ignore_errors=True)
                os.close(descriptor)


def _create_locked(memory: Path) -> Path:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_prefix(), dir=memory))
        try:
            descriptor = _lock_folder(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # another rank removes it as abandoned, before it was locked
        except OSError:
            folder.rmdir()
            raise
        if folder.exists():
            return folder
        os.close(descriptor)


def _lock_folder(folder: Path) -> int:
    """Lock a folder until the returned descriptor is closed.

    Raises:
        BlockingIOError: Another process holds the lock.
        OSError: It is a link or no folder, another user owns it, or it cannot be locked.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError(f"another user owns {folder}")
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
