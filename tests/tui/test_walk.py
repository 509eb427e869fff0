"""A user's way through the console on real ranks: compose, run, plant a fault, cancel, compare."""

from __future__ import annotations

import os

import pytest
from textual.widgets import OptionList

from spbench.engine import background
from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import Confirm
from spbench.tui.run.page import RunPage
from spbench.tui.suites.form.case_form import CaseForm
from spbench.tui.suites.form.field_row import TextRow
from spbench.tui.suites.page import SuitesPage
from support.tui.driving import console, shown, until

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

SUITE = """\
schema: spbench.suite/1
name: walk
cases:
  # Two ranks, so that it fits on any machine.
  - name: first
    benchmark: halo.exchange
    params: {image_size: 32, num_spatial_parts: 2, slice_method: vertical, iterations: 20}
"""


class Walker:
    """One who sits before the console."""

    def __init__(self, pilot):
        self.pilot = pilot
        self.app = pilot.app

    async def until(self, condition):
        await until(self.pilot, condition, 60)

    async def compose_a_sweep(self):
        await self.pilot.press("f4")
        await self.until(lambda: isinstance(self.app.screen, Chooser))
        await self.pilot.press(*"o.exch", "enter")
        await self.until(lambda: isinstance(self.app.screen, CaseForm))
        texts = {"name": "swept", "image_size": "32", "halo_len": "1, 2", "iterations": "20"}
        texts |= {"num_spatial_parts": "2", "slice_method": "vertical"}
        await self.until(
            lambda: texts.keys() <= {row.key for row in self.app.screen.query(TextRow)}
        )
        for row in self.app.screen.query(TextRow):
            if row.key in texts:
                row.query_one("Input").value = texts[row.key]
        await self.until(lambda: "2 cases on 2 ranks" in shown(self.app))
        await self.pilot.press("ctrl+s")
        await self.until(lambda: isinstance(self.app.screen, SuitesPage))

    async def run_all(self):
        await self.pilot.press("f5")
        await self.until(lambda: isinstance(self.app.screen, RunPage))
        await self.until(lambda: self.app.context.feed is not None)
        return self.app.context.feed

    async def plant(self, words):
        await self.pilot.press("f7")
        await self.until(lambda: isinstance(self.app.screen, Chooser))
        await self.pilot.press(*words)
        await self.until(lambda: self.app.screen.query_one(OptionList).option_count == 1)
        before = self.app.context.feed
        await self.pilot.press("enter")
        await self.until(lambda: self.app.context.feed is not before)
        return self.app.context.feed

    async def back_to(self, digit, kind):
        self.app.screen.set_focus(None)
        await self.pilot.press(digit)
        await self.until(lambda: isinstance(self.app.screen, kind))


@pytest.mark.long
async def test_compose_run_plant_cancel_and_compare(tmp_path, monkeypatch):
    path = tmp_path / "suites" / "walk.yaml"
    path.parent.mkdir()
    path.write_text(SUITE)
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    app = console(tmp_path, suite=path, environ=dict(os.environ) | as_root)
    async with app.run_test(size=(160, 50)) as pilot:
        walker = Walker(pilot)
        await walker.until(lambda: "first" in shown(app))
        await walker.compose_a_sweep()

        passed = await walker.run_all()
        assert "# Two ranks, so that it fits" in path.read_text()
        await walker.until(lambda: passed.ended)
        assert (passed.status, len(passed.state.cases)) == ("passed", 3), passed.state.errors
        await walker.until(lambda: "passed 3/3" in shown(app))

        await walker.back_to("1", SuitesPage)
        failed = await walker.plant("corrupt-halo")
        await walker.until(lambda: failed.ended)
        assert failed.status == "failed"
        await walker.until(lambda: "check halo failed" in shown(app))

        await walker.back_to("1", SuitesPage)
        hung = await walker.plant("sleeps")
        await walker.until(
            lambda: any(rank.phase != "starting" for rank in hung.state.ranks.values())
        )
        assert background.find_running(app.context.options.home) == [hung.folder]
        await pilot.press("x")
        await walker.until(lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await walker.until(lambda: hung.ended)
        assert hung.status == "cancelled"
        assert background.find_running(app.context.options.home) == []

        await pilot.press("3")
        await walker.until(lambda: shown(app).count("walk") >= 3)
        await pilot.press("down", "down", "space", "up", "c")
        await walker.until(lambda: "b/a" in shown(app) and "failed on" in shown(app))
        # Their reports come before their ends: none is left to be waited for by nobody.
        await walker.until(lambda: not background.has_running())
