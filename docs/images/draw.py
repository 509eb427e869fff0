"""Draws the pictures of README and docs from the run of ``spbench tui --demo``.

    python docs/images/draw.py

It writes run.svg (the printed lines of the run), console.svg (the Run page of the console) and
report.png (the HTML report; needs Chromium).
"""

from __future__ import annotations

import asyncio
import io
import re
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console

from spbench.cli.runs.lines import LineView
from spbench.cli.runs.live import colour_status
from spbench.record.runs.follow import RecordedEvents
from spbench.record.runs.playback import find_demo_run
from spbench.record.state import RunState
from spbench.report.formats.page.document import render_page
from spbench.report.recorded import load_run
from spbench.tui.app import ConsoleApp
from spbench.tui.context import ConsoleOptions
from spbench.tui.run.page import RunPage
from spbench.tui.run.presenter import SETTLE_SECONDS

HERE = Path(__file__).parent
LINES_WIDTH = 104
CONSOLE_SIZE = (132, 40)
PAGE_SIZE = "1180,1240"
REPLAY_TIMEOUT_S = 60.0
SLOW_CASE = "stencil"
"""The case with a slow rank."""


def main() -> None:
    """Draw all pictures."""
    draw_lines()
    asyncio.run(draw_console())
    draw_report()


def draw_lines() -> None:
    """Save the lines that ``spbench run`` printed of the demo's run."""
    state = RunState()
    console = Console(record=True, width=LINES_WIDTH, file=io.StringIO(), force_terminal=True)
    lines = LineView(state, lambda line: console.print(colour_status(line)), 0, LINES_WIDTH)
    for event in RecordedEvents(find_demo_run().events):
        state.apply(event)
        lines(event)
    lines.finish("report: .spbench/runs/demo/report.json")
    title = "spbench run demo.yaml --hostfile demo.hosts"
    save_svg("run.svg", console.export_svg(title=title))


async def draw_console() -> None:
    """Save the Run page of the console at the end of the demo's run."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        home = Path(folder)
        environ = {"PWD": folder, "SPBENCH_CONFIG": str(home / "console.yaml")}
        options = ConsoleOptions(
            home=home, environ=environ, folder=home, recorded=find_demo_run(), speed=None
        )
        app = ConsoleApp(options)
        async with app.run_test(size=CONSOLE_SIZE) as pilot:
            async with asyncio.timeout(REPLAY_TIMEOUT_S):
                while "played" not in read_screen(app):
                    await pilot.pause(0.1)
                assert isinstance(app.screen, RunPage)
                show_case(app.screen, SLOW_CASE)
                # The presenter updates its parts in turn, the last ones at the end of this time.
                await pilot.pause(SETTLE_SECONDS + 0.8)
            save_svg("console.svg", app.export_screenshot(title="spbench tui --demo"))


def show_case(page: RunPage, case_id: str) -> None:
    """Choose a case on the Run page, like a click on its row."""
    page._selection.choose(case_id)
    page.presenter.cursors.move(page.presenter.cases, case_id)
    page._show_case()
    page.presenter.update_all()


def read_screen(app: ConsoleApp) -> str:
    """Return the text that the console shows."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def save_svg(name: str, svg: str) -> None:
    """Save a picture without links to fonts on other hosts."""
    text = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (HERE / name).write_text(text, encoding="utf-8")


def draw_report() -> None:
    """Save the upper part of the report of the demo's run, as Chromium shows it."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        page = Path(folder) / "page.html"
        page.write_text(render_page(load_run(find_demo_run())), encoding="utf-8")
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        picture = [f"--window-size={PAGE_SIZE}", f"--screenshot={HERE / 'report.png'}"]
        subprocess.run(["chromium", *options, *picture, page.as_uri()], check=True, timeout=60)


if __name__ == "__main__":
    main()
