"""The rows that a table shows, and their order."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

from spbench.tui.widgets.table_columns import Rows

SORT_INTERVAL = 0.5
"""Seconds between two sorts of rows that change, at least."""


class RowOrder:
    """The keys that match the filter, sorted; rows that go or come are followed at once."""

    def __init__(self, rows: Rows, sort: str | None, reverse: bool) -> None:
        self.rows = rows
        self.sort = sort
        self.reverse = reverse
        self.filter_words: list[str] = []
        self.keys: list[Hashable] = []
        self.total = 0
        self._natural: list[Hashable] = []
        self._places: dict[Hashable, int] = {}
        self._sorted_at = -math.inf

    def update(self, now: float, at_once: bool = False) -> bool:
        """Read the keys again, and sort where it is time to; tell whether a row has moved.

        Args:
            now: Seconds on a clock that never goes back.
            at_once: Sort even if it is not time yet.
        """
        natural = list(self.rows.keys())
        if at_once or now - self._sorted_at >= SORT_INTERVAL:
            keys = self._sorted(self._matching(natural))
            self._sorted_at = now
        elif natural != self._natural:
            keys = self._merged(natural)
        else:
            return False
        self._natural = natural
        self.total = len(natural)
        if keys == self.keys:
            return False
        self.keys = keys
        self._places = {key: place for place, key in enumerate(keys)}
        return True

    def find_index(self, key: Hashable) -> int | None:
        """Return the row's place in the order; None where it is not shown."""
        return self._places.get(key)

    def _matching(self, keys: Sequence[Hashable]) -> list[Hashable]:
        if not self.filter_words:
            return list(keys)
        return [key for key in keys if self._matches(self.rows.text(key))]

    def _matches(self, text: str) -> bool:
        return all(word in text for word in self.filter_words)

    def _sorted(self, keys: list[Hashable]) -> list[Hashable]:
        if self.sort is None:
            return keys[::-1] if self.reverse else keys
        values = {key: self.rows.sort_value(key, self.sort) for key in keys}
        known = [key for key in keys if values[key] is not None]
        unknown = [key for key in keys if values[key] is None]

        def value(key: Hashable) -> Any:
            return values[key]

        known.sort(key=value, reverse=self.reverse)
        return known + unknown

    def _merged(self, natural: list[Hashable]) -> list[Hashable]:
        """Keep the order of the rows that stay; new ones stand last until the next sort."""
        new = [key for key in natural if key not in self._places]
        alive = set(natural)
        return [key for key in self.keys if key in alive] + self._matching(new)
