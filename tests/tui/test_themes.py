"""Contrast of spbench's themes on terminals with 256 colours."""

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from textual.color import Color

from spbench.tui.themes import THEMES

MIN_BORDER_CONTRAST = 1.4
MIN_TEXT_CONTRAST = 3.0
"""Minimum contrasts of a pane's border and of text with the background (WCAG 2.1)."""


def round_to_256_colours(colour):
    return Color(*RichColor.from_rgb(*colour.rgb).downgrade(ColorSystem.EIGHT_BIT).get_truecolor())


def compute_luminance(colour):
    parts = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
        for part in colour.normalized
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def compute_contrast(first, second):
    darker, lighter = sorted(
        compute_luminance(round_to_256_colours(colour)) for colour in (first, second)
    )
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
@pytest.mark.parametrize("ground", ["background", "surface", "panel"])
def test_borders_and_hints_are_visible(theme, ground):
    variables = theme.to_color_system().generate()
    background = Color.parse(variables[ground])
    text = Color.parse(variables["foreground"])
    assert compute_contrast(background.blend(text, 0.3), background) >= MIN_BORDER_CONTRAST
    assert (
        compute_contrast(background.blend(background.get_contrast_text(1.0), 0.6), background)
        >= MIN_TEXT_CONTRAST
    )
    assert compute_contrast(Color.parse(variables["primary"]), background) >= MIN_TEXT_CONTRAST


def test_panel_colour_is_too_faint_for_borders():
    variables = THEMES[0].to_color_system().generate()
    assert (
        compute_contrast(Color.parse(variables["panel"]), Color.parse(variables["surface"]))
        < MIN_BORDER_CONTRAST
    )
