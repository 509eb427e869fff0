"""The Suites page as tests drive it: a suite, its console, and what is on the page."""

import inspect
import os
from pathlib import Path

from textual.widgets import TextArea

from spbench.tui.app import ConsoleApp
from spbench.tui.chooser import Chooser
from spbench.tui.context import ConsoleOptions
from spbench.tui.dialogs import Confirm
from spbench.tui.suites.cases_pane import CasesPane
from spbench.tui.suites.editor import SuiteEditor
from spbench.tui.suites.form.case_form import CaseForm
from spbench.tui.suites.form.field_row import TextRow
from spbench.tui.suites.page import SuitesPage
from spbench.tui.suites.text_pane import TextPane
from support.tui.driving import until

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
AT_FIRST = 6
AT_SECOND = 11
"""The lines of the cases."""


class RecordingApp(ConsoleApp):
    """Keeps what it is asked to start."""

    CSS_PATH = Path(inspect.getfile(ConsoleApp)).with_name("console.tcss")

    def __init__(self, opening):
        super().__init__(opening)
        self.started = []
        vars(self.context).update(start_run=lambda words: self.started.append(tuple(words)))


def written(folder):
    """The path of the suite, written below a folder."""
    path = folder / "suites" / "made-up.yaml"
    path.parent.mkdir()
    path.write_text(SUITE)
    return path


def opened(path, **asked):
    """The console with the suite open."""
    folder = path.parent.parent
    environ = asked.pop("environ", dict(os.environ))
    environ["SPBENCH_CONFIG"] = str(folder / "console.yaml")
    asked = {"suite": path, **asked}
    return RecordingApp(
        ConsoleOptions(home=folder / "home", environ=environ, folder=folder, **asked)
    )


def pane(app):
    return app.screen.query_one(TextPane)


def editor(app):
    return app.screen.query_one(SuiteEditor)


def ids(app):
    """The ids of the cases, none while the page is not drawn yet."""
    panes = app.screen.query(CasesPane)
    return list(panes.first()._rows.keys()) if panes else []


async def ready(pilot, count=3):
    """Wait until the page shows the suite and its cases."""
    app = pilot.app
    await until(pilot, lambda: len(ids(app)) == count)


async def to_line(pilot, line):
    editor(pilot.app).go_to(line)
    await pilot.pause()


async def type_over(pilot, line, text):
    """Put a text in place of a line, as one who types."""
    edited = editor(pilot.app)
    edited.focus()
    edited.go_to(line)
    await pilot.press("end", "ctrl+u")
    edited.insert(text)
    await pilot.pause()


async def in_form(pilot):
    await until(pilot, lambda: isinstance(pilot.app.screen, CaseForm))
    await until(pilot, lambda: pilot.app.screen.query_one("#written", TextArea).text != "")
    return pilot.app.screen


async def first_in_form(pilot):
    """Open the form of the suite's first case."""
    await ready(pilot)
    await to_line(pilot, AT_FIRST)
    await pilot.press("e")
    return await in_form(pilot)


async def choose(pilot, word):
    """Choose in a list by typing a part of a name."""
    await until(pilot, lambda: isinstance(pilot.app.screen, Chooser))
    await pilot.press(*word)
    await pilot.press("enter")


async def fill(pilot, key, text):
    """Type into a field of the form."""
    row = next(row for row in pilot.app.screen.query(TextRow) if row.key == key)
    box = row.query_one("Input, TextArea")
    box.focus()
    box.value = text
    await pilot.pause()
    return row


async def answered(pilot, key):
    """Answer a question by a key."""
    await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.screen, SuitesPage))


def complaints(app):
    return [note.message for note in app._notifications]
