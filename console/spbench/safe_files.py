"""Writing files in folders that other users may write: planted links and pipes are not followed.

A folder's owner can put a symbolic link, a hard link or a pipe where the next file is written. So
files get a random name first, or must be regular files with one name, and folders below a root
are opened one by one. The root itself and all above it may be links: `.spbench` on another disk.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

FOLDER_MODE = 0o775
"""Mode of a new folder, less the umask: never world-writable, even if the umask is 0.

The group keeps its bit, because teams share a home with a umask of 002.
"""
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folders(path: Path, mode: int = FOLDER_MODE) -> None:
    """Make a folder with this mode and its missing parents with `FOLDER_MODE`, less the umask.

    Raises:
        OSError: One cannot be made, or is something else.
    """
    for folder in (*reversed(path.parents), path):
        if folder.is_dir():
            continue
        try:
            folder.mkdir(mode if folder == path else FOLDER_MODE)
        except FileExistsError:  # another process may have made it
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, f"{folder} is not a folder") from None


@contextmanager
def open_folder(path: Path, root: Path | None = None, make: int | None = None) -> Iterator[int]:
    """Open a folder, and yield a descriptor for names relative to it.

    Args:
        path: The folder.
        root: The folder below which no link is followed; None: `path` itself.
        make: The mode of folders below the root that are missing; None: they are not made.

    Raises:
        OSError: A folder is missing, or something else is in its place.
    """
    folder = os.open(root or path, _FOLDER)
    try:
        for name in path.relative_to(root or path).parts:
            if make is not None:
                with suppress(FileExistsError):
                    os.mkdir(name, make, dir_fd=folder)
            try:
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            except NotADirectoryError:
                raise _not_a_folder(name, folder) from None
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _not_a_folder(name: str, folder: int) -> OSError:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return OSError(errno.ELOOP, f"{name} is a link, which spbench does not follow here")
    return NotADirectoryError(errno.ENOTDIR, f"{name} is not a folder")


@contextmanager
def open_replacement(path: Path, mode: int, *, root: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a new file that takes the place of `path` at the end, unless an exception is raised.

    A link, a pipe or a device in its place is replaced, not followed. The file is not flushed to
    the disk: a run writes several per launch, and flushing would block its console for as long as
    a busy disk takes. All of them follow from the event log, which is not flushed either.

    Args:
        path: The file.
        mode: Its mode, less the umask.
        root: As for `open_folder`. None: the path is the user's own choice, and a file that is
            replaced keeps its permissions.

    Raises:
        OSError: It could not be written; the old file is as before.
    """
    with open_folder(path.parent, root) as folder:
        kept = _permissions(path.name, folder) if root is None else None
        # Not derived from the file's name, which may be as long as the file system allows.
        draft = f".spbench-{secrets.token_hex(8)}"
        file = os.open(draft, _NEW_FILE, mode if kept is None else mode & kept, dir_fd=folder)
        try:
            with os.fdopen(file, "wb") as content:
                if kept is not None:
                    with suppress(OSError):  # a file system without permissions
                        os.fchmod(file, kept)
                yield content
            os.rename(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise


def _permissions(name: str, folder: int) -> int | None:
    """Return the permissions of a regular file; None if there is none of that name."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    # Somebody else's file may be world-writable in order to change what is written into it.
    allowed = 0o777 if status.st_uid == os.geteuid() else 0o775
    return status.st_mode & allowed


def replace_file(path: Path, chunks: Iterable[str], mode: int, *, root: Path | None = None) -> None:
    """Write text to a new file, and replace `path` with it; see `open_replacement`.

    Raises:
        OSError: It could not be written; the old file is as before.
    """
    with open_replacement(path, mode, root=root) as file:
        for chunk in chunks:
            file.write(chunk.encode())


def create_file(path: Path, mode: int, *, root: Path) -> BinaryIO:
    """Open a new file for writing; whatever has its name is removed first, not written to.

    Args:
        path: The file.
        mode: Its mode, less the umask.
        root: As for `open_folder`.

    Raises:
        OSError: It cannot be made, or the name is a folder's.
    """
    with open_folder(path.parent, root) as folder:
        with suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=folder)
        return os.fdopen(os.open(path.name, _NEW_FILE, mode, dir_fd=folder), "wb")


def open_regular(path: Path, flags: int, mode: int = 0) -> int:
    """Open a file with these flags, and return its descriptor; it is not waited for.

    Raises:
        OSError: It cannot be opened, or is a link, a pipe, a socket or a device.
    """
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        why = "it is a link, which spbench does not follow here"
        raise OSError(errno.ELOOP, why, str(path)) from None
    return require_regular(file, path)


def require_regular(file: int, path: Path) -> int:
    """Return an open file's descriptor if the file is regular, else close it.

    Raises:
        OSError: It is a folder, a pipe, a socket or a device; ``path`` is in the message.
    """
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a pipe or a device, and no file", str(path))


def open_to_append(path: Path, mode: int) -> int:
    """Open a file to read and append, made if it is missing, and return its descriptor.

    Raises:
        OSError: It cannot be opened, is no regular file, or has a second name, under which the
            appended data would appear too.
    """
    file = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, mode)
    if os.fstat(file).st_nlink <= 1:
        return file
    os.close(file)
    raise OSError(errno.EMLINK, "it has another name (a hard link); replace it by a copy")
