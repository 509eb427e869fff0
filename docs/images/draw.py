"""Draws run.svg: the live view of a recorded run, as a terminal shows it.

spbench run suites/halo.yaml && python docs/images/draw.py
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

from rich.console import Console

from spbench.cli.lines import Lines
from spbench.cli.live import LiveView, styled
from spbench.record.runs.folder import find_run, home_of
from spbench.record.runs.follow import RecordedEvents
from spbench.record.state import RunState

WIDTH = 144


def main() -> None:
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
    (Path(__file__).parent / "run.svg").write_text(svg)


if __name__ == "__main__":
    main()
