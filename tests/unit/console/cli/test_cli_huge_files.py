"""Files of a home that claim 40 GB: none is read as a whole, and each command still ends."""

import json
import os
import resource
from pathlib import Path

import pytest

from spbench.record.runs import follow
from spbench.record.runs.files import MAX_JSON_BYTES, TooLargeError, read_file, read_json
from spbench.report.build import build_report
from spbench.report.links import find_last_link_matrix
from unit.events import recorded, whole_run

pytestmark = pytest.mark.slow

HUGE = 40 * 10**9
ROOM = 2 << 30
"""Bytes of address space for a command: a file that is read as a whole does not fit."""


@pytest.fixture(autouse=True)
def limited_memory():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture
def runs(home):
    """Two runs with their reports, of which the second is newer."""
    folders = []
    for _ in range(2):
        folder = recorded(home, whole_run(), verdict="passed", exit_code=0, finished=9.0)
        folder.write_json("report.json", build_report(folder.replay()))
        folders.append(folder)
    return sorted(folders, key=lambda folder: folder.id)


def inflate(path, size=HUGE):
    """Give a file so many bytes that take no room on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, size)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "run.json"
    inflate(path)
    with pytest.raises(TooLargeError) as caught:
        read_json(path)
    assert str(caught.value) == f"{path} has 40.0 GB, more than 64 MiB"
    inflate(path, MAX_JSON_BYTES)
    assert len(read_file(path)) == MAX_JSON_BYTES
    inflate(path, MAX_JSON_BYTES + 1)
    with pytest.raises(TooLargeError, match=r"has 67\.1 MB, more than 64 MiB"):
        read_file(path)


def test_a_file_that_grows_is_read_up_to_its_limit():
    with pytest.raises(TooLargeError):  # the kernel gives it a size of 0
        read_file(Path("/proc/self/status"), 10)


# run.json


def test_a_run_with_a_huge_run_json_is_listed_with_the_others(spbench, runs):
    kept, huge = runs
    inflate(huge.path / "run.json")
    listed = spbench("results", "list")
    assert listed.status == 0
    _, *lines = listed.out.splitlines()
    first, second = sorted(lines)
    assert first.startswith(kept.id)
    assert first.split()[2] == "passed"
    assert second.startswith(huge.id)
    assert second.split()[2:4] == ["unreadable", "?"]
    assert second.endswith("run.json has 40.0 GB, more than 64 MiB")
    by_id = {run["id"]: run for run in json.loads(spbench("results", "list", "--json").out)}
    assert by_id[huge.id]["verdict"] == "unreadable"
    assert by_id[huge.id]["unreadable"] == "run.json has 40.0 GB, more than 64 MiB"
    assert by_id[kept.id]["unreadable"] is None
    assert spbench("results", "list", "verdict:unreadable").out.splitlines()[1].startswith(huge.id)


@pytest.mark.parametrize(
    "words",
    [
        ("results", "show", "RUN"),
        ("results", "export", "RUN", "--format", "json"),
        ("results", "note", "RUN", "text"),
        ("report", "RUN"),
        ("compare", "OTHER", "RUN"),
        ("baseline", "set", "main", "RUN"),
        ("run", "--resume", "RUN"),
        ("run", "--failed", "RUN"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_run_with_a_huge_run_json_is_rejected(spbench, runs, words):
    kept, huge = runs
    path = huge.path / "run.json"
    inflate(path)
    names = {"RUN": huge.id, "OTHER": kept.id}
    ended = spbench(*(names.get(word, word) for word in words))
    assert ended.status == 2
    assert f"cannot read run {huge.id}: {path} has 40.0 GB, more than 64 MiB" in ended.refusal


def test_other_runs_are_compared_and_plotted_all_the_same(spbench, runs, home):
    kept, huge = runs
    inflate(huge.path / "run.json")
    assert spbench("compare", kept.id, kept.id, "--force").status == 0
    series = spbench("results", "series", "a")
    assert series.status == 0
    assert huge.id not in series.out
    assert spbench("results", "reindex").status == 0
    assert find_last_link_matrix(home)[0].id == kept.id


# Other files of a run


@pytest.mark.parametrize(
    "words", [("report",), ("results", "export"), ("baseline", "set", "main"), ("compare", "OTHER")]
)
def test_a_huge_report_is_rejected(spbench, runs, words):
    kept, huge = runs
    inflate(huge.report)
    ended = spbench(*(kept.id if word == "OTHER" else word for word in words), huge.id)
    assert ended.status == 2
    assert f"cannot read a report: {huge.report} has 40.0 GB, more than 1 GiB" in ended.refusal
    assert spbench("results", "show", huge.id).status == 0  # it is made of the events


def test_a_huge_report_hides_no_other_run(spbench, runs):
    kept, huge = runs
    inflate(huge.report)
    assert len(spbench("results", "list").out.splitlines()) == 3
    assert spbench("results", "reindex").status == 0
    ended = spbench("report", str(huge.report))
    assert (ended.status, "has 40.0 GB" in ended.refusal) == (2, True)
    assert spbench("report", kept.id).status == 0


@pytest.mark.parametrize("begun", [True, False])
def test_a_log_with_a_line_without_end_is_rejected(spbench, runs, begun):
    _, huge = runs
    if not begun:
        huge.events.write_bytes(b"")
    inflate(huge.events)
    for words in (("show",), ("show", "--links")):
        (huge.report).unlink(missing_ok=True)
        ended = spbench("results", *words, huge.id)
        assert ended.status == 2
        assert f"cannot read {huge.events}: it has 40.0 GB, and a line of more" in ended.refusal


def test_a_line_that_is_too_long_takes_no_memory(runs, monkeypatch):
    _, run = runs
    monkeypatch.setattr(follow, "MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(follow, "MAX_SKIPPED_BYTES", 3 << 20)
    before = run.events.read_bytes()
    head, tail = before.split(b"\n", 1)
    run.events.write_bytes(head + b"\n" + b"x" * (2 << 20) + b"\n" + tail)
    assert run.replay().cases["a"].status == "passed"
    assert ":2: this is no event" in run.replay().skipped


@pytest.mark.parametrize("name", ["note.json", "cancel.json", "suite.yaml", "jobs/1/stdout.log"])
def test_huge_files_beside_the_results_do_no_harm(spbench, runs, name):
    kept, huge = runs
    inflate(huge.path / name)
    commands = [
        ("results", "list"),
        ("results", "show", huge.id, "--output"),
        ("report", huge.id, "--format", "html"),
        ("report", huge.id, "--format", "annotations"),
        ("compare", kept.id, huge.id),
    ]
    assert [spbench(*words).status for words in commands] == [0] * len(commands)


def test_a_huge_suite_is_not_run_further(spbench, runs):
    _, huge = runs
    path = huge.path / "suite.yaml"
    inflate(path)
    run = huge.read_json("run.json")
    asked = {"overrides": [], "keyword": None, "cases": [], "inject": None, "chosen": {}}
    huge.write_json("run.json", run | {"request": asked, "cwd": "/", "file": "x.yaml"})
    ended = spbench("run", "--resume", huge.id)
    assert ended.status == 2
    assert f"{path} has 40.0 GB, more than 4 MiB" in ended.refusal


# Files of the home


def test_a_huge_index_is_not_used_and_can_be_made_again(spbench, runs, home):
    kept, huge = runs
    assert len(spbench("results", "list").out.splitlines()) == 3
    inflate(home / "index.sqlite")
    assert len(spbench("results", "list").out.splitlines()) == 3
    assert spbench("compare", kept.id, huge.id).status == 0
    assert (home / "index.sqlite").stat().st_size == HUGE
    assert spbench("results", "reindex").status == 0
    assert (home / "index.sqlite").stat().st_size < 1e6


def test_a_huge_baseline_is_rejected(spbench, runs, home):
    kept, huge = runs
    path = home / "baselines" / "main.json"
    inflate(path)
    for words in (("baseline", "show", "main"), ("compare", "main", kept.id)):
        ended = spbench(*words)
        assert (ended.status, f"{path} has 40.0 GB, more than 64 MiB" in ended.refusal) == (2, True)
    listed = spbench("baseline", "list")
    assert (listed.status, "has 40.0 GB" in listed.out) == (0, True)
    pruned = spbench("results", "prune", "--keep", "0", "--yes")
    assert (pruned.status, "has 40.0 GB" in pruned.refusal) == (2, True)
    assert spbench("report", huge.id).status == 0
