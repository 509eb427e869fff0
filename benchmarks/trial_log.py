"""Outcomes of trials in a file of JSON lines, so that a command can be resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class TrialLog:
    """The lines of a file, including those of earlier commands.

    A torn last line is removed.
    """

    def __init__(self, path: Path, *, restart: bool = False) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if restart:
            path.unlink(missing_ok=True)
        text = path.read_text() if path.exists() else ""
        complete = text[: text.rfind("\n") + 1]
        if complete != text:
            path.write_text(complete)
        self.lines: list[Line] = [json.loads(line) for line in complete.splitlines()]

    def select(self, **fields: Any) -> list[Line]:
        """Return the lines with these fields."""
        return [line for line in self.lines if fields.items() <= line.items()]

    def add(self, line: Line) -> None:
        """Append a line to the file and to `lines`."""
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self.lines.append(line)
