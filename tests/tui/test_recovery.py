"""Recovery of unsaved text after the end of a console."""

import json
import os
import socket
import subprocess
import sys

import pytest

from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import Confirm
from spbench.tui.suites.page import SuitesPage
from spbench.tui.suites.recovery import RecoveryFile, UnsavedText, find_abandoned
from spbench.tui.suites.text_pane import TextPane
from support.tui.app_driver import SIZES, make_console, read_screen, wait_until
from support.tui.suites_page import SUITE, wait_for_cases


def list_recovery_files(folder):
    return sorted((folder / "home" / "unsaved").glob("*.json"))


def leave_recovery_file(folder, path, text, stored):
    """Keep a text like a console that was killed."""
    ended_process = subprocess.Popen([sys.executable, "-c", ""])
    ended_process.wait()
    unsaved_folder = folder / "home" / "unsaved"
    unsaved_folder.mkdir(parents=True, exist_ok=True)
    record = {
        "path": str(path),
        "text": text,
        "stored": stored,
        "edited": 1e9,
        "pid": ended_process.pid,
    }
    (unsaved_folder / f"{path.stem}-{ended_process.pid}.json").write_text(
        json.dumps(record | {"host": socket.gethostname()})
    )


async def wait_for_editor(pilot):
    """Return the pane of the editor, which writes unsaved text sooner than for users."""
    app = pilot.app
    await wait_until(pilot, lambda: isinstance(app.screen, SuitesPage))
    await wait_until(pilot, lambda: app.screen.query(TextPane) and app.screen.text_pane.document)
    await wait_for_cases(pilot)  # the editor is at the first case
    app.screen.text_pane.backup_delay_s = 0.05
    return app.screen.text_pane


async def type_at_start(pilot, pane, text="mine"):
    pane.editor.focus()
    pane.editor.move_cursor((0, 0))
    await pilot.press(*text)


async def test_undrawn_page_has_nothing_unsaved(tmp_path, suite):
    app = make_console(tmp_path, suite=suite)
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_for_editor(pilot)
        page = SuitesPage(app.context)
        assert page.describe_unsaved() is None, "the browser asks before the page was composed"
        page.discard_unsaved()


async def test_unsaved_text_is_kept_until_it_is_saved(tmp_path, suite):
    app = make_console(tmp_path, suite=suite)
    async with app.run_test(size=(100, 30)) as pilot:
        pane = await wait_for_editor(pilot)
        assert list_recovery_files(tmp_path) == []
        await type_at_start(pilot, pane)
        await wait_until(pilot, lambda: list_recovery_files(tmp_path))
        (file,) = list_recovery_files(tmp_path)
        await wait_until(pilot, lambda: json.loads(file.read_text())["text"] == "mine" + SUITE)
        assert file.stat().st_mode & 0o77 == 0, "nobody else reads it"
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: not list_recovery_files(tmp_path))
        assert suite.read_text() == "mine" + SUITE


async def test_reverted_text_is_not_kept(tmp_path, suite):
    app = make_console(tmp_path, suite=suite)
    async with app.run_test(size=(100, 30)) as pilot:
        pane = await wait_for_editor(pilot)
        await type_at_start(pilot, pane, "x")
        await wait_until(pilot, lambda: list_recovery_files(tmp_path))
        await pilot.press("ctrl+z")
        await wait_until(pilot, lambda: not list_recovery_files(tmp_path))


async def test_confirmed_quit_leaves_no_recovery_file(tmp_path, suite):
    app = make_console(tmp_path, suite=suite)
    async with app.run_test(size=(100, 30)) as pilot:
        pane = await wait_for_editor(pilot)
        await type_at_start(pilot, pane)
        await wait_until(pilot, lambda: list_recovery_files(tmp_path))
        await pilot.press("ctrl+q")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
    assert list_recovery_files(tmp_path) == []


def test_does_not_offer_text_that_others_could_write(tmp_path, suite):
    leave_recovery_file(tmp_path, suite, SUITE, None)
    assert len(find_abandoned(tmp_path / "home")) == 1
    (file,) = list_recovery_files(tmp_path)
    file.chmod(0o666)
    assert find_abandoned(tmp_path / "home") == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("file_exists", [True, False], ids=["file", "new"])
async def test_recovers_the_text_of_a_killed_console(tmp_path, suite, size, file_exists):
    text = SUITE.replace("made-up", "recovered")
    if not file_exists:
        suite.unlink()
    leave_recovery_file(tmp_path, suite, text, SUITE if file_exists else None)
    app = make_console(tmp_path)
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        await wait_until(pilot, lambda: "made-up.yaml, edited 2001-09-09" in read_screen(app))
        await pilot.press("enter")
        pane = await wait_for_editor(pilot)
        await wait_until(pilot, lambda: pane.editor.text == text)
        await wait_until(pilot, lambda: pane.has_changes and "not saved" in read_screen(app))
        (file,) = list_recovery_files(tmp_path)
        assert file.stem.endswith(f"-{os.getpid()}"), "this console keeps it now"
        await pilot.pause(0.8)
        assert isinstance(app.screen, SuitesPage), "its own text is not offered"
        if file_exists:
            pane.editor.focus()
            await pilot.press("ctrl+z")
            assert pane.editor.text == SUITE
            await pilot.press("ctrl+y")
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: not list_recovery_files(tmp_path))
        assert suite.read_text() == text


async def test_saving_recovered_text_over_other_changes_asks(tmp_path, suite):
    leave_recovery_file(tmp_path, suite, SUITE + "# mine\n", SUITE)
    suite.write_text(SUITE + "# another\n")
    app = make_console(tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        await pilot.press("enter")
        pane = await wait_for_editor(pilot)
        await wait_until(pilot, lambda: pane.editor.text == SUITE + "# mine\n")
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "# another" in suite.read_text()


@pytest.mark.parametrize(("answer", "is_kept"), [("later", True), ("discard", False)])
async def test_recovery_text_is_kept_or_discarded_as_answered(tmp_path, suite, answer, is_kept):
    leave_recovery_file(tmp_path, suite, "x", SUITE)
    app = make_console(tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        await pilot.press(*answer, "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, SuitesPage))
        await wait_until(pilot, lambda: bool(list_recovery_files(tmp_path)) == is_kept)
        await app.screen._file_actions.offer_unsaved()  # the second search for unsaved text
        await pilot.pause()
        assert isinstance(app.screen, SuitesPage), "it is not asked twice"


async def test_ignores_running_consoles_and_damaged_files(tmp_path, suite):
    home = tmp_path / "home"
    recovery_file = RecoveryFile.locate(home, suite)
    recovery_file.write(suite, None, "x")
    assert [text.text for _, text in find_abandoned(home)] == ["x"]
    record = json.loads(recovery_file.path.read_text())
    program = "print(flush=True); input()"
    pipe = subprocess.PIPE
    other = subprocess.Popen([sys.executable, "-c", program, "spbench"], stdin=pipe, stdout=pipe)
    try:
        assert other.stdout is not None
        other.stdout.readline()  # from here on it runs under its own name
        recovery_file.path.write_text(json.dumps(record | {"pid": other.pid}))
        assert find_abandoned(home) == []
    finally:
        other.communicate(b"\n")
    for content in ("torn", "[]", "{}", json.dumps(record | {"text": 3}), json.dumps([record])):
        recovery_file.path.write_text(content)
        assert find_abandoned(home) == []
    recovery_file.path.write_text(json.dumps(record | {"host": "elsewhere"}))
    assert find_abandoned(home) == []
    recovery_file.delete()
    recovery_file.delete()
    assert UnsavedText(**record).is_abandoned()


@pytest.mark.long
async def test_unwritable_home_is_reported_once(tmp_path, suite):
    (tmp_path / "home").write_text("no folder")
    app = make_console(tmp_path, suite=suite)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        pane = await wait_for_editor(pilot)
        await type_at_start(pilot, pane, "ab")
        await wait_until(
            pilot, lambda: [notification.message for notification in app._notifications]
        )
        await type_at_start(pilot, pane, "cd")
        await pilot.pause(0.3)
        messages = [notification.message for notification in app._notifications]
        assert len(messages) == 1
        assert messages[0].startswith("unsaved text is not kept: cannot write")


async def test_readonly_keeps_and_offers_nothing(tmp_path, suite):
    leave_recovery_file(tmp_path, suite, "x", SUITE)
    app = make_console(tmp_path, suite=suite, readonly=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_for_editor(pilot)
        await pilot.pause(0.2)
        assert isinstance(app.screen, SuitesPage)
        assert len(list_recovery_files(tmp_path)) == 1
