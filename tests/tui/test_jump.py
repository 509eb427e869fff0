"""The jump to a suite, run, host or case by its name."""

import re
import threading
import time
from unittest.mock import patch

from textual.widgets import Input

from spbench.record.runs.folder import RunFolder
from spbench.record.runs.index_file import open_writing
from spbench.tui.context import ConsoleOptions
from spbench.tui.guide.destinations import (
    Destination,
    DestinationKind,
    DestinationReader,
    find_destinations,
)
from spbench.tui.guide.jump_dialog import MAX_ROWS, JumpDialog
from spbench.tui.results.cases_view import CasesView
from spbench.tui.results.runs_pane import RunsPane
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.text import shorten_path
from support.tui.app_driver import DEADLINE, make_console, read_screen, wait_until
from support.tui.suites_page import SECOND_CASE_LINE, get_editor, open_suite, wait_for_cases


def make_destination(name, kind=DestinationKind.SUITE_CASE, location="halo.yaml"):
    return Destination(kind, name, location)


async def jump_to(pilot, text, expected):
    """Open the dialog, type a text, wait for the expected first match, and go there."""
    app = pilot.app
    await pilot.press("colon")
    await wait_until(pilot, lambda: isinstance(app.screen, JumpDialog))
    await wait_until(pilot, lambda: not app.screen._is_reading)
    await pilot.press(*text)
    await wait_until(
        pilot, lambda: [destination.name for destination in app.screen._matches][:1] == [expected]
    )
    await pilot.press("enter")
    await wait_until(pilot, lambda: not isinstance(app.screen, JumpDialog))


def test_better_matches_come_first():
    destinations = [
        make_destination("ab-halo"),
        make_destination("x-h-a-l-o", location="s.yaml"),
        make_destination("halo"),
        make_destination("z"),
    ]
    names = [destination.name for destination in find_destinations(destinations[:3], "halo")]
    assert names == ["halo", "ab-halo"]
    scattered = find_destinations(destinations, "hlo")
    assert [destination.name for destination in scattered] == ["ab-halo", "x-h-a-l-o", "halo"]
    assert find_destinations(destinations, "yaml z") == [destinations[3]]
    assert find_destinations(destinations, "q") == []
    assert find_destinations(destinations, "") == destinations


def test_exact_names_come_first():
    names = ("halo-small", "halo", "my-halo")
    destinations = [make_destination(name) for name in names]
    matches = [destination.name for destination in find_destinations(destinations, "halo")]
    assert matches == ["halo", "halo-small", "my-halo"]


async def test_row_shows_the_benchmark_that_a_word_found(tmp_path):
    case = Destination(
        DestinationKind.SUITE_CASE, "first", "halo.yaml", "suites", benchmark="link.pingpong"
    )
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        app.push_screen(JumpDialog([case], list))
        await wait_until(pilot, lambda: "halo.yaml" in read_screen(app))
        assert "link.pingpong" not in read_screen(app)
        await pilot.press(*"ping")
        await wait_until(pilot, lambda: "link.pingpong in halo.yaml" in read_screen(app))


def test_equal_matches_are_grouped_by_kind_and_shown_cases_come_first():
    suite_case = DestinationKind.SUITE_CASE
    run_case = DestinationKind.RUN_CASE
    destinations = [
        Destination(suite_case, "noise", "suites/a.yaml", "suites", "a.yaml"),
        Destination(run_case, "noise", "run 1", "results", "run 1"),
        Destination(suite_case, "noise", "suites/b.yaml", "suites", "b.yaml"),
        Destination(DestinationKind.SUITE, "noise.yaml", "suites/", "noise.yaml"),
        Destination(suite_case, "noise", "suites/open.yaml", "suites"),
        Destination(run_case, "noise", "run 2", "run", "run 2"),
    ]
    locations = [match.location for match in find_destinations(destinations, "noise")]
    cases = ["suites/open.yaml", "run 2", "suites/a.yaml", "suites/b.yaml", "run 1"]
    assert locations == ["suites/", *cases]


def test_shipped_suites_come_after_equal_matches():
    shipped = Destination(DestinationKind.SUITE, "resnet.yaml", "shipped", "shipped:resnet")
    shipped_case = Destination(
        DestinationKind.SUITE_CASE, "resnet", "shipped/x.yaml", "suites", "shipped:x"
    )
    run = make_destination("20261130-060000-resnet-1a2b", DestinationKind.RUN, "resnet passed")
    own_case = make_destination("resnet-small")
    other = make_destination("my-resnet")
    destinations = [shipped, shipped_case, other, own_case, run]
    assert find_destinations(destinations, "resn") == [
        *(run, own_case),
        *(shipped, shipped_case),
        other,
    ]


async def test_a_narrow_dialog_keeps_file_names(tmp_path):
    location = f"{'folder' * 10}/bringup_gpu.yaml"
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(140, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        app.push_screen(JumpDialog([make_destination("case", location=location)], list))
        await wait_until(pilot, lambda: "…/bringup_gpu.yaml" in read_screen(app))
        assert app.screen.query_one("Vertical").size.width > 110
        wide = read_screen(app).count("folder")
        await pilot.resize_terminal(80, 24)
        await wait_until(pilot, lambda: 0 < read_screen(app).count("folder") < wide)
        assert "…/bringup_gpu.yaml" in read_screen(app)


def test_shortens_the_folder_then_the_start_of_the_name():
    assert shorten_path("a/b.yaml", 8) == "a/b.yaml"
    assert shorten_path("folder/b.yaml", 10) == "fo…/b.yaml"
    assert shorten_path("folder/bringup.yaml", 10) == "…ngup.yaml"
    assert shorten_path("20261130-060638-minimal", 10) == "…8-minimal"


def test_search_is_fast_with_many_destinations():
    cases = [make_destination(f"exchange[size={size},ranks={size % 64}]") for size in range(2_000)]
    runs = [
        make_destination(f"20261130-{n:06}-halo-{n:04x}", DestinationKind.RUN) for n in range(500)
    ]
    started = time.process_time()
    assert find_destinations([*runs, *cases], "exch 1999")[0].name == cases[1999].name
    assert time.process_time() - started < 0.2  # about 5 ms on a quiet machine


async def test_jumps_to_the_run_that_a_filter_hides(tmp_path, home):
    app = make_console(tmp_path, page="results", home=home)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "c Compare" in read_screen(app))
        pane = app.screen.query_one(RunsPane)
        oldest = pane.shown[-1].id
        pane.query_one(Input).value = pane.shown[0].id
        await wait_until(pilot, lambda: len(pane.shown) == 1)
        await jump_to(pilot, f"run {oldest}", oldest)
        await wait_until(pilot, lambda: pane.table.cursor_key == oldest)
        assert len(pane.shown) == 3


async def test_jumps_to_a_run_on_a_page_that_was_not_shown(tmp_path, home):
    app = make_console(tmp_path, page="run", home=home)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        oldest = min(path.name for path in (home / "runs").iterdir())
        await jump_to(pilot, f"run {oldest}", oldest)
        await wait_until(
            pilot,
            lambda: (
                app.current_mode == "results"
                and app.screen.query_one(RunsPane).table.cursor_key == oldest
            ),
        )


async def test_jumps_to_suite_and_case(suite):
    app = make_console(suite.parent.parent, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await jump_to(pilot, "mdup", suite.name)
        await wait_until(pilot, lambda: app.current_mode == "suites")
        await wait_for_cases(pilot)
        await pilot.press("4")
        await wait_until(pilot, lambda: app.current_mode == "hosts")
        await jump_to(pilot, "case secon10", "second[iterations=10]")
        await wait_until(pilot, lambda: app.current_mode == "suites")
        await wait_until(pilot, lambda: app.screen.cases_pane.case.id == "second[iterations=10]")
        editor = get_editor(app)
        await wait_until(pilot, lambda: editor.cursor_line == SECOND_CASE_LINE)
        editor.go_to(1)
        await jump_to(pilot, "case secon10", "second[iterations=10]")
        await wait_until(pilot, lambda: editor.cursor_line == SECOND_CASE_LINE)


def add_to_index(home, run, *cases):
    """Add cases of a run to the index of a home."""
    with open_writing(home) as index:
        values = [(run, case, "passed", "") for case in cases]
        index.executemany("INSERT INTO cases (run, id, status, work) VALUES (?, ?, ?, ?)", values)


def list_cases(reader):
    """Return the cases among the destinations."""
    kinds = (DestinationKind.SUITE_CASE, DestinationKind.RUN_CASE)
    return [entry for entry in reader.read() if entry.kind in kinds]


def test_lists_cases_of_all_suites_and_of_recorded_runs(suite, home):
    older, newer = sorted(path.name for path in (home / "runs").iterdir())[-2:]
    add_to_index(home, older, "both", "old")
    add_to_index(home, newer, "both")
    options = ConsoleOptions(home=home, environ={}, folder=suite.parent.parent)
    reader = DestinationReader(options)
    cases = list_cases(reader)
    assert str(suite) in {case.owner for case in cases if case.name == "first"}
    assert "shipped:halo" in {case.owner for case in cases}
    assert {case.owner for case in find_destinations(cases, "link.pingpong")} >= {str(suite)}
    recorded = {case.name: case.owner for case in cases if case.key == "results"}
    assert recorded == {"both": newer, "old": older}
    with patch("spbench.tui.guide.destinations.load_suite_file", side_effect=AssertionError):
        assert len(reader.read()) >= len(cases)  # unchanged files are not read again


async def test_jumps_to_cases_of_a_closed_suite_and_of_a_run(suite, home):
    run = max(path.name for path in (home / "runs").iterdir())
    app = make_console(suite.parent.parent, page="results", home=home)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: app.current_mode == "results")
        page = app.screen
        await wait_until(pilot, lambda: page.query(CasesView))
        await wait_until(pilot, lambda: page.query_one(CasesView).selected_case() is not None)
        case = list(page.query_one(CasesView).run.cases)[-1]
        add_to_index(home, run, case)
        await jump_to(pilot, f"second[iterations=10] {suite.name}", "second[iterations=10]")
        await wait_until(pilot, lambda: app.current_mode == "suites")
        await wait_until(pilot, lambda: app.screen.cases_pane.case is not None)
        await wait_until(pilot, lambda: app.screen.cases_pane.case.id == "second[iterations=10]")
        await jump_to(pilot, f"case {case} {run}", case)
        await wait_until(pilot, lambda: app.current_mode == "results")
        await wait_until(pilot, lambda: page.query_one(CasesView).selected_case().id == case)
        assert page.query_one(CasesView).run.summary.id == run


async def test_lists_a_case_of_the_watched_run_once(tmp_path, home):
    run = RunFolder(max((home / "runs").iterdir()))
    app = make_console(tmp_path, home=home, recorded=run, speed=None)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: app.context.feed is not None and app.context.feed.ended)
        name = next(iter(app.context.feed.state.cases))
        add_to_index(home, run.id, name)
        app.jump_to(f"case of run {name}")
        await wait_until(pilot, lambda: isinstance(app.screen, JumpDialog))
        await wait_until(pilot, lambda: not app.screen._is_reading)
        matches = app.screen._matches
        assert [case.key for case in matches if run.id == case.owner] == ["run"]
        assert re.search(rf"case of run +{re.escape(name)} +{run.id[:12]}", read_screen(app))


async def test_lists_the_cases_of_an_opened_shipped_suite_once(tmp_path):
    app = make_console(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await jump_to(pilot, "suite links", "links.yaml")
        await wait_for_cases(pilot, 2)
        names = [case.id for case in app.screen.cases_pane.cases.rows.cases]
        app.jump_to()
        await wait_until(pilot, lambda: isinstance(app.screen, JumpDialog))
        await wait_until(pilot, lambda: not app.screen._is_reading)
        listed = [case.name for case in app.screen._matches if "links.yaml" in case.location]
        assert listed == names


async def test_jumps_to_a_host(tmp_path):
    (tmp_path / "a.hosts").write_text("node01\nnode02\n")
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await jump_to(pilot, "node02", "node02")
        await wait_until(pilot, lambda: app.current_mode == "hosts")
        await wait_until(pilot, lambda: app.screen.query_one("#hosts").cursor_key == "node02")


async def test_escape_stays(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("colon")
        await wait_until(pilot, lambda: isinstance(app.screen, JumpDialog))
        await pilot.press("escape")
        await wait_until(pilot, lambda: not isinstance(app.screen, JumpDialog))
        assert app.current_mode == "run"


async def test_cursor_keeps_its_destination_when_others_are_read(suite):
    release = threading.Event()
    suites = [make_destination(f"{number}.yaml", DestinationKind.SUITE) for number in range(9)]
    cases = [make_destination(f"case-{number}") for number in range(3)]

    def read():
        release.wait(DEADLINE)
        return suites

    app = make_console(suite.parent.parent, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        dialog = JumpDialog(cases, read)
        app.push_screen(dialog)
        await wait_until(pilot, lambda: "case-2" in read_screen(app))
        await pilot.press("down")
        release.set()
        await wait_until(pilot, lambda: not dialog._is_reading and "8.yaml" in read_screen(app))
        assert dialog._get_choice() == cases[1]


async def test_lists_the_first_of_many_matches(tmp_path):
    cases = [make_destination(f"case-{number}") for number in range(20 * MAX_ROWS)]
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        app.push_screen(JumpDialog(cases, list))
        await wait_until(pilot, lambda: "first 500 of 10,000  Enter" in read_screen(app))
        assert app.screen.query_one(LineTable).row_count == MAX_ROWS
        await pilot.press(*"case-9999")
        await wait_until(pilot, lambda: "1 of 10,000  Enter" in read_screen(app))


async def test_slash_in_the_files_lists_suites_only(suite):
    app = open_suite(suite)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f2")
        await wait_until(pilot, lambda: "/ Find" in read_screen(app))
        await pilot.press("slash")
        await wait_until(pilot, lambda: isinstance(app.screen, JumpDialog))
        await wait_until(pilot, lambda: not app.screen._is_reading)
        kinds = {destination.kind for destination in app.screen._matches}
        assert kinds == {DestinationKind.SUITE}
        await pilot.press(*"links", "enter")
        await wait_until(pilot, lambda: "name: links" in get_editor(app).text)
