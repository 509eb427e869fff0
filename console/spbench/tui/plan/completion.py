"""Completes what is typed: names that are known, and paths."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from textual.suggester import Suggester

from spbench.planner.nearby_files import complete_path


class NameOrPath(Suggester):
    """Suggests the first known name that begins so, else a path.

    Args:
        folder: Where relative paths begin.

    Attributes:
        known: The names.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._folder = folder
        self.known: Sequence[str] = ()

    async def get_suggestion(self, value: str) -> str | None:
        """Return the completed text; None where no name and no path begins so."""
        for name in self.known:
            if name.startswith(value):
                return name
        return await asyncio.to_thread(complete_path, self._folder, value)
