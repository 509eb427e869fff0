"""The console in a folder without suites."""

import shutil
from pathlib import Path

import pytest

from spbench.record.runs.playback import find_demo_run
from spbench.suites import shipped
from spbench.tui.context import ConsoleOptions
from spbench.tui.suites.editor import SuiteEditor
from spbench.tui.suites.tree import FIRST_SUITE, SuiteTree
from support.paths import SUITES
from support.tui.driving import SIZES, console, shown, until
from support.tui.suites_page import RecordingApp, complaints, editor


def empty(folder, **asked):
    environ = {"SPBENCH_CONFIG": str(folder / "console.yaml")}
    return RecordingApp(
        ConsoleOptions(home=folder / "home", environ=environ, folder=folder, **asked)
    )


def chosen(app):
    """The file at the cursor of the list."""
    node = app.screen.query_one(SuiteTree).cursor_node
    return node and node.data


@pytest.mark.parametrize("size", SIZES)
async def test_it_says_what_spbench_is_and_a_first_run_takes_two_keys(tmp_path, size):
    app = empty(tmp_path)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "spbench measures what" in shown(app))
        await until(pilot, lambda: "shipped with spbench" in shown(app))
        app.screen.query_one(SuiteTree).focus()
        await until(pilot, lambda: app.screen.query_one(SuiteTree).cursor_node is not None)
        await pilot.press("enter")
        await until(pilot, lambda: "schema: spbench.suite/1" in editor(app).text)
        written = app.screen.text_pane.document.path
        assert written.parent == tmp_path / "suites"
        assert not written.exists()
        assert app.screen.describe_unsaved() is None
        await pilot.press("f5")
        await until(pilot, lambda: app.started)
        assert written.read_text() == editor(app).text


async def test_a_key_writes_all_suites_and_none_is_written_where_nothing_may(tmp_path):
    app = empty(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "shipped with spbench" in shown(app))
        await pilot.press("I")
        await until(pilot, lambda: (tmp_path / "suites" / "halo.yaml").exists())
        await until(pilot, lambda: "shipped with spbench" not in shown(app))
    readonly = tmp_path / "readonly"
    readonly.mkdir()
    app = empty(readonly, readonly=True)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "shipped with spbench" in shown(app))
        await pilot.press("I")
        assert not (readonly / "suites").exists()


async def test_the_suite_of_the_demo_is_on_the_first_page(tmp_path):
    demo = find_demo_run()
    app = console(tmp_path, suite=demo.path / "suite.yaml", recorded=demo, speed=None, page="run")
    async with app.run_test(size=(200, 60)) as pilot:
        await until(pilot, lambda: app.current_mode == "run")
        await pilot.press("1")
        await until(pilot, lambda: "demo.yaml" in shown(app))
        assert editor(app).text == (demo.path / "suite.yaml").read_text()


async def test_the_others_stay_listed_beside_one_that_is_opened_and_not_written(tmp_path):
    app = empty(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "shipped with spbench" in shown(app))
        await until(pilot, lambda: chosen(app) is not None)
        await pilot.press("enter")
        await until(pilot, lambda: "schema: spbench.suite/1" in editor(app).text)
        await until(pilot, lambda: "suites/" in shown(app))
        await until(pilot, lambda: "smoke.yaml  20 cases" in shown(app))
        assert "shipped with spbench" in shown(app)
        assert "1 error" not in shown(app)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "shipped with spbench" not in shown(app))
        assert (tmp_path / "suites" / "smoke.yaml").is_file()


async def test_a_virtual_environment_in_the_folder_makes_them_no_suites_of_its_own(
    tmp_path, monkeypatch
):
    package = tmp_path / ".venv" / "spbench"
    shutil.copytree(SUITES, package / "shipped" / "suites")
    monkeypatch.setattr(shipped, "_PACKAGE", package)
    app = empty(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "shipped with spbench" in shown(app))
        await until(pilot, lambda: chosen(app) is not None)
        assert chosen(app).stem == FIRST_SUITE


async def test_one_that_is_asked_for_by_its_name_is_opened_as_a_copy(tmp_path):
    app = empty(tmp_path, suite=Path("shipped:halo"))
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: app.screen.query(SuiteEditor) and editor(app).text)
        assert app.screen.text_pane.document.path == tmp_path / "suites" / "halo.yaml"
        assert editor(app).text == (SUITES / "halo.yaml").read_text()
        assert not (tmp_path / "suites").exists()


async def test_keys_keep_their_meaning_where_nothing_is_open(tmp_path):
    app = empty(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "shipped with spbench" in shown(app))
        tree = app.screen.query_one(SuiteTree)
        await until(pilot, lambda: app.focused is tree)
        for key in ("ctrl+s", "ctrl+z"):  # there is nothing to save or to take back
            await pilot.press(key)
        assert app.focused is tree
        await pilot.press("shift+tab")
        assert app.focused is not tree
        await pilot.press("f4")
        await until(pilot, lambda: any("no suite is open" in said for said in complaints(app)))
        assert not (tmp_path / "suites").exists()
        await pilot.press("ctrl+n")
        await until(pilot, lambda: "File of the new suite:" in shown(app))


@pytest.mark.long
async def test_the_palette_writes_them(tmp_path):
    app = empty(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "shipped with spbench" in shown(app))
        await pilot.press("ctrl+p", *"suites: init")
        await until(pilot, lambda: "Write the shipped suites into this folder" in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: (tmp_path / "hostfiles" / "slurm.hosts").is_file())
