"""Reads a report's file case by case, so that it never is in memory as a whole."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TextIO, TypeVar

from spbench.record.runs.files import (
    MAX_REPORT_BYTES,
    TooLargeError,
    may_have_controls,
    open_file,
    strip_controls_from_json,
)

CASES = "cases"
BLOCK = 1 << 20
"""Letters of a report that are read at once."""
MOST_VALUE = 256 << 20
"""Letters of one case: one on 64 ranks takes 33,000. What is longer is taken for damage."""
_AHEAD = 3
"""Letters behind a number that show its end: in ``1.5e-7`` two behind ``1.5`` do not."""
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()

Case = TypeVar("Case")


def read_report_file(
    path: Path, convert_case: Callable[[Any], Case]
) -> tuple[dict[str, Any], list[Case]]:
    """Return a report without its cases, and its cases converted one by one.

    Texts are without a terminal's commands. If the value of ``cases`` is no array, the report keeps
    it.

    Args:
        path: The file.
        convert_case: Called with each item of ``cases``.

    Raises:
        TooLargeError: It has more bytes than a report may have.
        OSError: The file cannot be read, or is a folder, a pipe, a socket or a device.
        ValueError: It is no JSON object, or ``convert_case`` raised that.
    """
    with open(open_file(path), encoding="utf-8", newline="") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_REPORT_BYTES:
            raise TooLargeError(path, size, MAX_REPORT_BYTES)
        try:
            return _ReportReader(file, convert_case).read()
        except RecursionError:
            raise ValueError(f"{path} is nested too deep") from None


class _ReportReader(Generic[Case]):
    """Reads one JSON object, and converts its cases as soon as they are read.

    Only a part of the text is in memory: the value that is read, and what follows it in its block.
    """

    def __init__(self, file: TextIO, convert_case: Callable[[Any], Case]) -> None:
        self._file = file
        self._convert = convert_case
        self._text = ""
        self._at = 0

    def read(self) -> tuple[dict[str, Any], list[Case]]:
        head: dict[str, Any] = {}
        cases: list[Case] = []
        self._expect("{")
        while not self._accept("}"):
            if head:
                self._expect(",")
            name = self._read_value()
            if not isinstance(name, str):
                raise self._error("a name in quotes")
            self._expect(":")
            if name == CASES and self._accept("["):
                cases = self._read_cases()
                head[name] = []
            else:
                head[name] = self._read_value()
        if self._skip_space():
            raise self._error("the end of the file")
        return head, cases

    def _read_cases(self) -> list[Case]:
        cases: list[Case] = []
        while not self._accept("]"):
            if cases:
                self._expect(",")
            cases.append(self._convert(self._read_value()))
        return cases

    def _read_value(self) -> Any:
        self._skip_space()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                # The value may end in the next block, or never, where the text is damaged.
                if len(self._text) - self._at <= MOST_VALUE and self._read_block():
                    continue
                raise
            # A number at the end of a block may go on in the next one.
            if len(self._text) - end < _AHEAD and self._read_block():
                continue
            suspect = may_have_controls(self._text[self._at : end].encode())
            self._at = end
            return strip_controls_from_json(value) if suspect else value

    def _accept(self, letter: str) -> bool:
        if not self._skip_space() or self._text[self._at] != letter:
            return False
        self._at += 1
        return True

    def _expect(self, letter: str) -> None:
        if not self._accept(letter):
            raise self._error(repr(letter))

    def _skip_space(self) -> bool:
        """Go to the next letter that is no space; return whether there is one."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return True
            if not self._read_block():
                return False

    def _read_block(self) -> bool:
        """Read more of the text, as much again as there is of a value; return whether there was."""
        block = self._file.read(max(BLOCK, len(self._text) - self._at))
        if not block:
            return False
        self._text = self._text[self._at :] + block
        self._at = 0
        return True

    def _error(self, expected: str) -> json.JSONDecodeError:
        return json.JSONDecodeError(f"expected {expected}", self._text, self._at)
