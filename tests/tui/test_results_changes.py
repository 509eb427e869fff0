"""The Results page changes the recorded runs: notes, baselines, removal."""

import pytest

from spbench.record.runs.history import list_summaries
from spbench.report.baselines.files import list_baseline_names, load_baseline
from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import AskLine, Confirm
from support.tui.driving import SIZES, shown, until
from support.tui.results_page import MIDDLE, a_run, compared, opened, ready, row_of


async def asked(pilot, key, dialog=AskLine):
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.screen, dialog))


def told(app, sentence):
    """Whether a notification says this, however its lines are broken."""
    return any(sentence in one.message for one in app._notifications)


async def answered(pilot, text):
    pilot.app.focused.value = text
    await pilot.press("enter")


@pytest.mark.parametrize("size", SIZES)
async def test_a_note_with_tags_is_written_shown_and_found(tmp_path, home, size):
    app = opened(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await ready(pilot)
        await asked(pilot, "t")
        await answered(pilot, "new driver #rack2")
        await until(pilot, lambda: "#rack2 new driver" in shown(app))
        await until(pilot, lambda: "2001-01-03T08:30:00Z, 65.000 s" in shown(app))
        assert list_summaries(home)[-1].note.tags == ("rack2",)
        await pilot.press("slash")
        await answered(pilot, "tag:rack2")
        await until(pilot, lambda: len(page._pane.shown) == 1)
        await pilot.press("slash")
        await answered(pilot, "")
        await asked(pilot, "t")
        assert app.focused.value == "#rack2 new driver"
        await pilot.press("escape")
        await asked(pilot, "t")
        await answered(pilot, "")
        await until(pilot, lambda: "#rack2" not in shown(app))
        assert not (list_summaries(home)[-1].folder.path / "note.json").exists()


async def test_a_run_becomes_a_baseline_and_others_are_compared_with_it(tmp_path, home):
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE, notifications=True) as pilot:
        page = await ready(pilot)
        await pilot.press("b")
        await until(pilot, lambda: told(app, "there is no baseline yet"))
        await pilot.press("end")
        await until(pilot, lambda: page._views.cases.run.summary.id.startswith("20010101"))
        await asked(pilot, "B")
        await answered(pilot, "last")
        await until(pilot, lambda: told(app, "it names a run"))
        await asked(pilot, "B")
        await answered(pilot, "main")
        await until(pilot, lambda: told(app, "6 cases of 20010101"))
        assert load_baseline(home, "main").run.startswith("20010101")
        await pilot.press("up")
        await asked(pilot, "b", Chooser)
        await pilot.press("enter")
        await compared(pilot, "main", "20010102")
        await until(pilot, lambda: "2.00x" in row_of(app, "? not judged "))
        await pilot.press("up")
        await compared(pilot, "main", "20010103")
        await pilot.press("c")
        await compared(pilot, "20010102", "20010103")


@pytest.mark.long
async def test_a_baseline_is_replaced_only_after_a_yes_and_a_damaged_one_is_told(tmp_path, home):
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE, notifications=True) as pilot:
        await ready(pilot)
        path = home / "baselines" / "main.json"
        path.parent.mkdir()
        path.write_text("damaged")
        await asked(pilot, "b", Chooser)
        await pilot.press("enter")
        await until(pilot, lambda: "cannot be read" in shown(app))
        for answer, changed in (("n", False), ("y", True)):
            await asked(pilot, "B")
            await answered(pilot, "main")
            await until(pilot, lambda: isinstance(app.screen, Confirm))
            await pilot.press(answer)
            await until(pilot, lambda changed=changed: (path.read_text() != "damaged") == changed)


async def test_a_run_is_deleted_after_a_yes_but_not_one_that_a_baseline_needs(tmp_path, home):
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE, notifications=True) as pilot:
        page = await ready(pilot)
        await asked(pilot, "B")
        await answered(pilot, "main")
        await until(pilot, lambda: list_baseline_names(home) == ["main"])
        await pilot.press("d")
        await until(pilot, lambda: told(app, "a baseline was made of it; it stays"))
        await pilot.press("down")
        await until(pilot, lambda: page._pane.selected_run().id.startswith("20010102"))
        await asked(pilot, "d", Confirm)
        assert "Delete the run 20010102" in shown(app)
        await pilot.press("n")
        await asked(pilot, "d", Confirm)
        assert len(list_summaries(home)) == 3
        await pilot.press("y")
        await until(pilot, lambda: len(page._pane.shown) == 2)
        assert [run.id[:8] for run in list_summaries(home)] == ["20010101", "20010103"]


@pytest.mark.long
async def test_all_but_the_newest_runs_are_deleted_after_a_yes(tmp_path, home):
    a_run(home, 4, 1.0)
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE, notifications=True) as pilot:
        page = await ready(pilot)
        await asked(pilot, "D")
        await answered(pilot, "many")
        await until(pilot, lambda: told(app, "'many' is no number of runs"))
        await asked(pilot, "D")
        await answered(pilot, "9")
        await until(pilot, lambda: told(app, "no run is older than those"))
        await asked(pilot, "D")
        await answered(pilot, "2")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "Delete 2 runs" in shown(app)
        await pilot.press("y")
        await until(pilot, lambda: len(page._pane.shown) == 2)
        assert [run.id[:8] for run in list_summaries(home)] == ["20010103", "20010104"]


async def test_readonly_changes_nothing(tmp_path, home):
    app = opened(tmp_path, readonly=True)
    async with app.run_test(size=MIDDLE) as pilot:
        page = await ready(pilot)
        await pilot.press("t", "B", "d", "D")
        await pilot.pause()
        assert app.screen is page
