"""Reads a report's file case by case, so that it never is in memory as a whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from spbench.record.runs.files import MOST_REPORT, has_commands, read_file, without_commands

CASES = "cases"
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
    content = read_file(path, MOST_REPORT)
    suspect = has_commands(content)
    text = content.decode()
    del content
    try:
        return _ReportReader(text, convert_case, suspect=suspect).read()
    except RecursionError:
        raise ValueError(f"{path} is nested too deep") from None


class _ReportReader(Generic[Case]):
    """Reads one JSON object, whose cases are converted as soon as they are read."""

    def __init__(self, text: str, convert_case: Callable[[Any], Case], *, suspect: bool) -> None:
        self._text = text
        self._convert = convert_case
        self._suspect = suspect
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
        if self._skip_space() != len(self._text):
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
        value, self._at = _DECODER.raw_decode(self._text, self._skip_space())
        return without_commands(value) if self._suspect else value

    def _accept(self, letter: str) -> bool:
        if not self._text.startswith(letter, self._skip_space()):
            return False
        self._at += 1
        return True

    def _expect(self, letter: str) -> None:
        if not self._accept(letter):
            raise self._error(repr(letter))

    def _skip_space(self) -> int:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._at

    def _error(self, expected: str) -> json.JSONDecodeError:
        return json.JSONDecodeError(f"expected {expected}", self._text, self._at)
