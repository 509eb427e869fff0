"""Draws run.svg, the live view of a recorded run, and report.png, the page of the demo's run.

spbench run suites/halo.yaml && python docs/images/draw.py
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

from rich.console import Console

from spbench.cli.lines import Lines
from spbench.cli.live import LiveView, styled
from spbench.record.runs.folder import RunFolder, find_run, home_of
from spbench.record.runs.follow import RecordedEvents
from spbench.record.state import RunState
from spbench.report.formats.page.document import html_page
from spbench.report.recorded import load_run

HERE = Path(__file__).parent
WIDTH = 144


PAGE_SIZE = "1180,1240"


def main() -> None:
    """Draw both."""
    draw_run()
    draw_page()


def draw_run() -> None:
    """Replay the newest run, and save its lines with the last frame below them."""
    folder = find_run(home_of(None, os.environ), "last")
    state = RunState()
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    lines = Lines(state, lambda line: console.print(styled(line)), 0, WIDTH)
    view = LiveView(state, Console(file=io.StringIO(), width=WIDTH), verbosity=0)
    for event in RecordedEvents(folder.events):
        state.apply(event)
        lines(event)
        view(event)
    view.close()
    console.print(view.frame())
    lines.finish(f"report: {folder.report}")
    svg = console.export_svg(title="spbench run suites/halo.yaml")
    # A picture of ours asks no other host for its fonts.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (HERE / "run.svg").write_text(svg)


def draw_page() -> None:
    """Save the upper part of the page of the run that the package brings, as Chromium shows it."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as place:
        page = Path(place) / "page.html"
        demo = RunFolder(Path(str(files("spbench") / "demo")))
        page.write_text(html_page(load_run(demo)), encoding="utf-8")
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        picture = [f"--window-size={PAGE_SIZE}", f"--screenshot={HERE / 'report.png'}"]
        subprocess.run(["chromium", *words, *picture, page.as_uri()], check=True, timeout=60)


if __name__ == "__main__":
    main()
