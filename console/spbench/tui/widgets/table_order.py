"""Filter and order of the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from spbench.tui.widgets.table_columns import Rows

SORT_INTERVAL = 0.5
"""Smallest time between two sorts of changing rows, in seconds."""
LONG_SORT_INTERVAL = 1.0
"""The same for more than `MANY_ROWS` rows, since sorting thousands of rows delays keys."""
MANY_ROWS = 1000


class RowOrder:
    """The keys that match the filter, sorted.

    Added and removed rows appear at once, while sorting waits for `SORT_INTERVAL`, or for
    `LONG_SORT_INTERVAL` if there are many rows.
    """

    def __init__(self, rows: Rows, sort: str | None, reverse: bool) -> None:
        self.rows = rows
        self.sort_column = sort
        self.reverse = reverse
        self.filter_words: list[str] = []
        self.keys: list[Hashable] = []
        self.row_count = 0
        self._natural: list[Hashable] = []
        self._indices: dict[Hashable, int] = {}
        self._sorted_at = -math.inf

    def update(self, now: float, force: bool = False) -> bool:
        """Read the keys again and sort if due; return whether the order has changed.

        Args:
            now: Seconds of a monotonic clock.
            force: Sort even if `SORT_INTERVAL` has not passed.
        """
        natural = list(self.rows.keys())
        interval = LONG_SORT_INTERVAL if len(natural) > MANY_ROWS else SORT_INTERVAL
        if force or now - self._sorted_at >= interval:
            keys = self._sort(self._filter(natural))
            self._sorted_at = now
        elif natural != self._natural:
            keys = self._merge(natural)
        else:
            return False
        self._natural = natural
        self.row_count = len(natural)
        if keys == self.keys:
            return False
        self.keys = keys
        self._indices = {key: index for index, key in enumerate(keys)}
        return True

    def find_index(self, key: Hashable) -> int | None:
        """Return the index of a row in the order; None if it is not shown."""
        return self._indices.get(key)

    def _filter(self, keys: Sequence[Hashable]) -> list[Hashable]:
        if not self.filter_words:
            return list(keys)
        return [key for key in keys if self._matches(self.rows.search_text(key))]

    def _matches(self, text: str) -> bool:
        return all(word in text for word in self.filter_words)

    def _sort(self, keys: list[Hashable]) -> list[Hashable]:
        if self.sort_column is None:
            return keys[::-1] if self.reverse else keys
        sort_value = self.rows.sort_value
        column = self.sort_column
        value_by_key = {key: sort_value(key, column) for key in keys}
        sortable = [key for key in keys if value_by_key[key] is not None]
        unsortable = [key for key in keys if value_by_key[key] is None]
        sortable.sort(key=value_by_key.__getitem__, reverse=self.reverse)
        return sortable + unsortable

    def _merge(self, natural: list[Hashable]) -> list[Hashable]:
        """Return the remaining rows in their old order, then new rows until the next sort."""
        new_keys = [key for key in natural if key not in self._indices]
        remaining_keys = set(natural)
        return [key for key in self.keys if key in remaining_keys] + self._filter(new_keys)
