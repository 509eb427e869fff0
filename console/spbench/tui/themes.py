"""The console's own themes: dark, light, high contrast, and one that needs no red or green."""

from __future__ import annotations

from typing import Any

from textual.theme import Theme

DEFAULT_THEME = "spbench-dark"

_PARTS = ("primary", "secondary", "accent", "success", "warning", "error")
_GROUNDS = ("foreground", "background", "surface", "panel")


def _theme(name: str, parts: str, grounds: str, *, dark: bool = True, **more: Any) -> Theme:
    """Return a theme of colours with spaces between them, in the order of the names above."""
    colours: dict[str, Any] = dict(zip(_PARTS, parts.split(), strict=True))
    colours |= zip(_GROUNDS, grounds.split(), strict=True)
    return Theme(name=name, dark=dark, **colours, **more)


THEMES = (
    _theme(
        DEFAULT_THEME,
        "#5aa9e6 #7f8fa9 #f2b84b #5fbf77 #e8a33d #ef6461",
        "#d8dee9 #12161c #181d25 #222935",
    ),
    _theme(
        "spbench-light",
        "#1f5fa8 #5b6675 #8a5a00 #1d7a3c #9a5b00 #b3261e",
        "#1c2430 #fbfbf9 #f1f2ee #e1e4e2",
        dark=False,
    ),
    _theme(
        "spbench-contrast",
        "#00e5ff #ffffff #ffff00 #00ff66 #ffcc00 #ff6b6b",
        "#ffffff #000000 #000000 #1c1c1c",
        text_alpha=1.0,
    ),
    # Blue and orange are told apart in every common kind of colour blindness
    # (Okabe and Ito 2008, the colours are from their set).
    _theme(
        "spbench-colour-blind",
        "#56b4e9 #999999 #f0e442 #56b4e9 #f0e442 #e69f00",
        "#e6e6e6 #14161a #1b1e24 #272b33",
    ),
)
"""Each can be chosen in the palette; the choice is remembered."""
