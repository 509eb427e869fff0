"""Tests of commands that write notes and tags of runs."""

import json
import os

import pytest

from support.sample_events import make_complete_run, record_run


def test_note_is_written_shown_listed_and_removed(spbench, home, messages):
    run = record_run(home, make_complete_run(), verdict="passed", exit_code=0)
    assert spbench("results", "note", "last", "new", "driver", "#rack2") == (
        0,
        "#rack2 new driver\n",
        "",
    )
    messages.check(spbench("results", "note", run.id)[1])
    assert spbench("results", "list")[1].endswith("  #rack2 new driver\n")
    assert spbench("results", "note", "last", "")[1] == "#rack2\n", "tags stay"
    assert spbench("results", "tag", "last", "--remove", "rack2") == (0, "\n", "")
    assert not (run.path / "note.json").exists()


def test_tags_are_added_and_found(spbench, home):
    record_run(home, make_complete_run(), verdict="passed", exit_code=0)
    assert spbench("results", "tag", "last", "b", "#a")[1] == "#a #b\n"
    (listed,) = json.loads(spbench("results", "list", "--json", "tag:a")[1])
    assert (listed["note"], listed["tags"]) == ("", ["a", "b"])
    assert spbench("results", "list", "tag:c")[0] != 0


def test_rejects_invalid_tag_and_unknown_run(spbench, home, messages):
    record_run(home, make_complete_run(), verdict="passed", exit_code=0)
    status, out, err = spbench("results", "tag", "last", "a b")
    assert (status, out) == (2, "")
    messages.check(err)
    assert spbench("results", "note", "nothing", "x")[0] == 2


@pytest.mark.timeout(10)
@pytest.mark.parametrize("args", [("note", "last", "x"), ("tag", "last", "x")])
def test_note_does_not_follow_planted_links(spbench, home, tmp_path, args):
    run = record_run(home, make_complete_run(), verdict="passed", exit_code=0)
    outside = tmp_path / "outside"
    outside.write_text("precious")
    os.mkfifo(run.path / "note.json")
    (run.path / f".note.json.{os.getpid()}").symlink_to(outside)
    assert spbench("results", *args).status == 0
    assert outside.read_text() == "precious"
    assert "x" in json.dumps(json.loads((run.path / "note.json").read_text()))
