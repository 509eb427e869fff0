"""The console in a folder without suites."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Input

from spbench.engine.plan import Request
from spbench.engine.run_estimate import CaseEstimate, EstimateSource, RunEstimate
from spbench.record.runs.playback import find_demo_run
from spbench.suites import shipped
from spbench.suites.shipped import count_missing, list_shipped_suites
from spbench.tui.context import ConsoleOptions
from spbench.tui.guide.destinations import DestinationReader
from spbench.tui.suites.cases_pane import NO_CASE, CasesPane
from spbench.tui.suites.editor import SuiteEditor
from spbench.tui.suites.start.file_facts import read_file_facts, render_file_facts
from spbench.tui.suites.start.last_opened import (
    FILE_NAME as LAST_SUITES,
)
from spbench.tui.suites.start.last_opened import (
    MAX_FOLDERS,
    find_last_suite,
    save_last_suite,
)
from spbench.tui.suites.tree import FIRST_SUITE, SuiteTree, list_files
from spbench_core.catalog import BENCHMARKS
from support.paths import SUITES
from support.tui.app_driver import SIZES, make_console, read_screen, wait_until
from support.tui.suites_page import RecordingApp, get_editor, list_messages


def make_empty_console(folder, **options):
    environ = {"SPBENCH_CONFIG": str(folder / "console.yaml")}
    return RecordingApp(
        ConsoleOptions(home=folder / "home", environ=environ, folder=folder, **options)
    )


def find_selected_path(app):
    """Return the file at the cursor of the list; None before the page has one."""
    nodes = [tree.cursor_node for tree in app.screen.query(SuiteTree)]
    return nodes[0].data if nodes and nodes[0] is not None else None


async def move_to_suite(pilot, name):
    """Move the cursor to a shipped suite."""
    tree = pilot.app.screen.query_one(SuiteTree)
    await wait_until(pilot, lambda: find_selected_path(pilot.app) is not None)
    index = [path.stem for path in list_shipped_suites().values()].index(name)
    await pilot.press("home", *["down"] * index)
    await wait_until(pilot, lambda: find_selected_path(pilot.app).stem == name)
    assert pilot.app.focused is tree


@pytest.mark.parametrize("size", SIZES)
async def test_first_start_explains_spbench_and_runs_in_two_keys(tmp_path, size):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: "spbench measures how" in read_screen(app))
        await wait_until(pilot, lambda: "shipped with spbench" in read_screen(app))
        app.screen.query_one(SuiteTree).focus()
        await wait_until(pilot, lambda: app.screen.query_one(SuiteTree).cursor_node is not None)
        await pilot.press("enter")
        await wait_until(pilot, lambda: "schema: spbench.suite/1" in get_editor(app).text)
        path = app.screen.text_pane.document.path
        assert path.parent == tmp_path / "suites"
        assert not path.exists()
        assert app.screen.describe_unsaved() is None
        await pilot.press("f5")
        await wait_until(pilot, lambda: app.started)
        assert path.read_text() == get_editor(app).text


@pytest.mark.parametrize("size", SIZES)
async def test_f5_runs_the_selected_file_of_the_start_page(tmp_path, size):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: find_selected_path(app) is not None)
        await wait_until(pilot, lambda: "F5 Run" in read_screen(app))
        assert "run the selected suite" in read_screen(app)
        await pilot.press("f5")
        await wait_until(pilot, lambda: app.started)
        path = tmp_path / "suites" / f"{FIRST_SUITE}.yaml"
        assert app.started == [(str(path),)]
        assert path.read_text() == get_editor(app).text


async def test_f5_without_a_selected_file_names_what_is_missing(tmp_path):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: find_selected_path(app) is not None)
        tree = app.screen.query_one(SuiteTree)
        tree.move_cursor(tree.root.children[0])
        await wait_until(pilot, lambda: find_selected_path(app) is None)
        await pilot.press("f5")
        await wait_until(
            pilot, lambda: "not started: select a suite file first" in list_messages(app)
        )
        assert not app.started


@pytest.mark.parametrize("size", SIZES)
async def test_start_page_describes_the_file_under_the_cursor(tmp_path, size):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: "20 on 2 ranks" in read_screen(app))
        assert "Each benchmark once, small, on two ranks" in read_screen(app)
        assert "5 Plan" in read_screen(app)
        tree = app.screen.query_one(SuiteTree)
        await move_to_suite(pilot, "gpu")
        await wait_until(pilot, lambda: re.search(r"needs +a GPU", read_screen(app)))
        assert get_editor(app).text == ""
        assert not app.screen.query_one(CasesPane).region
        assert app.focused is tree


async def test_start_page_says_what_the_cases_measure(tmp_path):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(160, 48)) as pilot:
        await wait_until(pilot, lambda: "what it measures" in read_screen(app))
        assert BENCHMARKS["halo.exchange"].summary[:30] in read_screen(app)


def test_duration_of_a_file_says_when_unknown_cases_will_be_known(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "schema: spbench.suite/1\nname: a\ncases:\n  - {name: c, benchmark: memory.copy}\n"
    )
    request = Request(suite=path, home=tmp_path, environ={})
    estimate = RunEstimate({"c": CaseEstimate(None, EstimateSource.UNKNOWN)})
    facts = replace(read_file_facts(request), estimate=estimate)
    text = render_file_facts(facts, 80).plain
    assert "duration  unknown until a first run" in text


async def test_start_page_says_that_a_run_copies_a_shipped_suite(tmp_path):
    (tmp_path / "suites").mkdir()
    shutil.copy(SUITES / "ci.yaml", tmp_path / "suites" / "mine.yaml")
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: find_selected_path(app) is not None)
        await pilot.press("down", "down")
        await wait_until(pilot, lambda: "F5 writes a copy to suites/" in read_screen(app))
        await pilot.press("home")
        await wait_until(pilot, lambda: "F5 writes a copy to suites/" not in read_screen(app))


async def test_start_page_shows_the_errors_of_a_file(tmp_path):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "broken.yaml").write_text("schema: spbench.suite/1\nname: [\n")
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "error: Enter opens the first" in read_screen(app))


async def test_cursor_is_on_the_suite_that_was_last_opened(tmp_path):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: find_selected_path(app) is not None)
        assert "last opened" not in read_screen(app)
        await move_to_suite(pilot, "halo")
        await pilot.press("enter")
        await wait_until(pilot, (tmp_path / LAST_SUITES).is_file)
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: find_selected_path(app) is not None)
        assert find_selected_path(app) == SUITES / "halo.yaml"  # its copy was not saved
        assert "last opened: halo.yaml" in read_screen(app)
        await pilot.press("enter")
        await wait_until(pilot, lambda: "schema: spbench.suite/1" in get_editor(app).text)
        await pilot.press("ctrl+s")
        await wait_until(pilot, (tmp_path / "suites" / "halo.yaml").is_file)
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: find_selected_path(app) is not None)
        assert find_selected_path(app) == tmp_path / "suites" / "halo.yaml"


@pytest.mark.parametrize("content", ["[1]", "{", '{"FOLDER": "/gone.yaml", "other": 1}'])
def test_unusable_memory_of_suites_is_ignored(tmp_path, content):
    environ = {"SPBENCH_CONFIG": str(tmp_path / "console.yaml")}
    (tmp_path / LAST_SUITES).write_text(content.replace("FOLDER", str(tmp_path)))
    assert find_last_suite(environ, tmp_path) is None
    suite = tmp_path / "own.yaml"
    suite.touch()
    save_last_suite(environ, tmp_path, suite)
    assert find_last_suite(environ, tmp_path) == suite


def test_remembers_the_folders_used_last(tmp_path):
    environ = {"SPBENCH_CONFIG": str(tmp_path / "console.yaml")}
    for number in range(MAX_FOLDERS + 1):
        save_last_suite(environ, Path(f"/folder-{number}"), tmp_path)
    assert find_last_suite(environ, Path("/folder-0")) is None
    assert find_last_suite(environ, Path(f"/folder-{MAX_FOLDERS}")) == tmp_path


async def test_readonly_console_remembers_no_suite(tmp_path):
    app = make_empty_console(tmp_path, readonly=True, suite=Path("shipped:halo"))
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "halo.yaml" in read_screen(app))
        await wait_until(pilot, lambda: "schema: spbench.suite/1" in get_editor(app).text)
        await pilot.press("tab")
    assert not (tmp_path / LAST_SUITES).exists()


async def test_key_plays_the_demo_while_no_suite_is_open(tmp_path):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "Play demo" in read_screen(app))
        await pilot.press("p")
        await wait_until(pilot, lambda: app.current_mode == "run")
        assert app.context.feed.folder.id == find_demo_run().id


async def test_missing_suite_leads_to_the_start_page(tmp_path):
    app = make_empty_console(tmp_path, suite=tmp_path / "missing.yaml")
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "open the selected suite" in read_screen(app))


async def test_key_writes_all_suites_after_a_question_unless_readonly(tmp_path):
    count = count_missing(tmp_path)
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "shipped with spbench" in read_screen(app))
        await pilot.press("I")
        await wait_until(pilot, lambda: f"Copy {count} files into" in read_screen(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: "Cancel (n)" not in read_screen(app))
        assert not (tmp_path / "suites").exists()
        await pilot.press("I")
        await wait_until(pilot, lambda: f"Copy {count} files into" in read_screen(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: (tmp_path / "suites" / "halo.yaml").exists())
        await wait_until(pilot, lambda: "shipped with spbench" not in read_screen(app))
        await pilot.press("I")  # nothing to copy, so that there is no question
        await wait_until(
            pilot, lambda: f"kept {count} existing files" in "".join(list_messages(app))
        )
    readonly = tmp_path / "readonly"
    readonly.mkdir()
    app = make_empty_console(readonly, readonly=True)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "shipped with spbench" in read_screen(app))
        await pilot.press("I")
        assert not (readonly / "suites").exists()


async def test_suites_page_shows_the_suite_of_the_demo(tmp_path):
    demo = find_demo_run()
    app = make_console(
        tmp_path, suite=demo.path / "suite.yaml", recorded=demo, speed=None, page="run"
    )
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_until(pilot, lambda: app.current_mode == "run")
        await pilot.press("1")
        await wait_until(pilot, lambda: "demo.yaml" in read_screen(app))
        assert get_editor(app).text == (demo.path / "suite.yaml").read_text()


def list_names(tree):
    return [path.name for path in tree._files]


async def test_unwritten_suite_keeps_the_others_listed(tmp_path):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "shipped with spbench" in read_screen(app))
        await wait_until(pilot, lambda: find_selected_path(app) is not None)
        await pilot.press("enter")
        await wait_until(pilot, lambda: "schema: spbench.suite/1" in get_editor(app).text)
        await wait_until(pilot, lambda: re.search(r"smoke.yaml +20 cases", read_screen(app)))
        assert "shipped with spbench" in read_screen(app)
        assert "1 error" not in read_screen(app)
        assert "a copy: F5 or Ctrl+S writes suites/smoke.yaml" in read_screen(app)
        copy = tmp_path / "suites" / "smoke.yaml"
        tree = app.screen.query_one(SuiteTree)
        assert list_names(tree).count("smoke.yaml") == 1
        await pilot.press("e", "#")
        await wait_until(pilot, lambda: copy in tree._files)
        assert "not saved" in tree._format_label(copy)
        await pilot.press("ctrl+z")
        await wait_until(pilot, lambda: copy not in tree._files)
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: copy in tree._files and "a copy" not in read_screen(app))
        assert "not saved" not in read_screen(app)
        assert (tmp_path / "suites" / "smoke.yaml").is_file()
        assert "shipped with spbench" in read_screen(app)


def test_lists_shipped_suites_without_a_copy_last(tmp_path):
    shipped_files = tuple(list_shipped_suites().values())
    assert list_files(tmp_path) == {SUITES: shipped_files}
    copy = tmp_path / "suites" / "halo.yaml"
    copy.parent.mkdir()
    shutil.copy(SUITES / "halo.yaml", copy)
    expected = tuple(path for path in shipped_files if path.name != "halo.yaml")
    assert list(list_files(tmp_path).items()) == [(copy.parent, (copy,)), (SUITES, expected)]


def test_finds_shipped_suites_next_to_own_ones(tmp_path):
    (tmp_path / "suites").mkdir()
    shutil.copy(SUITES / "halo.yaml", tmp_path / "suites")
    options = ConsoleOptions(home=tmp_path / "home", environ={}, folder=tmp_path)
    destinations = DestinationReader(options).read()
    keys = {entry.name: entry.key for entry in destinations}
    assert keys["halo.yaml"] == str(tmp_path / "suites" / "halo.yaml")
    assert keys["smoke.yaml"] == "shipped:smoke"


async def test_suites_in_a_virtual_environment_count_as_shipped(tmp_path, monkeypatch):
    package = tmp_path / ".venv" / "spbench"
    shutil.copytree(SUITES, package / "shipped" / "suites")
    monkeypatch.setattr(shipped, "_PACKAGE", package)
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "shipped with spbench" in read_screen(app))
        await wait_until(pilot, lambda: find_selected_path(app) is not None)
        assert find_selected_path(app).stem == FIRST_SUITE


async def test_home_selects_the_first_suite(tmp_path):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: app.screen.query(SuiteTree))
        await wait_until(pilot, lambda: find_selected_path(app) is not None)
        app.screen.query_one(SuiteTree).focus()
        await pilot.press("end", "home")
        assert find_selected_path(app) == next(iter(list_shipped_suites().values()))


async def test_copying_without_a_launch_line_reports_the_reason(tmp_path):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: app.screen.query(SuiteTree))
        await wait_until(pilot, lambda: find_selected_path(app) is not None)
        await pilot.press("y")
        await wait_until(pilot, lambda: any(NO_CASE in text for text in list_messages(app)))


async def test_suite_opened_by_name_is_a_copy(tmp_path):
    app = make_empty_console(tmp_path, suite=Path("shipped:halo"))
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: app.screen.query(SuiteEditor) and get_editor(app).text)
        assert app.screen.text_pane.document.path == tmp_path / "suites" / "halo.yaml"
        assert get_editor(app).text == (SUITES / "halo.yaml").read_text()
        assert not (tmp_path / "suites").exists()


async def test_keys_keep_their_meaning_without_an_open_suite(tmp_path):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "shipped with spbench" in read_screen(app))
        tree = app.screen.query_one(SuiteTree)
        await wait_until(pilot, lambda: app.focused is tree)
        for key in ("ctrl+s", "ctrl+z"):  # there is nothing to save or to undo
            await pilot.press(key)
        assert app.focused is tree
        await pilot.press("shift+tab")
        assert app.focused is not tree
        await pilot.press("f4")
        await wait_until(
            pilot, lambda: any("is open: press F4" in message for message in list_messages(app))
        )
        assert not (tmp_path / "suites").exists()
        await pilot.press("ctrl+n")
        await wait_until(pilot, lambda: "File of the new suite:" in read_screen(app))


@pytest.mark.parametrize("typed", ["my.yaml", "suites/my.yaml"])
async def test_name_of_a_new_suite_continues_the_folder(tmp_path, typed):
    (tmp_path / "suites").mkdir()
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "shipped with spbench" in read_screen(app))
        await pilot.press("ctrl+n")
        await wait_until(pilot, lambda: isinstance(app.focused, Input))
        await wait_until(pilot, lambda: app.focused.value == "suites/suite.yaml")
        await pilot.press(*typed, "enter")
        await wait_until(pilot, lambda: app.screen.text_pane.document is not None)
        assert app.screen.text_pane.document.path == tmp_path / "suites" / "my.yaml"


@pytest.mark.long
async def test_palette_writes_the_suites(tmp_path):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "shipped with spbench" in read_screen(app))
        await pilot.press("ctrl+p", *"copy suites")
        await wait_until(
            pilot, lambda: "Copy suites of spbench into this folder" in read_screen(app)
        )
        await pilot.press("enter")
        await wait_until(pilot, lambda: "files into" in read_screen(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: (tmp_path / "hostfiles" / "slurm.hosts").is_file())


async def test_numbers_of_cases_are_aligned(tmp_path):
    app = make_empty_console(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: len(re.findall(r"\d cases? +│", read_screen(app))) > 10)
        lines = read_screen(app).splitlines()
        ends = {match.end(1) for line in lines if (match := re.search(r"(yaml +\d+) case", line))}
        assert len(ends) == 1
        assert "121 cases " in read_screen(app)
        assert "Reload" not in read_screen(app)


@pytest.mark.parametrize(("size", "shown"), [((120, 40), 16), ((200, 60), 28)])
async def test_long_name_of_a_file_does_not_hide_its_number_of_cases(tmp_path, size, shown):
    name = "measurements-of-the-network.yaml"
    suite = (SUITES / "smoke.yaml").read_text()
    (tmp_path / name).write_text(suite)
    app = make_console(tmp_path)
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: f"{name[:shown]}…  20 cases" in read_screen(app))


@pytest.mark.parametrize("key", ["y", "ctrl+g", "ctrl+s"])
async def test_keys_of_cases_do_no_harm_without_a_suite(tmp_path, key):
    app = make_console(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "First steps" in read_screen(app))
        await pilot.press(key)
        await pilot.app.workers.wait_for_complete()
        assert "First steps" in read_screen(app)
