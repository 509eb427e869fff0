"""The line that a terminal shows until the TUI opens.

The imports of the TUI take half a second, on a busy machine several seconds. This module imports
nothing slow, so that the line is printed before all of them.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

# Like typing.TYPE_CHECKING. Importing typing would delay the line.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

OPENING_LINE = "spbench: opening ..."
"""Shorter than each error message, which therefore replaces it completely."""
COMMANDS = (["tui"], ["replay"])
"""The commands that open the TUI, each as the first arguments of its command line."""
_OPTIONS_WITHOUT_TUI = frozenset({"-h", "--help", "--headless"})


def is_in_browser() -> bool:
    """Whether this is a TUI that `spbench serve` started."""
    return "TEXTUAL_DRIVER" in os.environ


def is_in_terminal() -> bool:
    """Whether the TUI can be shown: in a terminal or a browser."""
    if is_in_browser():
        return True
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class OpeningLine:
    """The opening line, while it is shown.

    The cursor stays at the start of the line, so that an error message replaces it.
    """

    def __init__(self) -> None:
        self._is_shown = False

    def show(self, arguments: Sequence[str]) -> None:
        """Print the line if these arguments open the TUI in a terminal."""
        opens_tui = arguments[:1] in COMMANDS and _OPTIONS_WITHOUT_TUI.isdisjoint(arguments)
        if opens_tui and not is_in_browser() and is_in_terminal():
            self._is_shown = True
            self._write(f"{OPENING_LINE}\r")

    def erase(self) -> None:
        """Erase the line if it is shown; an error message that has replaced it stays."""
        if self._is_shown:
            self._is_shown = False
            self._write(f"\r{' ' * len(OPENING_LINE)}\r")

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal may be gone
            sys.stdout.write(text)
            sys.stdout.flush()
