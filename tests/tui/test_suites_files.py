"""Suite files of the Suites page: search, documents, and the text editor."""

import os

import pytest
from textual.app import App

from spbench.errors import FailedRunError, UsageError
from spbench.suites.loader import check_text
from spbench.suites.pipe_files import expand_suite_path
from spbench.tui.suites.document import SuiteDocument, make_document, open_document
from spbench.tui.suites.editor import SuiteEditor
from spbench.tui.suites.tree import FileCheck, check_file, find_same_file, find_suites
from support.tui.app_driver import wait_until

SUITE = "schema: spbench.suite/1\nname: a\ncases:\n  - {name: c, benchmark: memory.copy}\n"


def write_suite(folder, name, text=SUITE):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_finds_each_suite_once_by_its_first_lines(tmp_path):
    nested = write_suite(tmp_path, "suites/deep/inner.yml", f"# words\n{SUITE}")
    top_level = write_suite(tmp_path, "own.yaml")
    write_suite(tmp_path, "hosts.yaml", "hosts: []\n")
    write_suite(tmp_path, "suites/notes.txt")
    (tmp_path / "suites" / "link.yaml").symlink_to(top_level)
    assert find_suites(tmp_path) == {
        tmp_path / "suites": (tmp_path / "suites" / "link.yaml",),
        tmp_path / "suites" / "deep": (nested,),
    }
    other_file = write_suite(tmp_path / "elsewhere", "far.yaml", "no suite")
    neighbour = write_suite(tmp_path / "elsewhere", "near.yaml")
    suites = find_suites(tmp_path / "suites", other_file)
    assert suites[tmp_path / "elsewhere"] == (other_file, neighbour)


def test_relative_and_absolute_paths_are_the_same_file(tmp_path, monkeypatch):
    path = write_suite(tmp_path, "a.yaml")
    monkeypatch.chdir(tmp_path)
    [[relative]] = find_suites(path.relative_to(tmp_path).parent).values()
    assert not relative.is_absolute()
    assert find_same_file([relative], path) == relative
    assert find_same_file([relative], None) is None
    assert open_document(relative).is_current(path)


def test_check_counts_cases_and_errors(tmp_path):
    assert check_file(write_suite(tmp_path, "a.yaml")) == FileCheck(1, 0)
    assert check_file(
        write_suite(tmp_path, "b.yaml", SUITE.replace("memory.copy", "x"))
    ) == FileCheck(0, 1)
    assert check_file(tmp_path / "none.yaml") == FileCheck(0, 1)


def test_saving_follows_links_and_keeps_permissions(tmp_path):
    path = write_suite(tmp_path, "a.yaml")
    path.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    document = open_document(link)
    saved = document.save("other\n")
    assert (path.read_text(), saved.stored) == ("other\n", "other\n")
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640


def test_detects_changes_by_other_programs(tmp_path):
    path = write_suite(tmp_path, "a.yaml")
    document = open_document(path)
    assert not document.is_stale()
    os.utime(path, (1, 1))
    assert not document.is_stale()
    path.write_text("other")
    assert document.is_stale()
    assert not document.is_current(path)
    path.unlink()
    assert document.is_stale()
    new = make_document(path)
    assert not new.is_stale()
    path.write_text("theirs")
    assert new.is_stale()


def test_rejects_files_that_cannot_be_opened_or_written(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        open_document(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match=r"end it with \.yaml"):
        expand_suite_path(tmp_path, "a.txt")
    with pytest.raises(UsageError, match="exists already"):
        make_document(write_suite(tmp_path, "a.yaml"))
    (tmp_path / "file").touch()
    with pytest.raises(FailedRunError, match="cannot write"):
        SuiteDocument(tmp_path / "file" / "a.yaml", None).save("text")


@pytest.mark.parametrize("name", ["halo", "two words", "1", "übung", "--"])
def test_new_suite_lacks_only_cases(tmp_path, name):
    document = make_document(tmp_path / f"{name}.yaml")
    messages = [error.message for error in check_text(document.text, document.path).diagnostics]
    assert messages == ["cases must be a list, not empty"]


class EditorApp(App):
    def compose(self):
        yield SuiteEditor("one: 1\r\ntwo: 2\r\n")


async def test_replacing_text_is_one_undo_step():
    app = EditorApp()
    async with app.run_test(size=(40, 10)):
        editor = app.query_one(SuiteEditor)
        for text in ("one: 1\r\nnew: 3\r\ntwo: 2\r\n", "two: 2\r\n", "", "one: 1\r\ntwo: 2"):
            before = editor.text
            editor.replace_text(text, 2, "text replaced")
            assert editor.text == text
            assert editor.cursor_location == (min(1, editor.document.line_count - 1), 0)
            editor.undo()
            assert editor.text == before


async def test_problem_lines_have_a_sign_and_a_colour():
    app = EditorApp()
    async with app.run_test(size=(40, 10)) as pilot:
        editor = app.query_one(SuiteEditor)
        await pilot.pause()
        editor.mark_problems({2: 6, 9: 1})
        lines = ["".join(segment.text for segment in editor.render_line(y)) for y in (0, 1)]
        assert lines[0].startswith("1  one: 1")
        assert lines[1].startswith("2✗ two: 2")
        underlined = [segment.text for segment in editor.render_line(1) if segment.style.underline]
        assert underlined == ["2"]
        backgrounds = [[s.style.bgcolor for s in editor.render_line(y)][-1] for y in (0, 1)]
        assert backgrounds[0] != backgrounds[1]
        editor.mark_problems({})
        assert "✗" not in "".join(segment.text for segment in editor.render_line(1))


async def test_cut_line_has_a_sign_unless_the_cursor_is_there():
    app = EditorApp()
    async with app.run_test(size=(40, 10)) as pilot:
        editor = app.query_one(SuiteEditor)
        editor.load_text("a: " + "x" * 60 + "\nb: 1\n")
        await pilot.pause()

        def read_line(y):
            width = editor.scrollable_content_region.width
            return "".join(s.text for s in editor.render_line(y).crop(0, width))

        assert read_line(0).endswith("x»")
        assert "»" not in read_line(1)
        last_column = editor.scrollable_content_region.width - editor.gutter_width - 1
        editor.move_cursor((0, last_column))
        editor.scroll_to(x=0, animate=False, immediate=True)
        assert "»" not in read_line(0)
        editor.move_cursor((0, 63))
        await wait_until(pilot, lambda: editor.scroll_offset.x > 0 and "»" not in read_line(0))


class EmptyEditorApp(App):
    def compose(self):
        yield SuiteEditor("cases:")


async def test_keys_of_the_editor_follow_the_indentation():
    app = EmptyEditorApp()
    async with app.run_test(size=(40, 10)) as pilot:
        editor = app.query_one(SuiteEditor)
        editor.focus()
        await pilot.press(
            "ctrl+end", "enter", "minus", "space", "a", "colon", "1", "enter", *"np", "colon", "2"
        )
        await pilot.press("enter", "backspace")
        assert editor.text == "cases:\n  - a:1\n    np:2\n  "
        await pilot.press("tab")
        assert editor.text.endswith("\n    ")
        await pilot.press("shift+tab", "shift+tab", "x")
        assert editor.text.endswith("\nx")
        await pilot.press("ctrl+home")
        assert editor.cursor_location == (0, 0)
        editor.select_all()
        await pilot.press("tab")
        assert editor.text == "  cases:\n    - a:1\n      np:2\n  x"
        await pilot.press("shift+tab")
        assert editor.text == "cases:\n  - a:1\n    np:2\nx"
        editor.undo()
        assert editor.text.startswith("  cases:")
