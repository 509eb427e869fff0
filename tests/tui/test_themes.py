"""The themes of spbench: contrast on the screen, and statuses without colours."""

from __future__ import annotations

import asyncio
from itertools import combinations

import pytest
from textual.color import Color
from textual.theme import Theme

from spbench.record.number_formatting import NOISY, STATUS_SYMBOLS, format_status
from spbench.tui.cells import make_status_cell, make_status_span
from spbench.tui.themes import THEMES
from spbench.tui.widgets.glyphs import choose_slowness_mark
from spbench_core.events.statuses import CaseStatus, RunStatus
from support.tui.contrast import (
    COLOUR_BLINDNESS,
    MIN_FRAME_CONTRAST,
    MIN_GRAPHIC_CONTRAST,
    MIN_TEXT_CONTRAST,
    compute_contrast,
    compute_distance,
    find_faint_pieces,
    round_to_256_colours,
)
from support.tui.recorded_pages import READY, make_page_console, wait_for_page

SIZE = (120, 40)
MIN_CONTRAST = {theme.name: MIN_TEXT_CONTRAST for theme in THEMES} | {"spbench-contrast": 7.0}
"""Level AA of WCAG 2.2; the theme for low vision has level AAA."""
MIN_DISTANCE = 20.0
"""Distance of two status colours in CIELAB; about ten times the smallest visible one."""
GROUNDS = ("background", "surface", "panel")
PAGE_KEYS = {
    "suites": ("f2", "tab", "tab", "f4", "escape", "L", "escape", "question_mark", "escape"),
    "run": ("tab", "tab", "enter", "escape", "v", "v", "v", "v", "v", "v", "slash", "escape"),
    "results": ("enter", "tab", "v", "v", "slash", "escape", "e", "escape", "d", "n"),
    "hosts": ("tab", "tab", "tab", "slash"),
    "plan": ("tab", "tab", "tab", "tab", "tab", "ctrl+p"),
}
"""Keys that show the panes, each with the focus, and the dialogs of a page."""


def get_colours(theme, *names):
    variables = theme.to_color_system().generate() | theme.variables
    return [Color.parse(variables[name]) for name in names]


async def list_faint_pieces(app, pilot, themes):
    """Return the faint pieces of the screen in each theme, one a line."""
    lines = []
    for theme in themes:
        app.theme = theme.name
        await pilot.pause()
        await asyncio.sleep(0)
        minimum = MIN_CONTRAST.get(theme.name, MIN_TEXT_CONTRAST)
        lines += [f"{theme.name}: {piece}" for piece in find_faint_pieces(app, minimum)]
    return lines


@pytest.mark.parametrize("page", READY)
async def test_everything_shown_has_enough_contrast(recorded_folder, page):
    app = make_page_console(recorded_folder, page, THEMES[0].name)
    faint = {}
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_page(pilot, page)
        for key in ("", *PAGE_KEYS[page]):
            if key:
                await pilot.press(key)
                await pilot.pause(0.1)
            for line in await list_faint_pieces(app, pilot, THEMES):
                faint.setdefault(line, f"after {key!r} on {type(app.screen).__name__}")
    assert not faint, "\n".join(f"{line} {moment}" for line, moment in faint.items())


async def test_pale_text_is_found(recorded_folder):
    pale = Theme("pale", primary="#5aa9e6", background="#11151b", foreground="#4d5560")
    app = make_page_console(recorded_folder, "hosts", THEMES[0].name)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_page(pilot, "hosts")
        app.register_theme(pale)
        assert any("cluster.hosts" in line for line in await list_faint_pieces(app, pilot, [pale]))


async def test_text_has_enough_contrast_without_colours(recorded_folder, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_page_console(recorded_folder, "run", THEMES[0].name)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_page(pilot, "run")
        assert not await list_faint_pieces(app, pilot, THEMES)


@pytest.mark.parametrize("theme", ["textual-ansi", THEMES[0].name])
async def test_focused_pane_is_visible_without_colours(recorded_folder, monkeypatch, theme):
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_page_console(recorded_folder, "hosts", theme)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_page(pilot, "hosts")
        styles = {
            segment.text.strip(): segment.style
            for strip in app.screen._compositor.render_strips()
            for segment in strip
        }
        focused = styles["Hostfiles"]
        other = styles["Hosts of cluster.hosts"]
        assert (focused.bold, bool(other.bold)) == (True, False)
        assert focused.reverse or focused.bgcolor != other.bgcolor


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
@pytest.mark.parametrize("ground", GROUNDS)
def test_borders_and_hints_are_visible_in_256_colours(theme, ground):
    colours = get_colours(theme, ground, "foreground", "text-muted", "primary")
    background, text, muted, focus = map(round_to_256_colours, colours)
    border = round_to_256_colours(colours[0].blend(colours[1], 0.3))
    assert compute_contrast(border, background) >= MIN_FRAME_CONTRAST
    assert compute_contrast(text, background) >= MIN_TEXT_CONTRAST
    assert compute_contrast(muted, background) >= MIN_TEXT_CONTRAST
    assert compute_contrast(focus, background) >= MIN_GRAPHIC_CONTRAST


def test_panel_colour_is_too_faint_for_borders():
    panel, surface = get_colours(THEMES[0], "panel", "surface")
    assert compute_contrast(panel, surface) < MIN_FRAME_CONTRAST


@pytest.mark.parametrize("kind", COLOUR_BLINDNESS)
def test_statuses_differ_for_the_colour_blind(kind):
    theme = next(theme for theme in THEMES if theme.name == "spbench-colour-blind")
    colours = get_colours(theme, "text-success", "text-warning", "text-error")
    for first, second in combinations(colours, 2):
        assert compute_distance(first, second, kind) >= MIN_DISTANCE


@pytest.mark.parametrize("kind", COLOUR_BLINDNESS)
def test_red_and_green_of_equal_lightness_are_found(kind):
    distance = compute_distance(Color.parse("#7fd396"), Color.parse("#ff8f8a"), kind)
    assert (distance < MIN_DISTANCE) == (kind == "deuteranopia")


def test_statuses_of_different_colours_have_different_signs():
    kinds = {CaseStatus.ERROR: CaseStatus.FAILED, CaseStatus.TIMEOUT: CaseStatus.FAILED}
    kinds |= {CaseStatus.FLAKY: CaseStatus.PASSED, CaseStatus.SKIPPED: CaseStatus.CANCELLED}
    signs = {(STATUS_SYMBOLS[status], kinds.get(status, status)) for status in CaseStatus}
    assert len(signs) == len({sign for sign, _ in signs}) == len(set(CaseStatus)) - len(kinds)
    assert NOISY not in {sign for sign, _ in signs}


@pytest.mark.parametrize("status", [*CaseStatus, RunStatus.UNREADABLE])
def test_each_status_is_a_sign_and_a_word(status):
    assert format_status(status) == f"{STATUS_SYMBOLS[status]} {status}"
    assert make_status_cell(status).text == format_status(status)
    assert make_status_span(status)[0] == format_status(status)


@pytest.mark.parametrize("is_ascii", [False, True])
def test_each_step_of_slowness_has_its_own_glyph(is_ascii):
    marks = [choose_slowness_mark(ratio, 1.5, ascii=is_ascii) for ratio in (1.0, 1.3, 1.6, 3, None)]
    marks.append(choose_slowness_mark(1.0, 1.5, failed=True, ascii=is_ascii))
    glyphs, styles = zip(*marks, strict=True)
    assert len(set(glyphs)) == len(set(styles)) == len(marks)
