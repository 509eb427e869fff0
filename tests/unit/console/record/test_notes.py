"""Notes and tags of runs."""

import pytest

from spbench.errors import FailedRunError, UsageError
from spbench.record.runs import history, notes
from spbench.record.runs.history import list_summaries, read_summary, select_runs, update_known_runs
from spbench.record.runs.notes import (
    FILE,
    MAX_TEXT,
    NO_NOTE,
    RunNote,
    change_tags,
    check_tag,
    parse_note,
    read_note,
    write_note,
)
from unit.events import recorded, whole_run


@pytest.fixture
def folder(tmp_path):
    return recorded(tmp_path / "home", whole_run(), verdict="passed", exit_code=0)


def test_a_line_is_read_as_tags_and_text():
    assert parse_note(" new driver #rack2  #fast ") == RunNote("new driver", ("fast", "rack2"))
    assert parse_note("case # 3 of #1/2") == RunNote("case # 3 of #1/2"), "these are no tags"
    assert parse_note("") == NO_NOTE
    assert parse_note(str(RunNote("new driver", ("fast",)))) == RunNote("new driver", ("fast",))


@pytest.mark.parametrize("line", ["x" * (MAX_TEXT + 1), "a \x1b[31m b"])
def test_what_is_too_long_or_not_printable_is_refused(line):
    with pytest.raises(UsageError, match="a note"):
        parse_note(line)


def test_a_note_is_kept_in_the_runs_folder_and_an_empty_one_removed(folder):
    assert read_note(folder) == NO_NOTE
    write_note(folder, RunNote("slow node", ("rack2",)))
    assert read_note(folder) == RunNote("slow node", ("rack2",))
    write_note(folder, NO_NOTE)
    assert not (folder.path / FILE).exists()
    write_note(folder, NO_NOTE)


@pytest.mark.parametrize(
    "content", ["torn", "[]", '{"note": 3, "tags": 4}', '{"note": null, "tags": ["a b", 1]}']
)
def test_a_damaged_note_counts_as_none(folder, content):
    (folder.path / FILE).write_text(content)
    assert read_note(folder) == NO_NOTE


def test_a_note_that_cannot_be_written_is_told(folder):
    (folder.path / FILE).mkdir()
    for note in (NO_NOTE, RunNote("x")):
        with pytest.raises(FailedRunError, match=r"note\.json"):
            write_note(folder, note)


def test_tags_are_added_and_taken_away():
    note = change_tags(RunNote("x", ("a", "b")), ["c", "a"], ["b"])
    assert note == RunNote("x", ("a", "c"))
    assert check_tag("#rack2") == "rack2"
    for wrong in ("", "#", "a b", "-x", "x" * 41):
        with pytest.raises(UsageError, match="cannot be a tag"):
            check_tag(wrong)


def test_lists_have_the_notes_as_they_are_now(tmp_path, folder):
    home = tmp_path / "home"
    known = update_known_runs(home)
    write_note(folder, RunNote("slow node", ("rack2",)))
    for found in (update_known_runs(home, known), update_known_runs(home)):
        assert [run.note.text for _, run in found.values()] == ["slow node"]
    assert read_summary(folder).note.tags == ("rack2",)
    write_note(folder, NO_NOTE)
    assert [run.note for _, run in update_known_runs(home, found).values()] == [NO_NOTE]


def test_a_filter_finds_tags_and_words_of_a_note(tmp_path, folder):
    write_note(folder, RunNote("slow node", ("rack2",)))
    runs = list_summaries(tmp_path / "home")
    for text, found in (("tag:rack2", 1), ("tag:rack", 0), ("slow", 1), ("#rack2", 1), ("fast", 0)):
        assert len(select_runs(runs, text)) == found, text


def test_runs_without_a_note_are_not_read_for_one(tmp_path, folder, monkeypatch):
    read = []

    def reads(folder):
        read.append(folder)
        return read_note(folder)

    monkeypatch.setattr(history, "read_note", reads)
    update_known_runs(tmp_path / "home")
    assert read == []
    write_note(folder, RunNote("x"))
    update_known_runs(tmp_path / "home")
    assert read == [folder]
    assert notes.has_note(folder)
