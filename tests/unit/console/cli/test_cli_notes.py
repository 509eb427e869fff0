"""Commands that write notes and tags of runs."""

import json

from unit.events import recorded, whole_run


def test_a_note_is_written_shown_listed_and_removed(spbench, home):
    run = recorded(home, whole_run(), verdict="passed", exit_code=0)
    assert spbench("results", "note", "last", "new", "driver", "#rack2") == (
        0,
        "#rack2 new driver\n",
        "",
    )
    assert spbench("results", "note", run.id)[1] == "#rack2 new driver\n"
    assert spbench("results", "list")[1].endswith("  #rack2 new driver\n")
    assert spbench("results", "note", "last", "")[1] == "#rack2\n", "tags stay"
    assert spbench("results", "tag", "last", "--remove", "rack2") == (0, "\n", "")
    assert not (run.path / "note.json").exists()


def test_tags_are_given_and_found(spbench, home):
    recorded(home, whole_run(), verdict="passed", exit_code=0)
    assert spbench("results", "tag", "last", "b", "#a")[1] == "#a #b\n"
    (found,) = json.loads(spbench("results", "list", "--json", "tag:a")[1])
    assert (found["note"], found["tags"]) == ("", ["a", "b"])
    assert spbench("results", "list", "tag:c")[0] != 0


def test_what_is_no_tag_and_no_run_is_refused(spbench, home):
    recorded(home, whole_run(), verdict="passed", exit_code=0)
    status, out, err = spbench("results", "tag", "last", "a b")
    assert (status, out) == (2, "")
    assert err.startswith("spbench: error: 'a b' cannot be a tag: use at most 40 letters")
    assert spbench("results", "note", "nothing", "x")[0] == 2
