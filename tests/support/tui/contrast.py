"""Contrast of the screen (WCAG 2.2), and colours as the colour-blind see them."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from rich.color import Color as RichColor
from textual.color import Color

from spbench.tui.widgets.glyphs import BLOCKS

MIN_TEXT_CONTRAST = 4.5
"""Level AA of criterion 1.4.3."""
MIN_GRAPHIC_CONTRAST = 3.0
"""Level AA of criterion 1.4.11, for charts and the border of the focused pane."""
MIN_FRAME_CONTRAST = 1.4
"""Borders of panes without focus are decoration, but they must be visible."""
LUMINANCE_WEIGHTS = (0.2126, 0.7152, 0.0722)
# Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision
# deficiency" (2009), severity 1.0, on linear RGB.
COLOUR_BLINDNESS = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


@dataclass(frozen=True, slots=True)
class Faint:
    """A piece of the screen with too little contrast."""

    text: str
    colour: str
    ground: str
    contrast: float
    minimum: float


def linearise(colour):
    """Return red, green and blue in proportion to the light, 0 to 1."""
    return [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in colour.normalized
    ]


def compute_luminance(colour):
    return sum(
        weight * part for weight, part in zip(LUMINANCE_WEIGHTS, linearise(colour), strict=True)
    )


def compute_contrast(first, second):
    """Return the contrast of two opaque colours, 1 to 21."""
    darker, lighter = sorted(compute_luminance(colour) for colour in (first, second))
    return (lighter + 0.05) / (darker + 0.05)


def round_to_256_colours(colour):
    """Return the nearest colour of a terminal with 256 colours."""
    from rich.color import ColorSystem

    return Color(*RichColor.from_rgb(*colour.rgb).downgrade(ColorSystem.EIGHT_BIT).get_truecolor())


def compute_distance(first, second, kind):
    """Return the distance of two colours in CIELAB for a kind of colour blindness."""
    labs = [_convert_to_lab(_see(colour, kind)) for colour in (first, second)]
    return sum((a - b) ** 2 for a, b in zip(*labs, strict=True)) ** 0.5


def _see(colour, kind):
    parts = linearise(colour)
    rows = COLOUR_BLINDNESS[kind]
    sums = (sum(factor * part for factor, part in zip(row, parts, strict=True)) for row in rows)
    return [min(1.0, max(0.0, value)) for value in sums]


def _convert_to_lab(parts):
    red, green, blue = parts
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (
        value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z)
    )
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def find_faint_pieces(app, minimum=MIN_TEXT_CONTRAST):
    """Return the pieces of the shown screen with too little contrast.

    The page behind a dialog is left out: it is dimmed to show that it takes no keys. So are scroll
    bars, since the rows show how far a list is scrolled.
    """
    screen = app.screen
    region = screen.children[0].region if screen.is_modal else screen.region
    frame = _blend_frame(app, screen)
    faint = {}
    for strip in screen._compositor.render_strips()[region.y : region.bottom]:
        for segment in strip.crop(region.x, region.right):
            piece = _check_segment(segment, frame, minimum)
            if piece is not None:
                faint[piece] = None
    return list(faint)


def _blend_frame(app, screen):
    """Return the colour of the border of a pane without focus."""
    foreground = Color.parse(app.theme_variables["foreground"])
    return screen.styles.background.blend(foreground, 0.3)


def _check_segment(segment, frame, minimum):
    text = segment.text.strip()
    style = segment.style
    if not text or style is None or any(name.startswith("@mouse") for name in style.meta):
        return None
    colour = Color(*style.color.get_truecolor())
    ground = Color(*style.bgcolor.get_truecolor())
    if style.reverse:
        colour = Color(*style.bgcolor.get_truecolor())
        ground = Color(*style.color.get_truecolor())
    if all(_is_frame(letter) for letter in text) and _is_near(colour, frame):
        needed = MIN_FRAME_CONTRAST
    elif all(_is_graphic(letter) for letter in text):
        needed = MIN_GRAPHIC_CONTRAST
    else:
        needed = minimum
    contrast = compute_contrast(colour, ground)
    if contrast >= needed:
        return None
    return Faint(text, colour.hex, ground.hex, round(contrast, 2), needed)


def _is_near(colour, frame):
    """Return whether a colour is that of a frame, or its grey with NO_COLOR."""
    return any(
        all(abs(part - other) <= 3 for part, other in zip(colour.rgb, shade.rgb, strict=True))
        for shade in (frame, frame.monochrome)
    )


def _is_frame(letter):
    return "\u2500" <= letter <= "\u257f" or letter.isspace()


def _is_graphic(letter):
    return (
        "\u2500" <= letter <= "\u259f"
        or "\u2800" <= letter <= "\u28ff"
        or letter in BLOCKS
        or letter.isspace()
        or unicodedata.category(letter) == "So"
    )
