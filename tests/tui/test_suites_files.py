"""Suite files as the page finds, reads and writes them, and the editor that changes their text."""

import os

import pytest
from textual.app import App

from spbench.errors import FailedRunError, UsageError
from spbench.suites.loader import check_text
from spbench.tui.suites.document import SuiteDocument, new_document, open_document
from spbench.tui.suites.editor import SuiteEditor
from spbench.tui.suites.tree import FileCheck, check_file, find_same_file, find_suites

SUITE = "schema: spbench.suite/1\nname: a\ncases:\n  - {name: c, benchmark: memory.copy}\n"


def put(folder, name, text=SUITE):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_suites_are_found_by_how_they_begin_each_once(tmp_path):
    inner = put(tmp_path, "suites/deep/inner.yml", f"# words\n{SUITE}")
    own = put(tmp_path, "own.yaml")
    put(tmp_path, "hosts.yaml", "hosts: []\n")
    put(tmp_path, "suites/notes.txt")
    (tmp_path / "suites" / "link.yaml").symlink_to(own)
    assert find_suites(tmp_path) == {
        tmp_path / "suites": (tmp_path / "suites" / "link.yaml",),
        tmp_path / "suites" / "deep": (inner,),
    }
    far = put(tmp_path / "elsewhere", "far.yaml", "no suite")
    near = put(tmp_path / "elsewhere", "near.yaml")
    found = find_suites(tmp_path / "suites", far)
    assert found[tmp_path / "elsewhere"] == (far, near)


def test_a_file_is_known_however_it_is_named(tmp_path, monkeypatch):
    path = put(tmp_path, "a.yaml")
    monkeypatch.chdir(tmp_path)
    [[named]] = find_suites(path.relative_to(tmp_path).parent).values()
    assert not named.is_absolute()
    assert find_same_file([named], path) == named
    assert find_same_file([named], None) is None
    assert open_document(named).is_current(path)


def test_what_the_loader_says_of_a_file(tmp_path):
    assert check_file(put(tmp_path, "a.yaml")) == FileCheck(1, 0)
    assert check_file(put(tmp_path, "b.yaml", SUITE.replace("memory.copy", "x"))) == FileCheck(0, 1)
    assert check_file(tmp_path / "none.yaml") == FileCheck(0, 1)


def test_saving_goes_through_links_and_keeps_permissions(tmp_path):
    path = put(tmp_path, "a.yaml")
    path.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    document = open_document(link)
    saved = document.save("other\n")
    assert (path.read_text(), saved.stored) == ("other\n", "other\n")
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640


def test_another_programs_change_is_noticed(tmp_path):
    path = put(tmp_path, "a.yaml")
    document = open_document(path)
    assert not document.is_stale()
    os.utime(path, (1, 1))
    assert not document.is_stale()
    path.write_text("other")
    assert document.is_stale()
    assert not document.is_current(path)
    path.unlink()
    assert document.is_stale()
    fresh = new_document(path)
    assert not fresh.is_stale()
    path.write_text("theirs")
    assert fresh.is_stale()


def test_what_cannot_be_opened_made_or_written(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        open_document(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match=r"end it with \.yaml"):
        new_document(tmp_path / "a.txt")
    with pytest.raises(UsageError, match="is there already"):
        new_document(put(tmp_path, "a.yaml"))
    (tmp_path / "file").touch()
    with pytest.raises(FailedRunError, match="cannot write"):
        SuiteDocument(tmp_path / "file" / "a.yaml", None).save("text")


@pytest.mark.parametrize("name", ["halo", "two words", "1", "übung", "--"])
def test_a_new_suite_lacks_nothing_but_its_cases(tmp_path, name):
    document = new_document(tmp_path / f"{name}.yaml")
    found = [found.message for found in check_text(document.text, document.path).diagnostics]
    assert found == ["cases must be a list, not empty"]


class EditorApp(App):
    def compose(self):
        yield SuiteEditor("one: 1\r\ntwo: 2\r\n")


async def test_a_change_is_one_step_keeps_the_ends_of_lines_and_goes_to_its_line():
    app = EditorApp()
    async with app.run_test(size=(40, 10)):
        editor = app.query_one(SuiteEditor)
        for text in ("one: 1\r\nnew: 3\r\ntwo: 2\r\n", "two: 2\r\n", "", "one: 1\r\ntwo: 2"):
            before = editor.text
            editor.replace_text(text, 2)
            assert editor.text == text
            assert editor.cursor_location == (min(1, editor.document.line_count - 1), 0)
            editor.undo()
            assert editor.text == before


async def test_lines_are_marked_by_a_sign_as_well_as_by_colour():
    app = EditorApp()
    async with app.run_test(size=(40, 10)) as pilot:
        editor = app.query_one(SuiteEditor)
        await pilot.pause()
        editor.mark_problems({2: 6, 9: 1})
        lines = ["".join(segment.text for segment in editor.render_line(y)) for y in (0, 1)]
        assert lines[0].startswith("1  one: 1")
        assert lines[1].startswith("2✗ two: 2")
        marked = [segment.text for segment in editor.render_line(1) if segment.style.underline]
        assert marked == ["2"]
        grounds = [[s.style.bgcolor for s in editor.render_line(y)][-1] for y in (0, 1)]
        assert grounds[0] != grounds[1]
        editor.mark_problems({})
        assert "✗" not in "".join(segment.text for segment in editor.render_line(1))
