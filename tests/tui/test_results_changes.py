"""Changes of recorded runs on the Results page: notes, baselines, deletion."""

import pytest
from textual.widgets import Static

from spbench.engine import background
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import list_summaries
from spbench.report.baselines.creation import make_baseline
from spbench.report.baselines.files import list_baseline_names, load_baseline, save_baseline
from spbench.report.recorded import load_run
from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import AskLine, Confirm, FewLaunchesDialog
from spbench.tui.results.export import ExportDialog
from spbench.tui.results.views import View
from support.tui.app_driver import SIZES, read_screen, wait_until
from support.tui.results_page import (
    MEDIUM_SIZE,
    find_line,
    open_results,
    read_widget,
    record_synthetic_run,
    wait_for_comparison,
    wait_for_run,
)


async def open_dialog(pilot, key, dialog=AskLine):
    await pilot.press(key)
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, dialog))


async def open_baseline_dialog_of_failed_run(pilot):
    await open_dialog(pilot, "B", Confirm)
    await pilot.press("y")
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, AskLine))


def has_notification(app, text):
    """Return whether a notification contains the text."""
    return any(text in notification.message for notification in app._notifications)


def read_dialog(app):
    return str(app.screen.query_one(Static).render())


async def submit_text(pilot, text):
    pilot.app.focused.value = text
    await pilot.press("enter")


@pytest.mark.parametrize("size", SIZES)
async def test_note_with_tags_is_saved_shown_and_searchable(tmp_path, home, size):
    app = open_results(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await wait_for_run(pilot)
        await open_dialog(pilot, "t")
        await submit_text(pilot, "new driver #rack2")
        await wait_until(pilot, lambda: "#rack2 new driver" in read_screen(app))
        await wait_until(pilot, lambda: "2001-01-03T08:30:00Z" in read_screen(app))
        assert list_summaries(home)[-1].note.tags == ("rack2",)
        await pilot.press("slash")
        await submit_text(pilot, "tag:rack2")
        await wait_until(pilot, lambda: len(page._pane.shown) == 1)
        await pilot.press("slash")
        await submit_text(pilot, "")
        await open_dialog(pilot, "t")
        assert app.focused.value == "#rack2 new driver"
        await pilot.press("escape")
        await open_dialog(pilot, "t")
        await submit_text(pilot, "")
        await wait_until(pilot, lambda: "#rack2" not in read_screen(app))
        assert not (list_summaries(home)[-1].folder.path / "note.json").exists()


async def test_compares_runs_with_a_new_baseline(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE, notifications=True) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("end")
        await wait_until(pilot, lambda: page._views.cases.run.summary.id.startswith("20010101"))
        await open_dialog(pilot, "B", Confirm)
        remedy = "fewer than the 5 launches of each case that a comparison with it needs"
        await wait_until(pilot, lambda: remedy in " ".join(read_dialog(app).split()))
        await open_dialog(pilot, "y")
        await wait_until(pilot, lambda: "Name of the baseline" in read_screen(app))
        await submit_text(pilot, "last")
        await wait_until(pilot, lambda: "✗ 'last' cannot name a baseline" in read_screen(app))
        await submit_text(pilot, "")
        await wait_until(pilot, lambda: "✗ type a name, or leave with Escape" in read_screen(app))
        await submit_text(pilot, "main")
        await wait_until(pilot, lambda: has_notification(app, "6 cases of 20010101"))
        assert load_baseline(home, "main").run.startswith("20010101")
        page._poll_now()
        await wait_until(pilot, lambda: "◆" in find_line(app, "2001-01-01"))
        await wait_until(pilot, lambda: "baseline    main" in read_screen(app))
        await pilot.press("space")
        assert page._pane.marked
        await pilot.press("b")
        await wait_for_comparison(pilot, "main", "20010103")  # the newest other run
        assert not has_notification(app, "the only baseline")
        assert not page._pane.marked
        await wait_until(pilot, lambda: "a: median 1.00 ms" in read_screen(app))
        await pilot.press("end")
        text = "baseline main was made of the run under the cursor. Move"
        await wait_until(pilot, lambda: text in read_widget(app, "#compared-runs"))
        await pilot.press("v")
        await wait_until(pilot, lambda: "median 1.00 ms" in read_screen(app))
        assert "was made of the run" not in read_widget(app, "#times-heading")
        await pilot.press("c", "up")
        await wait_until(pilot, lambda: page._pane.selected_run().id.startswith("20010102"))
        await pilot.press("b")
        await wait_for_comparison(pilot, "main", "20010102")
        text = "compared with main, the only baseline of made-up"
        await wait_until(pilot, lambda: has_notification(app, text))
        await wait_until(pilot, lambda: "2.00x" in find_line(app, "? not judged "))
        await pilot.press("up")
        await wait_for_comparison(pilot, "main", "20010103")
        await pilot.press("c")
        await wait_for_comparison(pilot, "20010102", "20010103")


async def test_comparing_without_a_baseline_names_the_key_that_sets_one(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE, notifications=True) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("b")
        text = "there is no baseline yet; B sets one, and b compares with it"
        await wait_until(pilot, lambda: has_notification(app, text))
        assert app.screen is page


async def test_keys_do_not_act_on_run_a_while_the_selected_run_is_running(
    tmp_path, home, monkeypatch
):
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: "20010104" in folder.id)
    monkeypatch.setattr(background, "find_running", lambda home: [])  # without its question
    record_synthetic_run(home, 4, 1.0, ends=False)
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE, notifications=True) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("c")
        await wait_for_comparison(pilot, "20010103", "20010104")
        assert page._views.name_repetition(View.COMPARE) is None
        for key in "BRF":
            await pilot.press(key)
            text = f"the selected run is still running; {key} works when it has ended"
            await wait_until(pilot, lambda text=text: has_notification(app, text))
            assert app.screen is page
        await pilot.press("b")
        await wait_until(pilot, lambda: has_notification(app, "there is no baseline yet"))
        await open_dialog(pilot, "t")
        assert "Note of 20010104" in read_screen(app)


async def test_export_of_a_run_is_that_of_the_selected_run(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("space", "down", "v", "v")
        await wait_until(pilot, lambda: page._loader.sides[:1] == ("20010102-083000-made-up",))
        assert page._views.cases.run.summary.id.startswith("20010103")
        await open_dialog(pilot, "e", ExportDialog)
        assert "20010102" in app.screen._subject


async def test_enter_runs_a_run_with_few_launches_before_it_is_a_baseline(
    tmp_path, home, monkeypatch
):
    app = open_results(tmp_path)
    starts = []
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        monkeypatch.setattr(app.context, "start_run", lambda *args, **_: starts.append(args))
        page = await wait_for_run(pilot)
        await pilot.press("end")
        await wait_until(pilot, lambda: page._pane.selected_run().id.startswith("20010101"))
        await open_dialog(pilot, "B", FewLaunchesDialog)
        await wait_until(pilot, lambda: getattr(app.focused, "id", None) == "third")
        await pilot.press("enter")
        await wait_until(pilot, lambda: starts)
        assert starts[0][0][-2:] == ("--set", "repeat=5")
        assert list_baseline_names(home) == []


async def test_newest_baseline_with_enough_launches_is_preselected(tmp_path, home):
    for day, launches in ((4, 5), (5, 5), (6, 1)):
        run = load_run(record_synthetic_run(home, day, 1.0, launches=launches))
        save_baseline(home, f"day{day}", make_baseline(f"day{day}", run)[0])
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        await open_dialog(pilot, "b", Chooser)
        assert [choice.name for choice in app.screen._choices] == ["day5", "day4", "day6"]
        assert app.screen._choices[2].summary.endswith("fewer than 5 launches")
        await pilot.press("enter")
        await wait_for_comparison(pilot, "day5", "20010106")


async def test_making_a_baseline_of_a_failed_run_asks(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        await open_dialog(pilot, "B", Confirm)
        await wait_until(pilot, lambda: "did not pass" in read_screen(app))
        await pilot.press("n")
        await wait_until(pilot, lambda: not isinstance(app.screen, Confirm))
        assert not isinstance(app.screen, AskLine)
        await open_baseline_dialog_of_failed_run(pilot)
        assert list_baseline_names(home) == []


@pytest.mark.long
async def test_replacing_a_damaged_baseline_asks(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE, notifications=True) as pilot:
        await wait_for_run(pilot)
        path = home / "baselines" / "main.json"
        path.parent.mkdir()
        path.write_text("damaged")
        await pilot.press("b")
        await wait_until(pilot, lambda: "cannot be read" in read_screen(app))
        for answer, is_replaced in (("n", False), ("y", True)):
            await open_baseline_dialog_of_failed_run(pilot)
            await submit_text(pilot, "main")
            await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
            await pilot.press(answer)
            await wait_until(
                pilot,
                lambda is_replaced=is_replaced: (path.read_text() != "damaged") == is_replaced,
            )


async def test_deleting_a_run_asks_and_keeps_those_of_baselines(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE, notifications=True) as pilot:
        page = await wait_for_run(pilot)
        await open_baseline_dialog_of_failed_run(pilot)
        await submit_text(pilot, "main")
        await wait_until(pilot, lambda: list_baseline_names(home) == ["main"])
        await pilot.press("d")
        await wait_until(
            pilot, lambda: has_notification(app, "a baseline was made of it; it stays")
        )
        await pilot.press("down")
        await wait_until(pilot, lambda: page._pane.selected_run().id.startswith("20010102"))
        await open_dialog(pilot, "d", Confirm)
        assert "Delete the run 20010102" in read_screen(app)
        await pilot.press("n")
        await open_dialog(pilot, "d", Confirm)
        assert len(list_summaries(home)) == 3
        await pilot.press("y")
        await wait_until(pilot, lambda: has_notification(app, "deleted the run 20010102"))
        await wait_until(pilot, lambda: len(page._pane.shown) == 2)
        assert [run.id[:8] for run in list_summaries(home)] == ["20010101", "20010103"]


@pytest.mark.long
async def test_deleting_old_runs_asks(tmp_path, home):
    record_synthetic_run(home, 4, 1.0)
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE, notifications=True) as pilot:
        page = await wait_for_run(pilot)
        await open_dialog(pilot, "P")
        await submit_text(pilot, "many")
        await wait_until(pilot, lambda: "✗ 'many' is not a number of runs" in read_screen(app))
        await submit_text(pilot, "9")
        await wait_until(pilot, lambda: has_notification(app, "no run is older than those"))
        await open_dialog(pilot, "P")
        await submit_text(pilot, "2")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "Delete 2 runs" in read_screen(app)
        await pilot.press("y")
        await wait_until(pilot, lambda: has_notification(app, "deleted 2 of 2 runs"))
        await wait_until(pilot, lambda: len(page._pane.shown) == 2)
        assert [run.id[:8] for run in list_summaries(home)] == ["20010103", "20010104"]


async def test_readonly_changes_nothing(tmp_path, home):
    app = open_results(tmp_path, readonly=True)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("t", "B", "d", "P")
        await pilot.pause()
        assert app.screen is page
