"""A reader of reports that never has a whole report in memory."""

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
    replace_controls_in_json,
)

CASES = "cases"
BLOCK_CHARACTERS = 1 << 20
"""The number of characters that are read at once."""
MAX_CASE_CHARACTERS = 256 << 20
"""The longest case. A case on 64 ranks has 33,000. A longer one counts as damage."""
_AHEAD = 3
"""Characters after a number that show its end: in ``1.5e-7``, two after ``1.5`` do not."""
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()

Case = TypeVar("Case")


def read_report_file(
    path: Path,
    convert_case: Callable[[Any], Case],
    *,
    block_characters: int = BLOCK_CHARACTERS,
    max_case_characters: int = MAX_CASE_CHARACTERS,
) -> tuple[dict[str, Any], list[Case]]:
    """Return a report without its cases, and its cases converted one by one.

    Texts are without control characters. If the value of ``cases`` is not an array, the report
    keeps it.

    Args:
        path: The file.
        convert_case: Called with each item of ``cases``.
        block_characters: The number of characters that are read at once.
        max_case_characters: The longest case; a longer one counts as damage.

    Raises:
        TooLargeError: It is larger than a report may be.
        OSError: The file cannot be read, or is a folder, a pipe, a socket or a device.
        ValueError: It is not a JSON object, or ``convert_case`` raised this.
    """
    with open(open_file(path), encoding="utf-8", newline="") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_REPORT_BYTES:
            raise TooLargeError(path, size, MAX_REPORT_BYTES)
        try:
            return _ReportReader(file, convert_case, block_characters, max_case_characters).read()
        except RecursionError:
            raise ValueError(f"{path} is nested too deep") from None


class _ReportReader(Generic[Case]):
    """A reader of one JSON object that converts its cases as soon as they are read.

    Only a part of the text is in memory: the current value, and the rest of its block.
    """

    def __init__(
        self,
        file: TextIO,
        convert_case: Callable[[Any], Case],
        block_characters: int,
        max_case_characters: int,
    ) -> None:
        self._file = file
        self._convert = convert_case
        self._block_characters = block_characters
        self._max_case_characters = max_case_characters
        self._text = ""
        self._position = 0

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
                value, end = _DECODER.raw_decode(self._text, self._position)
            except json.JSONDecodeError:
                # The value may end in the next block, or never if the text is damaged.
                characters = len(self._text) - self._position
                if characters <= self._max_case_characters and self._read_block():
                    continue
                raise
            # A number at the end of a block may continue in the next one.
            if len(self._text) - end < _AHEAD and self._read_block():
                continue
            is_suspect = may_have_controls(self._text[self._position : end].encode())
            self._position = end
            return replace_controls_in_json(value) if is_suspect else value

    def _accept(self, character: str) -> bool:
        if not self._skip_space() or self._text[self._position] != character:
            return False
        self._position += 1
        return True

    def _expect(self, character: str) -> None:
        if not self._accept(character):
            raise self._error(repr(character))

    def _skip_space(self) -> bool:
        """Skip white space; return whether there is a further character."""
        while True:
            space = _SPACE.match(self._text, self._position)
            self._position = space.end() if space else self._position
            if self._position < len(self._text):
                return True
            if not self._read_block():
                return False

    def _read_block(self) -> bool:
        """Read more text; return whether there was any.

        At least as much is read as there is of a value.
        """
        block = self._file.read(max(self._block_characters, len(self._text) - self._position))
        if not block:
            return False
        self._text = self._text[self._position :] + block
        self._position = 0
        return True

    def _error(self, expected: str) -> json.JSONDecodeError:
        return json.JSONDecodeError(f"expected {expected}", self._text, self._position)
