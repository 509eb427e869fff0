"""The console's own themes: dark, light, high contrast, and one that needs no red or green."""

from __future__ import annotations

from textual.theme import Theme

DEFAULT = "spbench-dark"

THEMES = (
    Theme(
        name=DEFAULT,
        primary="#5aa9e6",
        secondary="#7f8fa9",
        accent="#f2b84b",
        success="#5fbf77",
        warning="#e8a33d",
        error="#ef6461",
        foreground="#d8dee9",
        background="#12161c",
        surface="#181d25",
        panel="#222935",
        dark=True,
    ),
    Theme(
        name="spbench-light",
        primary="#1f5fa8",
        secondary="#5b6675",
        accent="#8a5a00",
        success="#1d7a3c",
        warning="#9a5b00",
        error="#b3261e",
        foreground="#1c2430",
        background="#fbfbf9",
        surface="#f1f2ee",
        panel="#e1e4e2",
        dark=False,
    ),
    Theme(
        name="spbench-contrast",
        primary="#00e5ff",
        secondary="#ffffff",
        accent="#ffff00",
        success="#00ff66",
        warning="#ffcc00",
        error="#ff6b6b",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#1c1c1c",
        dark=True,
        text_alpha=1.0,
    ),
    # Blue and orange are told apart in every common kind of colour blindness
    # (Okabe and Ito 2008, the colours are from their set).
    Theme(
        name="spbench-colour-blind",
        primary="#56b4e9",
        secondary="#999999",
        accent="#f0e442",
        success="#56b4e9",
        warning="#f0e442",
        error="#e69f00",
        foreground="#e6e6e6",
        background="#14161a",
        surface="#1b1e24",
        panel="#272b33",
        dark=True,
    ),
)
"""Each can be chosen in the palette; the choice is remembered."""
