"""The stylesheet of the TUI, which parses each source once for a theme."""

from __future__ import annotations

from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet

MAX_SOURCES = 1_000
"""More than the widgets and pages with rules."""


class CachingStylesheet(Stylesheet):
    """A stylesheet that parses its sources again only if a variable has changed.

    Textual parses all sources again whenever a page is shown for the first time, although the theme
    is the same, and keeps 64 parsed sources, fewer than the TUI has. With both, a dialog would take
    20 ms longer to open.
    """

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__(variables=variables)
        self._parse_cache = LRUCache(MAX_SOURCES)

    def set_variables(self, variables: dict[str, str]) -> None:
        """Set the variables of the theme; parsed sources stay valid if they are the same."""
        if variables != self._variables:
            super().set_variables(variables)

    def reparse(self) -> None:
        """Parse the sources that are not in the cache."""
        self.parse()
