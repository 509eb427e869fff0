"""Files that the user names: paths with ``~``, and pipes such as ``<(command)``."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from spbench.errors import UsageError

PIPE_TIMEOUT = 2.0
"""Seconds within which a program must open the other end of a pipe."""
_POLL = 0.02
_CHUNK = 1 << 16


def expand_user_path(folder: Path, text: str) -> Path:
    """Return the path of a text that may begin with ``~`` or ``~user``.

    Args:
        folder: The folder of relative paths.
        text: The text.

    Raises:
        UsageError: The home directory is unknown.
    """
    try:
        return folder / Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"{text}: unknown home directory") from None


def expand_suite_path(folder: Path, text: str) -> Path:
    """Return the path of a suite file, with ``.yaml`` if it has no suffix.

    Otherwise it is the same as `expand_user_path`.

    Raises:
        UsageError: The home directory is unknown, the text has no file name, or another suffix.
    """
    path = expand_user_path(folder, text)
    if not path.name or text.endswith("/"):
        raise UsageError(f"{text}: not a file name")
    if path.suffix not in ("", ".yaml", ".yml"):
        raise UsageError(f"{path} is not a suite file name: end it with .yaml")
    return path.with_suffix(path.suffix or ".yaml")


def read_first_bytes(path: Path, size: int, *, pipe_seconds: float = PIPE_TIMEOUT) -> bytes:
    """Return the first bytes of a file, at most ``size``.

    A pipe is read until its writers close it, without a time limit. But the first writer must open
    it within ``pipe_seconds``, because a FIFO may never get a writer.

    Raises:
        OSError: It cannot be read, or no program opens the pipe for writing.
        ValueError: The path has a NUL character.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISFIFO(os.fstat(file).st_mode):
            return _read_pipe(file, path, size, pipe_seconds)
        os.set_blocking(file, True)
        with open(file, "rb", closefd=False) as stream:
            return stream.read(size)
    finally:
        os.close(file)


def _read_pipe(file: int, path: Path, size: int, pipe_seconds: float) -> bytes:
    content = bytearray()
    has_writer = False
    deadline = time.monotonic() + pipe_seconds
    while len(content) < size:
        try:
            part = os.read(file, min(_CHUNK, size - len(content)))
        except BlockingIOError:  # it has a writer, but no bytes at the moment
            has_writer = True
            select.select([file], [], [])
            continue
        content += part
        has_writer = has_writer or bool(part)
        if part:
            continue
        if has_writer:
            break
        if time.monotonic() > deadline:
            reason = f"it is a pipe, and no program opened it for writing in {pipe_seconds:g} s"
            raise OSError(errno.ENXIO, reason, str(path))
        time.sleep(_POLL)
    return bytes(content)


def write_stream(path: Path, chunks: Iterable[str]) -> None:
    """Write chunks of text to a pipe or a device.

    Raises:
        OSError: It cannot be written, or no program opens the pipe for reading.
    """
    deadline = time.monotonic() + PIPE_TIMEOUT
    while True:
        try:
            # Without O_NONBLOCK this would wait without a limit for a reader of the pipe.
            file = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or not path.is_fifo():
                raise
            if time.monotonic() > deadline:
                reason = f"it is a pipe, and no program opened it for reading in {PIPE_TIMEOUT:g} s"
                raise OSError(errno.ENXIO, reason, str(path)) from None
        time.sleep(_POLL)
    os.set_blocking(file, True)
    with open(file, "w", encoding="utf-8") as stream:
        stream.writelines(chunks)
