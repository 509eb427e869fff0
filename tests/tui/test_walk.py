"""A user's session on real ranks: compose, run, inject faults, cancel, compare."""

from __future__ import annotations

import os

import pytest
from textual.widgets import OptionList

from spbench.engine import background
from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import Confirm
from spbench.tui.form.field_row import TextRow
from spbench.tui.run.page import RunPage
from spbench.tui.suites.form.case_form import CaseForm
from spbench.tui.suites.page import SuitesPage
from support.tui.app_driver import make_console, read_screen, wait_until

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


class User:
    """A user of the console."""

    def __init__(self, pilot):
        self.pilot = pilot
        self.app = pilot.app

    async def wait_until(self, condition):
        await wait_until(self.pilot, condition, 60)

    async def compose_a_sweep(self):
        await self.pilot.press("f4")
        await self.wait_until(lambda: isinstance(self.app.screen, Chooser))
        await self.pilot.press(*"o.exch", "enter")
        await self.wait_until(lambda: isinstance(self.app.screen, CaseForm))
        texts = {"name": "swept", "image_size": "32", "halo_len": "1, 2", "iterations": "20"}
        texts |= {"num_spatial_parts": "2", "slice_method": "vertical"}
        await self.wait_until(
            lambda: texts.keys() <= {row.key for row in self.app.screen.query(TextRow)}
        )
        for row in self.app.screen.query(TextRow):
            if row.key in texts:
                row.query_one("Input").value = texts[row.key]
        await self.wait_until(lambda: "2 cases on 2 ranks" in read_screen(self.app))
        await self.pilot.press("ctrl+s")
        await self.wait_until(lambda: isinstance(self.app.screen, SuitesPage))

    async def run_all(self):
        await self.pilot.press("f5")
        await self.wait_until(lambda: isinstance(self.app.screen, RunPage))
        await self.wait_until(lambda: self.app.context.feed is not None)
        return self.app.context.feed

    async def inject(self, text):
        await self.pilot.press("f7")
        await self.wait_until(lambda: isinstance(self.app.screen, Chooser))
        await self.pilot.press(*text)
        await self.wait_until(lambda: self.app.screen.query_one(OptionList).option_count == 1)
        before = self.app.context.feed
        await self.pilot.press("enter")
        # None while the run is being started.
        await self.wait_until(lambda: self.app.context.feed not in (None, before))
        return self.app.context.feed

    async def return_to(self, digit, kind):
        self.app.screen.set_focus(None)
        await self.pilot.press(digit)
        await self.wait_until(lambda: isinstance(self.app.screen, kind))


@pytest.mark.long
async def test_composes_runs_injects_cancels_and_compares(tmp_path, monkeypatch):
    path = tmp_path / "suites" / "walk.yaml"
    path.parent.mkdir()
    path.write_text(SUITE)
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    app = make_console(tmp_path, suite=path, environ=dict(os.environ) | as_root)
    async with app.run_test(size=(160, 50)) as pilot:
        user = User(pilot)
        await user.wait_until(lambda: "first" in read_screen(app))
        await user.compose_a_sweep()

        passed = await user.run_all()
        assert "# Two ranks, so that it fits" in path.read_text()
        await user.wait_until(lambda: passed.ended)
        assert (passed.status, len(passed.state.cases)) == ("passed", 3), passed.state.errors
        await user.wait_until(lambda: "passed 3/3" in read_screen(app))

        await user.return_to("1", SuitesPage)
        failed = await user.inject("corrupt-halo")
        await user.wait_until(lambda: failed.ended)
        assert failed.status == "failed"
        await user.wait_until(lambda: "check halo failed" in read_screen(app))

        await user.return_to("1", SuitesPage)
        hung = await user.inject("sleeps")
        await user.wait_until(
            lambda: any(rank.phase != "starting" for rank in hung.state.ranks.values())
        )
        assert background.find_running(app.context.options.home) == [hung.folder]
        await pilot.press("x")
        await user.wait_until(lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await user.wait_until(lambda: hung.ended)
        assert hung.status == "cancelled"
        assert background.find_running(app.context.options.home) == []

        await pilot.press("3")
        await user.wait_until(lambda: read_screen(app).count("walk") >= 3)
        await pilot.press("down", "down", "space", "up", "c")
        await user.wait_until(lambda: "b/a" in read_screen(app) and "failed on" in read_screen(app))
        # Reports appear before the processes end: wait for all of them.
        await user.wait_until(lambda: not background.has_running())
