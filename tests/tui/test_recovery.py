"""Unsaved text is kept a second after each change, and offered when the console opens again."""

import json
import os
import socket
import subprocess
import sys

import pytest

from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import Confirm
from spbench.tui.suites import page as page_module
from spbench.tui.suites import text_pane
from spbench.tui.suites.page import SuitesPage
from spbench.tui.suites.recovery import RecoveryFile, UnsavedText, find_abandoned
from spbench.tui.suites.text_pane import TextPane
from support.tui.driving import SIZES, console, shown, until
from support.tui.suites_page import SUITE, ready


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(text_pane, "RECOVERY_DELAY", 0.05)


def kept(folder):
    return sorted((folder / "home" / "unsaved").glob("*.json"))


def left_by_a_dead_console(folder, path, text, stored):
    """Keep a text as a console did that was killed."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    place = folder / "home" / "unsaved"
    place.mkdir(parents=True, exist_ok=True)
    about = {"path": str(path), "text": text, "stored": stored, "edited": 1e9, "pid": dead.pid}
    (place / f"{path.stem}-{dead.pid}.json").write_text(
        json.dumps(about | {"host": socket.gethostname()})
    )


async def opened(pilot):
    app = pilot.app
    await until(pilot, lambda: isinstance(app.screen, SuitesPage))
    await until(pilot, lambda: app.screen.query(TextPane) and app.screen.text_pane.document)
    await ready(pilot)  # the first case has been gone to
    return app.screen.text_pane


async def typed(pilot, pane, text="mine"):
    pane.editor.focus()
    pane.editor.move_cursor((0, 0))
    await pilot.press(*text)


async def test_a_page_that_is_not_drawn_yet_has_nothing_unsaved(tmp_path, suite):
    app = console(tmp_path, suite=suite)
    async with app.run_test(size=(100, 30)):
        early = SuitesPage(app.context)
        assert early.describe_unsaved() is None, "the browser asks before the page was composed"
        early.discard_unsaved()


async def test_unsaved_text_is_kept_until_it_is_saved(tmp_path, suite):
    app = console(tmp_path, suite=suite)
    async with app.run_test(size=(100, 30)) as pilot:
        pane = await opened(pilot)
        assert kept(tmp_path) == []
        await typed(pilot, pane)
        await until(pilot, lambda: kept(tmp_path))
        (file,) = kept(tmp_path)
        await until(pilot, lambda: json.loads(file.read_text())["text"] == "mine" + SUITE)
        assert file.stat().st_mode & 0o77 == 0, "nobody else reads it"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: not kept(tmp_path))
        assert suite.read_text() == "mine" + SUITE


async def test_text_that_is_changed_back_is_not_kept(tmp_path, suite):
    app = console(tmp_path, suite=suite)
    async with app.run_test(size=(100, 30)) as pilot:
        pane = await opened(pilot)
        await typed(pilot, pane, "x")
        await until(pilot, lambda: kept(tmp_path))
        await pilot.press("ctrl+z")
        await until(pilot, lambda: not kept(tmp_path))


async def test_who_quits_after_the_question_leaves_nothing_behind(tmp_path, suite):
    app = console(tmp_path, suite=suite)
    async with app.run_test(size=(100, 30)) as pilot:
        pane = await opened(pilot)
        await typed(pilot, pane)
        await until(pilot, lambda: kept(tmp_path))
        await pilot.press("ctrl+q")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
    assert kept(tmp_path) == []


def test_a_text_that_another_user_may_have_left_is_not_offered(tmp_path, suite):
    left_by_a_dead_console(tmp_path, suite, SUITE, None)
    assert len(find_abandoned(tmp_path / "home")) == 1
    (file,) = kept(tmp_path)
    file.chmod(0o666)
    assert find_abandoned(tmp_path / "home") == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("there", [True, False], ids=["file", "new"])
async def test_the_text_of_a_killed_console_is_offered_and_recovered(tmp_path, suite, size, there):
    text = SUITE.replace("made-up", "recovered")
    if not there:
        suite.unlink()
    left_by_a_dead_console(tmp_path, suite, text, SUITE if there else None)
    app = console(tmp_path)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: isinstance(app.screen, Chooser))
        await until(pilot, lambda: "made-up.yaml, edited 2001-09-09" in shown(app))
        await pilot.press("enter")
        pane = await opened(pilot)
        await until(pilot, lambda: pane.editor.text == text)
        await until(pilot, lambda: pane.has_changes and "not saved" in shown(app))
        (file,) = kept(tmp_path)
        assert file.stem.endswith(f"-{os.getpid()}"), "this console keeps it now"
        await pilot.pause(0.8)
        assert isinstance(app.screen, SuitesPage), "its own text is not offered"
        if there:
            pane.editor.focus()
            await pilot.press("ctrl+z")
            assert pane.editor.text == SUITE
            await pilot.press("ctrl+y")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: not kept(tmp_path))
        assert suite.read_text() == text


async def test_a_recovered_text_is_not_written_over_changes_of_others_unasked(tmp_path, suite):
    left_by_a_dead_console(tmp_path, suite, SUITE + "# mine\n", SUITE)
    suite.write_text(SUITE + "# another\n")
    app = console(tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, Chooser))
        await pilot.press("enter")
        pane = await opened(pilot)
        await until(pilot, lambda: pane.editor.text == SUITE + "# mine\n")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "# another" in suite.read_text()


@pytest.mark.parametrize(("answer", "stays"), [("later", True), ("discard", False)])
async def test_the_text_stays_or_goes_as_one_says(tmp_path, suite, answer, stays, monkeypatch):
    monkeypatch.setattr(page_module, "SECOND_RECOVERY_DELAY", 0.1)
    left_by_a_dead_console(tmp_path, suite, "x", SUITE)
    app = console(tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, Chooser))
        await pilot.press(*answer, "enter")
        await until(pilot, lambda: isinstance(app.screen, SuitesPage))
        await until(pilot, lambda: bool(kept(tmp_path)) == stays)
        await pilot.pause(0.4)
        assert isinstance(app.screen, SuitesPage), "it is not asked twice"


async def test_texts_of_living_consoles_and_damaged_files_are_let_be(tmp_path, suite):
    home = tmp_path / "home"
    mine = RecoveryFile.locate(home, suite)
    mine.write(suite, None, "x")
    assert [text.text for _, text in find_abandoned(home)] == ["x"]
    alive = json.loads(mine.path.read_text())
    program = "print(flush=True); input()"
    pipe = subprocess.PIPE
    other = subprocess.Popen([sys.executable, "-c", program, "spbench"], stdin=pipe, stdout=pipe)
    try:
        assert other.stdout is not None
        other.stdout.readline()  # it runs under its own name by now
        mine.path.write_text(json.dumps(alive | {"pid": other.pid}))
        assert find_abandoned(home) == []
    finally:
        other.communicate(b"\n")
    for content in ("torn", "[]", "{}", json.dumps(alive | {"text": 3}), json.dumps([alive])):
        mine.path.write_text(content)
        assert find_abandoned(home) == []
    mine.path.write_text(json.dumps(alive | {"host": "elsewhere"}))
    assert find_abandoned(home) == []
    mine.delete()
    mine.delete()
    assert UnsavedText(**alive).is_abandoned()


@pytest.mark.long
async def test_a_home_that_cannot_be_written_is_told_once(tmp_path, suite):
    (tmp_path / "home").write_text("no folder")
    app = console(tmp_path, suite=suite)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        pane = await opened(pilot)
        await typed(pilot, pane, "ab")
        await until(pilot, lambda: [one.message for one in app._notifications])
        await typed(pilot, pane, "cd")
        await pilot.pause(0.3)
        told = [one.message for one in app._notifications]
        assert len(told) == 1
        assert told[0].startswith("unsaved text is not kept: cannot write")


async def test_readonly_keeps_and_offers_nothing(tmp_path, suite):
    left_by_a_dead_console(tmp_path, suite, "x", SUITE)
    app = console(tmp_path, suite=suite, readonly=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.pause(0.2)
        assert isinstance(app.screen, SuitesPage)
        assert len(kept(tmp_path)) == 1
