"""Our themes on terminals of 256 colours: what must be told apart still is."""

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from textual.color import Color

from spbench.tui.settings import THEMES

BORDER = 1.4
TEXT = 3.0
"""The least contrast of a pane's border, and of text, with what they stand on (WCAG 2.1)."""


def in_256(colour):
    return Color(*RichColor.from_rgb(*colour.rgb).downgrade(ColorSystem.EIGHT_BIT).get_truecolor())


def luminance(colour):
    parts = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
        for part in colour.normalized
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def contrast(one, other):
    least, most = sorted(luminance(in_256(colour)) for colour in (one, other))
    return (most + 0.05) / (least + 0.05)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
@pytest.mark.parametrize("ground", ["background", "surface", "panel"])
def test_borders_and_hints_are_seen(theme, ground):
    variables = theme.to_color_system().generate()
    on = Color.parse(variables[ground])
    text = Color.parse(variables["foreground"])
    assert contrast(on.blend(text, 0.3), on) >= BORDER
    assert contrast(on.blend(on.get_contrast_text(1.0), 0.6), on) >= TEXT
    assert contrast(Color.parse(variables["primary"]), on) >= TEXT


def test_the_border_of_before_was_not_seen():
    variables = THEMES[0].to_color_system().generate()
    assert contrast(Color.parse(variables["panel"]), Color.parse(variables["surface"])) < BORDER
