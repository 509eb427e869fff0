"""Helpers that drive the Suites page: its suite, its console and its contents."""

import inspect
import os
from pathlib import Path

from textual.widgets import TextArea

from spbench.tui.app import ConsoleApp
from spbench.tui.chooser import Chooser
from spbench.tui.context import ConsoleOptions
from spbench.tui.dialogs import Confirm
from spbench.tui.form.field_row import TextRow
from spbench.tui.suites.cases_table import CasesTable
from spbench.tui.suites.editor import SuiteEditor
from spbench.tui.suites.form.case_form import CaseForm
from spbench.tui.suites.page import SuitesPage
from spbench.tui.suites.text_pane import TextPane
from support.tui.app_driver import wait_until

SIZE = (100, 30)
SUITE = """\
# What stands above all.
schema: spbench.suite/1
name: made-up
cases:
  # The first case.
  - name: first
    benchmark: halo.exchange   # of halos
    params: {image_size: 64, num_spatial_parts: 2, slice_method: vertical}

  # The second, swept.
  - name: second
    benchmark: link.pingpong
    np: 2
    matrix:
      iterations: [5, 10]
"""
FIRST_CASE_LINE = 6
SECOND_CASE_LINE = 11
"""Lines of the cases, from 0."""


class RecordingApp(ConsoleApp):
    """A console that records the runs that it should start."""

    CSS_PATH = Path(inspect.getfile(ConsoleApp)).with_name("console.tcss")

    def __init__(self, opening):
        super().__init__(opening)
        self.started = []
        vars(self.context).update(start_run=self._record_start)

    def _record_start(self, arguments, folder=None, start_again=None, show=True):
        self.started.append(tuple(arguments))


def write_suite(folder):
    """Write the suite below a folder and return its path."""
    path = folder / "suites" / "made-up.yaml"
    path.parent.mkdir()
    path.write_text(SUITE)
    return path


def open_suite(path, **options):
    """Make a console with the suite open."""
    folder = path.parent.parent
    environ = options.pop("environ", dict(os.environ))
    environ["SPBENCH_CONFIG"] = str(folder / "console.yaml")
    options = {"suite": path, **options}
    return RecordingApp(
        ConsoleOptions(home=folder / "home", environ=environ, folder=folder, **options)
    )


def get_text_pane(app):
    return app.screen.query_one(TextPane)


def get_editor(app):
    return app.screen.query_one(SuiteEditor)


def list_case_ids(app):
    """Return the ids of the cases, or none before the page is drawn."""
    tables = app.screen.query(CasesTable)
    return list(tables.first().rows.keys()) if tables else []


async def wait_for_cases(pilot, count=3):
    """Wait until the page shows the suite and its cases."""
    app = pilot.app
    await wait_until(pilot, lambda: len(list_case_ids(app)) == count)


async def move_to_line(pilot, line):
    get_editor(pilot.app).go_to(line)
    await pilot.pause()


async def replace_line(pilot, line, text):
    """Replace a line by typing."""
    suite_editor = get_editor(pilot.app)
    suite_editor.focus()
    suite_editor.go_to(line)
    await pilot.press("end", "ctrl+u")
    suite_editor.insert(text)
    await pilot.pause()


async def wait_for_form(pilot):
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, CaseForm))
    await wait_until(pilot, lambda: pilot.app.screen.query_one("#preview", TextArea).text != "")
    return pilot.app.screen


async def open_first_case(pilot):
    """Open the form of the suite's first case."""
    await wait_for_cases(pilot)
    await move_to_line(pilot, FIRST_CASE_LINE)
    await pilot.press("f3")
    return await wait_for_form(pilot)


async def choose(pilot, text):
    """Choose in a list by typing part of a name."""
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, Chooser))
    await pilot.press(*text)
    await pilot.press("enter")


async def fill(pilot, key, text):
    """Type into a field of the form."""
    row = next(row for row in pilot.app.screen.query(TextRow) if row.key == key)
    widget = row.query_one("Input, TextArea")
    widget.focus()
    widget.value = text
    await pilot.pause()
    return row


async def answer(pilot, key):
    """Answer a question by a key."""
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
    await pilot.press(key)
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, SuitesPage))


def list_messages(app):
    return [note.message for note in app._notifications]
