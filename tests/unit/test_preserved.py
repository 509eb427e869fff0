"""The texts of `benchmarks.preserved`: omitted parts, and comparison of folders."""

import json

import pytest
from benchmarks.preserved.__main__ import SHOWN_LINES, compare_folders
from benchmarks.preserved.events import event_lines
from benchmarks.preserved.transcripts import ROOT, Transcripts


def write_texts(folder, **texts):
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text)


def test_equal_folders_have_no_differences(tmp_path):
    write_texts(tmp_path / "a" / "plans", one="x\n")
    write_texts(tmp_path / "b" / "plans", one="x\n")
    assert list(compare_folders(tmp_path / "a", tmp_path / "b", ["plans", "events"])) == []


@pytest.mark.parametrize("after", [{"one": "y\n"}, {}, {"one": "x\n", "two": "z\n"}])
def test_finds_changed_missing_and_new_texts(tmp_path, after):
    write_texts(tmp_path / "a" / "plans", one="x\n")
    write_texts(tmp_path / "b" / "plans", **after)
    assert list(compare_folders(tmp_path / "a", tmp_path / "b", ["plans"]))


def test_shortens_long_differences(tmp_path):
    write_texts(tmp_path / "a" / "plans", one="x\n" * 100)
    write_texts(tmp_path / "b" / "plans", one="y\n" * 100)
    lines = list(compare_folders(tmp_path / "a", tmp_path / "b", ["plans"]))
    assert len(lines) == SHOWN_LINES + 1
    assert "more lines" in lines[-1]


def list_event_lines(tmp_path, *changes):
    log = tmp_path / "events.jsonl"
    check = {"event": "check", "rank": 1, "seq": 3, "time": 1.5, "max_abs_error": 0.25}
    log.write_text("".join(json.dumps(check | change) + "\n" for change in changes))
    return list(event_lines(log))


def test_event_lines_include_names_but_not_times(tmp_path):
    assert list_event_lines(tmp_path, {}) == list_event_lines(tmp_path, {"time": 2.0, "seq": 9})
    assert list_event_lines(tmp_path, {}) != list_event_lines(tmp_path, {"name": "halo"})
    assert list_event_lines(tmp_path, {}) != list_event_lines(tmp_path, {"rank": 0})


def test_texts_do_not_contain_the_checkout_path(tmp_path):
    with Transcripts(tmp_path / "texts") as transcripts:
        transcripts.write(
            "one", f"{ROOT}/suites, {transcripts.scratch}, spbench 1.2.3+untagged.g12ab"
        )
    assert (tmp_path / "texts" / "one").read_text() == "ROOT/suites, SCRATCH, spbench VERSION"
