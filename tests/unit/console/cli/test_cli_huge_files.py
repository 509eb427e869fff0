"""Tests of commands on sparse files of 40 GB, which must not be read completely."""

import json
import os
import resource
from pathlib import Path

import pytest

from spbench.record.runs.files import MAX_JSON_BYTES, TooLargeError, read_file, read_json
from spbench.record.runs.follow import RecordedEvents
from spbench.report.build import build_report
from spbench.report.links import find_last_link_matrix
from support.sample_events import make_complete_run, record_run

pytestmark = pytest.mark.slow

HUGE = 40 * 10**9
ADDRESS_SPACE = 2 << 30
"""Bytes of address space for a command: a completely read file does not fit."""


@pytest.fixture(autouse=True)
def limited_memory():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture
def runs(home):
    """Record two runs with reports; the second is newer."""
    folders = []
    for _ in range(2):
        folder = record_run(home, make_complete_run(), verdict="passed", exit_code=0, finished=9.0)
        folder.write_json("report.json", build_report(folder.replay()))
        folders.append(folder)
    return sorted(folders, key=lambda folder: folder.id)


def inflate(path, size=HUGE):
    """Make a sparse file of this size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, size)


def test_too_large_file_is_not_read(tmp_path, messages):
    path = tmp_path / "run.json"
    inflate(path)
    with pytest.raises(TooLargeError) as caught:
        read_json(path)
    assert str(caught.value) == f"{path} has 40.0 GB, more than 64 MiB"
    inflate(path, MAX_JSON_BYTES)
    assert len(read_file(path)) == MAX_JSON_BYTES
    inflate(path, MAX_JSON_BYTES + 1)
    with messages.raises(TooLargeError):
        read_file(path)


def test_growing_file_is_read_up_to_its_limit():
    with pytest.raises(TooLargeError):  # the kernel gives it a size of 0
        read_file(Path("/proc/self/status"), 10)


# run.json


def test_run_with_a_huge_run_json_is_listed(spbench, runs, messages):
    intact, huge = runs
    inflate(huge.path / "run.json")
    listed = spbench("results", "list")
    assert listed.status == 0
    _, *lines = listed.out.splitlines()
    first, second = sorted(lines)
    assert first.startswith(intact.id)
    assert first.split()[2] == "passed"
    assert second.startswith(huge.id)
    assert second.split()[2:4] == ["unreadable", "?"]
    assert second.endswith("run.json has 40.0 GB, more than 64 MiB")
    by_id = {run["id"]: run for run in json.loads(spbench("results", "list", "--json").out)}
    assert by_id[huge.id]["verdict"] == "unreadable"
    messages.check(by_id[huge.id]["unreadable"])
    assert by_id[intact.id]["unreadable"] is None
    assert spbench("results", "list", "verdict:unreadable").out.splitlines()[1].startswith(huge.id)


@pytest.mark.parametrize(
    "args",
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
    ids=lambda args: " ".join(args[:2]),
)
def test_run_with_a_huge_run_json_is_rejected(spbench, runs, args):
    intact, huge = runs
    path = huge.path / "run.json"
    inflate(path)
    names = {"RUN": huge.id, "OTHER": intact.id}
    done = spbench(*(names.get(word, word) for word in args))
    assert done.status == 2
    assert f"cannot read run {huge.id}: {path} has 40.0 GB, more than 64 MiB" in done.error_line


def test_other_runs_are_still_compared_and_plotted(spbench, runs, home):
    intact, huge = runs
    inflate(huge.path / "run.json")
    assert spbench("compare", intact.id, intact.id, "--force").status == 0
    series = spbench("results", "series", "a")
    assert series.status == 0
    assert huge.id not in series.out
    assert spbench("results", "reindex").status == 0
    assert find_last_link_matrix(home)[0].id == intact.id


# Other files of a run


@pytest.mark.parametrize(
    "args", [("report",), ("results", "export"), ("baseline", "set", "main"), ("compare", "OTHER")]
)
def test_huge_report_is_rejected(spbench, runs, args):
    intact, huge = runs
    inflate(huge.report)
    done = spbench(*(intact.id if word == "OTHER" else word for word in args), huge.id)
    assert done.status == 2
    assert f"cannot read a report: {huge.report} has 40.0 GB, more than 1 GiB" in done.error_line
    assert spbench("results", "show", huge.id).status == 0  # it is built from the events


def test_huge_report_hides_no_other_run(spbench, runs):
    intact, huge = runs
    inflate(huge.report)
    assert len(spbench("results", "list").out.splitlines()) == 3
    assert spbench("results", "reindex").status == 0
    done = spbench("report", str(huge.report))
    assert (done.status, "has 40.0 GB" in done.error_line) == (2, True)
    assert spbench("report", intact.id).status == 0


@pytest.mark.parametrize("has_start", [True, False])
def test_log_with_an_endless_line_is_rejected(spbench, runs, has_start):
    _, huge = runs
    if not has_start:
        huge.events.write_bytes(b"")
    inflate(huge.events)
    for args in (("show",), ("show", "--links")):
        (huge.report).unlink(missing_ok=True)
        done = spbench("results", *args, huge.id)
        assert done.status == 2
        assert f"cannot read {huge.events}: it has 40.0 GB, and a line of more" in done.error_line


def test_too_long_line_is_skipped(runs):
    _, run = runs
    events = list(RecordedEvents(run.events))
    before = run.events.read_bytes()
    head, tail = before.split(b"\n", 1)
    run.events.write_bytes(head + b"\n" + b"x" * (2 << 20) + b"\n" + tail)
    recorded = RecordedEvents(run.events, max_line_bytes=1 << 20)
    assert list(recorded) == events
    assert ":2: this is no event" in recorded.skipped_message


@pytest.mark.parametrize("name", ["note.json", "cancel.json", "suite.yaml", "jobs/1/stdout.log"])
def test_huge_other_files_do_no_harm(spbench, runs, name):
    intact, huge = runs
    inflate(huge.path / name)
    commands = [
        ("results", "list"),
        ("results", "show", huge.id, "--output"),
        ("report", huge.id, "--format", "html"),
        ("report", huge.id, "--format", "annotations"),
        ("compare", intact.id, huge.id),
    ]
    assert [spbench(*args).status for args in commands] == [0] * len(commands)


def test_huge_suite_is_not_resumed(spbench, runs):
    _, huge = runs
    path = huge.path / "suite.yaml"
    inflate(path)
    run = huge.read_json("run.json")
    request = {"overrides": [], "keyword": None, "cases": [], "inject": None, "chosen": {}}
    huge.write_json("run.json", run | {"request": request, "cwd": "/", "file": "x.yaml"})
    done = spbench("run", "--resume", huge.id)
    assert done.status == 2
    assert f"{path} has 40.0 GB, more than 4 MiB" in done.error_line


# Files of the home


def test_huge_index_is_ignored_and_can_be_rebuilt(spbench, runs, home):
    intact, huge = runs
    assert len(spbench("results", "list").out.splitlines()) == 3
    inflate(home / "index.sqlite")
    assert len(spbench("results", "list").out.splitlines()) == 3
    assert spbench("compare", intact.id, huge.id).status == 0
    assert (home / "index.sqlite").stat().st_size == HUGE
    assert spbench("results", "reindex").status == 0
    assert (home / "index.sqlite").stat().st_size < 1e6


def test_huge_baseline_is_rejected(spbench, runs, home):
    intact, huge = runs
    path = home / "baselines" / "main.json"
    inflate(path)
    for args in (("baseline", "show", "main"), ("compare", "main", intact.id)):
        done = spbench(*args)
        assert (done.status, f"{path} has 40.0 GB, more than 64 MiB" in done.error_line) == (
            2,
            True,
        )
    listed = spbench("baseline", "list")
    assert (listed.status, "has 40.0 GB" in listed.out) == (0, True)
    pruned = spbench("results", "prune", "--keep", "0", "--yes")
    assert (pruned.status, "has 40.0 GB" in pruned.error_line) == (2, True)
    assert spbench("report", huge.id).status == 0
