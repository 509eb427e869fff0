"""The themes of spbench: colours of grounds, texts, statuses and charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from textual.theme import Theme

DEFAULT_THEME = "spbench-dark"


@dataclass(frozen=True, slots=True)
class _Palette:
    """Colours of a theme, as hexadecimal triples.

    Attributes:
        grounds: Page, dialog, and bars with fields.
        text: Text, and muted text.
        tones: Focus, neutral, key, passed, slow and failed: for borders and buttons.
        text_tones: The same six for text and charts.
        scrollbar: Scrollbars at rest.
    """

    grounds: str
    text: str
    tones: str
    text_tones: str
    scrollbar: str


_TONES = ("primary", "secondary", "accent", "success", "warning", "error")


def _make_theme(name: str, palette: _Palette, *, dark: bool = True) -> Theme:
    background, surface, panel = palette.grounds.split()
    text, muted_text = palette.text.split()
    tones: dict[str, Any] = dict(zip(_TONES, palette.tones.split(), strict=True))
    text_tones = zip(_TONES, palette.text_tones.split(), strict=True)
    focus = tones["primary"]
    variables = {f"text-{tone}": colour for tone, colour in text_tones}
    variables |= {
        "text": text,
        "text-muted": muted_text,
        "foreground-muted": muted_text,
        # Placeholders are defaults that the user must be able to read.
        "text-disabled": muted_text,
        "scrollbar": palette.scrollbar,
        "scrollbar-hover": muted_text,
        "scrollbar-active": focus,
        "scrollbar-background": background,
        "block-cursor-foreground": text,
        "block-cursor-background": f"{focus} 30%",
        "block-cursor-blurred-background": f"{focus} 18%",
        "input-selection-background": focus,
        "input-selection-foreground": background,
        "button-foreground": text,
        # Of buttons with a tone: the text is cut out of it.
        "button-color-foreground": background,
        "footer-key-foreground": variables["text-accent"],
    }
    return Theme(
        name=name,
        dark=dark,
        background=background,
        surface=surface,
        panel=panel,
        foreground=text,
        boost=panel,
        variables=variables,
        text_alpha=1.0,
        **tones,
    )


THEMES = (
    _make_theme(
        DEFAULT_THEME,
        _Palette(
            grounds="#11151b #171c24 #1f2631",
            text="#dce2ec #a1abbb",
            tones="#5aa9e6 #8b9bb4 #e6b450 #5fbf77 #e8a33d #ef6461",
            text_tones="#7cbcf0 #a9b6ca #e8bd68 #7fd396 #f0b35a #ff8f8a",
            scrollbar="#3b4557",
        ),
    ),
    _make_theme(
        "spbench-light",
        _Palette(
            grounds="#fcfcfa #f4f5f2 #e6e9e8",
            text="#1c2430 #48525f",
            tones="#1f5fa8 #5b6675 #7d5200 #1d7a3c #9a5b00 #b3261e",
            text_tones="#1a5190 #46566b #6d4700 #155f2d #7a4700 #a31d17",
            scrollbar="#c9cfd6",
        ),
        dark=False,
    ),
    _make_theme(
        "spbench-contrast",
        _Palette(
            grounds="#000000 #000000 #1c1c1c",
            text="#ffffff #d4d4d4",
            tones="#00bcd8 #ffffff #ffff00 #00ff66 #ffcc00 #ff8a8a",
            text_tones="#5cf0ff #ffffff #ffff66 #5cff99 #ffd633 #ffadad",
            scrollbar="#9a9a9a",
        ),
    ),
    # Blue and orange differ in every common kind of colour blindness. The colours are from the set
    # of Okabe and Ito (2008).
    _make_theme(
        "spbench-colour-blind",
        _Palette(
            grounds="#121418 #191c22 #23272f",
            text="#e6e6e6 #adb1b8",
            tones="#56b4e9 #999999 #f0e442 #56b4e9 #f0e442 #e69f00",
            text_tones="#7cc6f0 #b8b8b8 #f3ea6c #7cc6f0 #f3ea6c #eca31c",
            scrollbar="#464c57",
        ),
    ),
)
"""The themes of spbench, in addition to those of Textual."""
