"""What the tables show before there is a run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from spbench.tui.widgets.table_columns import Cell


class NoRows:
    """No rows at all: nothing is ever asked about one."""

    def keys(self) -> Sequence[Hashable]:
        """Return none."""
        return ()

    def version(self, key: Hashable) -> Hashable:
        raise KeyError(key)

    def cells(self, key: Hashable) -> Sequence[Cell | str]:
        raise KeyError(key)

    def sort_value(self, key: Hashable, column: str) -> Any:
        raise KeyError(key)

    def text(self, key: Hashable) -> str:
        raise KeyError(key)
