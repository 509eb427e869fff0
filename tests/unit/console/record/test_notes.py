"""Notes and tags of runs."""

import pytest

from spbench.errors import FailedRunError, UsageError
from spbench.record.runs import history, notes
from spbench.record.runs.history import (
    list_summaries,
    read_summary_with_note,
    update_known_runs,
)
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
from spbench.record.runs.selection import select_runs
from support.sample_events import make_complete_run, record_run


@pytest.fixture
def folder(tmp_path):
    return record_run(tmp_path / "home", make_complete_run(), verdict="passed", exit_code=0)


def test_parses_a_line_into_text_and_tags():
    assert parse_note(" new driver #rack2  #fast ") == RunNote("new driver", ("fast", "rack2"))
    assert parse_note("case # 3 of #1/2") == RunNote("case # 3 of #1/2"), "these are no tags"
    assert parse_note("") == NO_NOTE
    assert parse_note(str(RunNote("new driver", ("fast",)))) == RunNote("new driver", ("fast",))


@pytest.mark.parametrize("line", ["x" * (MAX_TEXT + 1), "a \x1b[31m b"])
def test_rejects_overlong_or_unprintable_note(line):
    with pytest.raises(UsageError, match="a note"):
        parse_note(line)


def test_writes_note_file_and_removes_it_for_an_empty_note(folder):
    assert read_note(folder) == NO_NOTE
    write_note(folder, RunNote("slow node", ("rack2",)))
    assert read_note(folder) == RunNote("slow node", ("rack2",))
    write_note(folder, NO_NOTE)
    assert not (folder.path / FILE).exists()
    write_note(folder, NO_NOTE)


@pytest.mark.parametrize(
    "content", ["torn", "[]", '{"note": 3, "tags": 4}', '{"note": null, "tags": ["a b", 1]}']
)
def test_damaged_note_reads_as_empty(folder, content):
    (folder.path / FILE).write_text(content)
    assert read_note(folder) == NO_NOTE


def test_reports_a_note_that_cannot_be_written(folder):
    (folder.path / FILE).mkdir()
    for note in (NO_NOTE, RunNote("x")):
        with pytest.raises(FailedRunError, match=r"note\.json"):
            write_note(folder, note)


def test_adds_and_removes_tags(messages):
    note = change_tags(RunNote("x", ("a", "b")), ["c", "a"], ["b"])
    assert note == RunNote("x", ("a", "c"))
    assert check_tag("#rack2") == "rack2"
    for invalid in ("", "#", "a b", "-x", "x" * 41):
        with messages.raises(UsageError):
            check_tag(invalid)


def test_lists_show_the_current_notes(tmp_path, folder):
    home = tmp_path / "home"
    runs_before = update_known_runs(home)
    write_note(folder, RunNote("slow node", ("rack2",)))
    for runs in (update_known_runs(home, runs_before), update_known_runs(home)):
        assert [run.note.text for _, run in runs.values()] == ["slow node"]
    assert read_summary_with_note(folder).note.tags == ("rack2",)
    write_note(folder, NO_NOTE)
    assert [run.note for _, run in update_known_runs(home, runs).values()] == [NO_NOTE]


def test_filters_by_tags_and_words_of_a_note(tmp_path, folder):
    write_note(folder, RunNote("slow node", ("rack2",)))
    runs = list_summaries(tmp_path / "home")
    counts = {"tag:rack2": 1, "tag:rack": 0, "slow": 1, "#rack2": 1, "fast": 0}
    for text, expected in counts.items():
        assert len(select_runs(runs, text)) == expected, text


def test_does_not_read_notes_of_runs_without_one(tmp_path, folder, monkeypatch):
    folders_read = []

    def read_and_record(folder):
        folders_read.append(folder)
        return read_note(folder)

    monkeypatch.setattr(history, "read_note", read_and_record)
    update_known_runs(tmp_path / "home")
    assert folders_read == []
    write_note(folder, RunNote("x"))
    update_known_runs(tmp_path / "home")
    assert folders_read == [folder]
    assert notes.has_note(folder)
