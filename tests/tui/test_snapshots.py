"""Snapshots of each page, at three sizes and in two themes.

docs/console.md shows them. They leave the tab bar out. The tab bars of all pages are in
snapshots/tab_bar.txt, so that a new page changes one file.

To accept a change, run SPBENCH_SNAPSHOTS=write pytest tests/tui/test_snapshots.py and look at it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from spbench.record.runs.history import read_summary
from spbench.record.runs.playback import find_demo_run
from spbench.tui.dialogs import Confirm
from spbench.tui.pages import PAGES
from spbench.tui.results import runs_pane
from spbench.tui.tab_bar import Tab, TabBar
from support.tui.app_driver import SIZES, make_console, read_screen, wait_until
from support.tui.recorded_pages import (
    READY,
    make_page_console,
    wait_for_page,
)

SNAPSHOTS = Path(__file__).parent / "snapshots"
THEMES = ("spbench-dark", "spbench-light")
THEME_BY_SIZE = {(80, 24): THEMES[0], (120, 40): THEMES[0], (200, 60): THEMES[1]}
"""The sizes, and the theme in which `make test` compares each page; the other one is long."""
SNAPSHOT_PARAMS = [
    (page, size, theme)
    for page in READY
    for size, fast_theme in THEME_BY_SIZE.items()
    for theme in (THEMES if page != "plan" else (fast_theme,))
]
"""The Plan page, built from the parts of other pages, appears once at each size."""


@pytest.fixture(autouse=True)
def day_after_the_demo(monkeypatch):
    """Show the Results page on the day after its runs, which then have dates."""
    started = read_summary(find_demo_run()).started
    monkeypatch.setattr(runs_pane, "time", SimpleNamespace(time=lambda: started + 86400.0))


def name_snapshot(page, size, theme):
    return f"{page}-{size[0]}x{size[1]}-{theme}"


def choose_marks(size, theme):
    """Return the mark of a snapshot."""
    return () if theme == THEME_BY_SIZE[size] else pytest.mark.long


@pytest.mark.parametrize(
    ("page", "size", "theme"),
    [
        pytest.param(*snapshot, id=name_snapshot(*snapshot), marks=choose_marks(*snapshot[1:]))
        for snapshot in SNAPSHOT_PARAMS
    ],
)
async def test_page_matches_its_snapshot(recorded_folder, page, size, theme, artefacts):
    app = make_page_console(recorded_folder, page, theme)
    async with app.run_test(size=size) as pilot:
        await wait_for_page(pilot, page)
        assert not isinstance(app.screen, Confirm)
        app.screen.query_one(TabBar).visible = False
        snapshot = await take_snapshot(pilot)
    compare_with_snapshot(f"{name_snapshot(page, size, theme)}.svg", snapshot, artefacts)


async def test_tab_bar_matches_its_snapshot(recorded_folder, artefacts):
    lines = []
    for size in SIZES:
        for theme in THEMES:
            (recorded_folder / "console.yaml").write_text(f"theme: {theme}\n")
            app = make_console(recorded_folder, page="suites")
            async with app.run_test(size=size) as pilot:
                await wait_until(
                    pilot,
                    lambda app=app: "Palette" in read_screen(app) or "Help" in read_screen(app),
                )
                for digit, entry in enumerate(PAGES, 1):
                    page = entry.name
                    await pilot.press(str(digit))
                    await wait_until(pilot, lambda app=app, page=page: current_page(app) == page)
                    await pilot.pause()
                    lines.append(f"{name_snapshot(page, size, theme)}: {render_first_line(app)}\n")
    compare_with_snapshot("tab_bar.txt", "".join(lines), artefacts)


def current_page(app):
    return app.screen.query_one("TabBar Tab.current", Tab).page


def render_first_line(app):
    """Return the first line of the screen, with the style of each part before it."""
    line = app.screen._compositor.render_strips()[0]
    return "".join(f"[{segment.style}]{segment.text}" for segment in line)


def compare_with_snapshot(name, text, artefacts):
    """Fail if a snapshot differs, and keep the new one.

    The snapshot is written if the environment asks for it.
    """
    if os.environ.get("SPBENCH_SNAPSHOTS") == "write":
        (SNAPSHOTS / name).write_text(text)
    if not (SNAPSHOTS / name).exists() or (SNAPSHOTS / name).read_text() != text:
        (artefacts / name).write_text(text)
        pytest.fail(f"{artefacts / name} differs from {SNAPSHOTS / name}; look at both")


async def take_snapshot(pilot):
    """Return the screen as SVG once it no longer changes, without remote fonts."""
    before = ""
    for _ in range(40):
        await pilot.pause(0.25)
        picture = pilot.app.export_screenshot(title="spbench")
        if picture == before:
            break
        before = picture
    return re.sub(r"@font-face \{.*?\}\s*", "", before, flags=re.DOTALL)
