"""The console in a folder without suites."""

import pytest

from spbench.record.runs.playback import demo_run
from spbench.tui.context import Opening
from spbench.tui.suites.tree import SuiteTree
from tui.driving import SIZES, console, shown, until
from tui.suites_driving import RecordingApp, editor


def empty(folder, **asked):
    environ = {"SPBENCH_CONFIG": str(folder / "console.yaml")}
    return RecordingApp(Opening(home=folder / "home", environ=environ, folder=folder, **asked))


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
        assert app.screen.unsaved() is None
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
    demo = demo_run()
    app = console(tmp_path, suite=demo.path / "suite.yaml", recorded=demo, speed=None, page="run")
    async with app.run_test(size=(200, 60)) as pilot:
        await until(pilot, lambda: app.current_mode == "run")
        await pilot.press("1")
        await until(pilot, lambda: "demo.yaml" in shown(app))
        assert editor(app).text == (demo.path / "suite.yaml").read_text()
