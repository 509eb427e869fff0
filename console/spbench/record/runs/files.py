"""Files of a run's folder, which may be anyone's.

A pipe in it would never end, a huge file would fill the memory, and text in it may be a terminal's
commands.
"""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

from spbench.safe_files import require_regular

_SUSPECT = re.compile(
    rb"\\u(?:00[0189]|007f|20[26]|d[89a-f])|\\[bfr]|"  # as JSON writes them
    rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]",  # as UTF-8 has them
    re.IGNORECASE,
)
_LAYOUT = "\n\t"


PRIVATE = 0o700
SHARED = 0o777
"""Modes of a run's folder: its owner's alone, or what the umask leaves to others."""


MAX_JSON_BYTES = 64 << 20
"""Bytes of a JSON file other than a report: that of the largest run known has less than 1 MiB."""
MAX_REPORT_BYTES = 1 << 30
"""Bytes of a report: 2,000 cases on 64 ranks take 66 MB, so that this is room for 16 times as many.
"""


class TooLargeError(OSError):
    """A file with more bytes than its kind may have.

    Args:
        path: The file.
        size: Its bytes.
        most: The bytes that it may have.
    """

    def __init__(self, path: Path, size: int, most: int) -> None:
        limit = f"{most >> 30} GiB" if most >= 1 << 30 else f"{most >> 20} MiB"
        self.reason = f"has {_file_size(size)}, more than {limit}"
        super().__init__(errno.EFBIG, f"it {self.reason}", str(path))

    def __str__(self) -> str:
        """Return path and sizes."""
        return f"{self.filename} {self.reason}"


def _file_size(size: int) -> str:
    unit, name = (10**9, "GB") if size >= 10**9 else (10**6, "MB")
    return f"{size / unit:.1f} {name}"


def file_mode(folder: Path) -> int:
    """Return the mode of new files in a folder: whoever may read the folder may read them."""
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


def read_file(path: Path, most: int = MAX_JSON_BYTES) -> bytes:
    """Return what is in a file.

    Args:
        path: The file.
        most: The bytes that it may have.

    Raises:
        TooLargeError: It has more bytes.
        OSError: It cannot be read, or is a folder, a pipe, a socket or a device.
    """
    with open(open_file(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if size > most or len(content) > most:  # it may have grown since
        raise TooLargeError(path, max(size, len(content)), most)
    return content


def may_have_controls(text: bytes) -> bool:
    """Whether a JSON text may have letters that a terminal would act on.

    Such are control characters, those that turn the direction of text, and half characters.
    """
    # Most lines of ranks are plain: this takes a twentieth of the search below.
    if text.isascii() and b"\\" not in text and b"\x7f" not in text:
        return False
    return _SUSPECT.search(text) is not None


def strip_controls_from_json(value: Any) -> Any:
    """Return a JSON value whose texts can be printed; ends of lines and tabs are kept."""
    if isinstance(value, str):
        if value.isprintable():
            return value
        return "".join(map(_shown, value.replace("\r\n", "\n")))
    if isinstance(value, list):
        return [strip_controls_from_json(item) for item in value]
    if isinstance(value, dict):
        return {
            strip_controls_from_json(key): strip_controls_from_json(of) for key, of in value.items()
        }
    return value


def _shown(letter: str) -> str:
    return letter if letter.isprintable() or letter in _LAYOUT else "?"


def read_json(path: Path, most: int = MAX_JSON_BYTES) -> Any:
    """Return what a JSON file has, its texts without a terminal's commands.

    Args:
        path: The file.
        most: The bytes that it may have.

    Raises:
        TooLargeError: It has more bytes.
        OSError: It cannot be read, or is a folder, a pipe, a socket or a device.
        ValueError: It is not JSON.
    """
    return parse_json(read_file(path, most), path)


def parse_json(text: bytes, path: Path) -> Any:
    """Return what a JSON text has, its texts without a terminal's commands.

    Args:
        text: The content of a file.
        path: The file, which the message names.

    Raises:
        ValueError: It is not JSON.
    """
    try:
        value = json.loads(text)
        return strip_controls_from_json(value) if may_have_controls(text) else value
    except RecursionError:
        raise ValueError(f"{path} is nested too deep") from None
    except ValueError as error:
        if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
            raise
        raise ValueError(f"a number in {path} has more than 4300 digits") from None
