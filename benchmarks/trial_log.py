"""Outcomes of trials in a file, a JSON object a line, so that a command can be taken up again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class TrialLog:
    """The lines of a file, those of former commands first; a torn last line is left out."""

    def __init__(self, path: Path, *, again: bool = False) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if again:
            path.unlink(missing_ok=True)
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole)
        self.lines: list[Line] = [json.loads(line) for line in whole.splitlines()]

    def of(self, **fields: Any) -> list[Line]:
        """Return the lines with these fields."""
        return [line for line in self.lines if fields.items() <= line.items()]

    def add(self, line: Line) -> None:
        """Keep a line."""
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self.lines.append(line)
