"""Read and write files of run folders, which other users may have written.

A pipe among them would never end, a huge file would fill the memory, and texts may contain terminal
commands.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spbench.errors import FailedRunError
from spbench.safe_files import FOLDER_MODE, make_folders, open_folder, replace_file, require_regular
from spbench.suites.pipe_files import write_stream

_SUSPECT = re.compile(
    rb"\\u(?:00[0189]|007f|20[26]|d[89a-f])|\\[bfr]|"  # as JSON writes them
    rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]",  # as UTF-8 has them
    re.IGNORECASE,
)
_LAYOUT = "\n\t"
_FULL = (errno.ENOSPC, errno.EDQUOT)

PRIVATE = 0o700
SHARED = 0o777
"""Modes of a run's folder: only for its owner, or as the umask allows."""

MAX_JSON_BYTES = 64 << 20
"""The largest size of a JSON file except reports. That of the largest known run is below 1 MiB."""
MAX_REPORT_BYTES = 1 << 30
"""The largest size of a report: 16 times that of 2,000 cases on 64 ranks, which is 66 MB."""


class TooLargeError(OSError):
    """A file that is larger than its kind may be.

    Args:
        path: The file.
        size: Its size in bytes.
        max_bytes: Its largest allowed size.
    """

    def __init__(self, path: Path, size: int, max_bytes: int) -> None:
        limit = f"{max_bytes >> 30} GiB" if max_bytes >= 1 << 30 else f"{max_bytes >> 20} MiB"
        self.reason = f"has {_format_file_size(size)}, more than {limit}"
        super().__init__(errno.EFBIG, f"it {self.reason}", str(path))

    def __str__(self) -> str:
        """Return path and sizes."""
        return f"{self.filename} {self.reason}"


def _format_file_size(size: int) -> str:
    unit, name = (10**9, "GB") if size >= 10**9 else (10**6, "MB")
    return f"{size / unit:.1f} {name}"


def file_mode(folder: Path) -> int:
    """Return the mode of new files: the readers of the folder may read them."""
    try:
        return folder.stat().st_mode & 0o666
    except OSError:
        return PRIVATE & 0o666


def open_file(path: Path) -> int:
    """Open a file for reading, and return its descriptor.

    Raises:
        OSError: It cannot be opened, or is a folder, a pipe, a socket or a device.
    """
    return require_regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path)


def read_file(path: Path, max_bytes: int = MAX_JSON_BYTES) -> bytes:
    """Return the content of a file.

    Args:
        path: The file.
        max_bytes: Its largest allowed size.

    Raises:
        TooLargeError: It is larger.
        OSError: It cannot be read, or is a folder, a pipe, a socket or a device.
    """
    with open(open_file(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(max_bytes + 1) if size <= max_bytes else b""
    if size > max_bytes or len(content) > max_bytes:  # it may have grown since
        raise TooLargeError(path, max(size, len(content)), max_bytes)
    return content


def unwritable_error(path: Path, error: OSError) -> FailedRunError:
    """Return the error for a file that cannot be written."""
    remedy = "; free some space there or write elsewhere" if error.errno in _FULL else ""
    return FailedRunError(f"cannot write {path}: {error.strerror or error}{remedy}")


def write_file(
    path: Path,
    text: str,
    *,
    make_folder: bool = True,
    mode: int = 0o666,
    root: Path | None = None,
) -> None:
    """Write a file like `write_chunks`, from its entire text."""
    write_chunks(path, (text,), make_folder=make_folder, mode=mode, root=root)


def write_chunks(
    path: Path,
    chunks: Iterable[str],
    *,
    make_folder: bool = True,
    mode: int = 0o666,
    root: Path | None = None,
) -> None:
    """Write a file atomically: a reader sees the old one or the new one.

    Args:
        path: The file.
        chunks: The parts of its new content, which together need not fit in memory.
        make_folder: Whether its folder is created if it is missing.
        mode: The file's mode, before the umask is applied.
        root: A folder that other users may write. Below it, links are not followed, and a link,
            pipe or device in the file's place is replaced. None means that the user chose the path.
            Links to its folder, pipes, devices and /dev/stdout are then followed, and the
            permissions of an old file are kept. A link to any other file is replaced.

    Raises:
        FailedRunError: It cannot be written.
    """
    try:
        if root is None and _is_stream(path):
            write_stream(path, chunks)
            return
        if make_folder:
            make_folders(root or path.parent)
        if make_folder and root is not None:
            with open_folder(path.parent, root, FOLDER_MODE):
                pass
        replace_file(path, chunks, mode, root=root)
    except OSError as error:
        raise unwritable_error(path, error) from None


def _is_stream(path: Path) -> bool:
    """Whether a path is a pipe, a device or an open file, such as /dev/stdout."""
    if path.exists() and not path.is_file():
        return True
    target = path.parent / os.readlink(path) if path.is_symlink() else path
    folders = (path.parent, target.parent)
    # Nothing can be renamed in /proc, or only by root, who would then replace /dev/stdout itself.
    return any(os.path.realpath(folder).startswith("/proc/") for folder in folders)


def may_have_controls(text: bytes) -> bool:
    """Whether a JSON text may have characters on which a terminal would act.

    These are control characters, characters that change the direction of text, and surrogates.
    """
    # Most lines of ranks are plain, and this check takes a twentieth of the search below.
    if text.isascii() and b"\\" not in text and b"\x7f" not in text:
        return False
    return _SUSPECT.search(text) is not None


def replace_controls_in_json(value: Any) -> Any:
    """Return a JSON value with ``?`` for control characters.

    Line ends and tabs are kept.
    """
    if isinstance(value, str):
        if value.isprintable():
            return value
        return "".join(map(_replace_control, value.replace("\r\n", "\n")))
    if isinstance(value, list):
        return [replace_controls_in_json(item) for item in value]
    if isinstance(value, dict):
        return {
            replace_controls_in_json(key): replace_controls_in_json(child)
            for key, child in value.items()
        }
    return value


def _replace_control(letter: str) -> str:
    return letter if letter.isprintable() or letter in _LAYOUT else "?"


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Return the content of a JSON file, without control characters in texts.

    Args:
        path: The file.
        max_bytes: Its largest allowed size.

    Raises:
        TooLargeError: It is larger.
        OSError: It cannot be read, or is a folder, a pipe, a socket or a device.
        ValueError: It is not JSON.
    """
    return parse_json(read_file(path, max_bytes), path)


def parse_json(text: bytes, path: Path) -> Any:
    """Return the value of a JSON text, without control characters in texts.

    Args:
        text: The content of a file.
        path: The file, for the message.

    Raises:
        ValueError: It is not JSON.
    """
    try:
        value = json.loads(text)
        return replace_controls_in_json(value) if may_have_controls(text) else value
    except RecursionError:
        raise ValueError(f"{path} is nested too deep") from None
    except ValueError as error:
        if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
            raise
        raise ValueError(f"a number in {path} has more than 4300 digits") from None
