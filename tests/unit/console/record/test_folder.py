"""Folders of runs: names, look-up, files, modes and the console that writes them."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spbench.errors import ExitCode, FailedRunError, MissingError, UsageError
from spbench.record.runs import event_log
from spbench.record.runs.event_log import EventLog, encode
from spbench.record.runs.files import read_json, write_file
from spbench.record.runs.folder import (
    QUIET,
    RunFolder,
    create_run,
    find_home,
    find_process_start,
    find_run,
    list_runs,
)
from spbench.record.runs.follow import RecordedEvents
from support.sample_events import (
    console_event,
    make_complete_run,
    record_events,
    record_run,
    run_end,
    run_start,
)

SHORT_RUN = [run_start(), run_end()]


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def create_finished_run(home, name):
    path = home / "runs" / name
    path.mkdir(parents=True)
    (path / "run.json").write_text("{}")
    return RunFolder(path)


@pytest.mark.parametrize(
    ("option", "environ", "expected"),
    [
        (Path("given"), {"SPBENCH_HOME": "env"}, "given"),
        (None, {"SPBENCH_HOME": "env"}, "env"),
        (None, {"SPBENCH_HOME": ""}, ".spbench"),
        (None, {}, ".spbench"),
    ],
)
def test_home_option_precedes_environment_variable(option, environ, expected):
    assert find_home(option, environ) == Path(expected)


@pytest.mark.parametrize(
    ("suite", "slug"),
    [("Halo Exchange!", "-halo-exchange-"), ("日本", "-run-"), ("x" * 80, f"-{'x' * 24}-")],
)
def test_run_id_contains_time_and_suite(home, suite, slug):
    folder = create_run(home, suite)
    assert folder.path.is_dir()
    assert folder.path.parent == home / "runs"
    assert slug in folder.id
    assert folder.id[:15].replace("-", "").isdigit()


def test_runs_of_the_same_second_have_different_ids(home):
    assert len({create_run(home, "a").id for _ in range(20)}) == 20


def test_create_run_skips_an_existing_id(home, monkeypatch):
    suffixes = iter(("0000", "0000", "0001"))
    monkeypatch.setattr("spbench.record.runs.folder.secrets.token_hex", lambda _: next(suffixes))
    monkeypatch.setattr("spbench.record.runs.folder.time.strftime", lambda *_: "20260101-000000")
    ids = [create_run(home, "a").id for _ in range(2)]
    assert ids == ["20260101-000000-a-0000", "20260101-000000-a-0001"]


def test_lists_runs_by_age_and_ignores_other_paths(home):
    names = ["20260102-000000-b-0000", "20260101-000000-a-0000"]
    for name in names:
        create_finished_run(home, name)
    (home / "runs" / "20260103-000000-c-0000").mkdir()
    (home / "runs" / "notes.txt").write_text("")
    assert [folder.id for folder in list_runs(home)] == sorted(names)


def test_missing_home_has_no_runs(home):
    assert list_runs(home) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("last", "20260102-000000-ab-0002"),
        ("20260101", "20260101-000000-a-0001"),
        ("20260102-000000-a-0001", "20260102-000000-a-0001"),
        ("20260102-000000-a", None),
        ("20260102-000000-a-", "20260102-000000-a-0001"),
        ("2027", None),
        ("0002", "20260102-000000-ab-0002"),
        ("0001", None),
        ("002", None),
        ("", None),
    ],
)
def test_finds_run_by_id_prefix_suffix_or_last(home, name, expected):
    for run_id in ("20260101-000000-a-0001", "20260102-000000-a-0001", "20260102-000000-ab-0002"):
        create_finished_run(home, run_id)
    if expected:
        assert find_run(home, name).id == expected
    else:
        with pytest.raises(UsageError):
            find_run(home, name)


def test_exact_id_precedes_a_longer_id(home):
    for run_id in ("20260101-000000-a-0001", "20260101-000000-a-0001-more"):
        create_finished_run(home, run_id)
    assert find_run(home, "20260101-000000-a-0001").id == "20260101-000000-a-0001"


@pytest.mark.parametrize(
    ("name", "fragments"),
    [
        ("2026", ["2 runs begin or end with '2026'", "20260101-000000-a-0001", "write more"]),
        ("20260101-000000-a-0009", ["no run", "did you mean 20260101-000000-a-0001"]),
    ],
)
def test_unknown_run_is_explained_in_one_line(home, name, fragments):
    for run_id in ("20260101-000000-a-0001", "20260101-000000-b-0002"):
        create_finished_run(home, run_id)
    with pytest.raises(UsageError) as caught:
        find_run(home, name)
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


def test_last_run_of_missing_home_is_an_error(home, messages):
    with messages.raises(UsageError):
        find_run(home, "last")


# Write errors


def is_single_write_error(error):
    message = str(error)
    return (
        error.exit_code is ExitCode.ERROR
        and "\n" not in message
        and message.startswith("cannot write ")
    )


@pytest.mark.parametrize("home", ["a-file", "a-file/below", "/proc/none"])
def test_unwritable_home_is_reported_in_one_line(tmp_path, home):
    (tmp_path / "a-file").write_text("")
    with pytest.raises(MissingError) as caught:
        create_run(tmp_path / home, "suite")
    message = str(caught.value)
    assert caught.value.exit_code is ExitCode.MISSING
    assert message.startswith(f"cannot write {tmp_path / home}")
    assert message.endswith("; choose another folder by --home or SPBENCH_HOME")
    assert "\n" not in message


def test_full_disk_is_reported_in_one_line(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    monkeypatch.setattr(event_log, "open_to_append", lambda *_: os.open("/dev/full", os.O_RDWR))
    log = EventLog(path)
    with pytest.raises(FailedRunError) as caught:
        log.append(b"{}\n")
    log.close()
    assert is_single_write_error(caught.value)
    remedy = "free some space there or write elsewhere"
    assert str(caught.value) == f"cannot write {path}: No space left on device; {remedy}"


def test_reopening_a_log_removes_its_incomplete_last_line(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event":"a"}\n' + b'{"event":' + b"x" * 100_000)
    log = EventLog(path)
    log.append(b'{"event":"b"}\n')
    log.close()
    assert path.read_bytes() == b'{"event":"a"}\n{"event":"b"}\n'


def test_reopening_a_log_removes_its_incomplete_first_line(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event":')
    EventLog(path).close()
    assert path.read_bytes() == b""


def test_rejects_a_second_writer_of_a_log(tmp_path, messages):
    path = tmp_path / "events.jsonl"
    first = EventLog(path)
    with messages.raises(UsageError):
        EventLog(path)
    first.close()
    EventLog(path).close()


def test_log_in_missing_folder_is_reported_in_one_line(tmp_path):
    with pytest.raises(FailedRunError) as caught:
        EventLog(tmp_path / "missing" / "events.jsonl")
    assert is_single_write_error(caught.value)
    assert str(caught.value).endswith("events.jsonl: No such file or directory")


def test_job_folder_below_a_file_is_reported_in_one_line(tmp_path):
    (tmp_path / "jobs").write_text("")
    with pytest.raises(FailedRunError) as caught:
        RunFolder(tmp_path).create_job_folder(1)
    assert is_single_write_error(caught.value)


# Files


def test_write_file_replaces_the_file_without_leftovers(tmp_path):
    for text in ("old", "new"):
        write_file(tmp_path / "below" / "report.json", text)
    assert [path.name for path in (tmp_path / "below").iterdir()] == ["report.json"]
    assert (tmp_path / "below" / "report.json").read_text() == "new"


def test_failed_write_keeps_the_target_without_leftovers(tmp_path):
    target = tmp_path / "report.json"
    target.mkdir()
    with pytest.raises(FailedRunError):
        write_file(target, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_file_below_a_file_is_reported_in_one_line(tmp_path):
    (tmp_path / "a-file").write_text("")
    with pytest.raises(FailedRunError) as caught:
        write_file(tmp_path / "a-file" / "report.json", "text")
    assert is_single_write_error(caught.value)


def test_write_file_writes_into_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()), daemon=True)
    reader.start()
    write_file(pipe, "text")
    reader.join(2.0)
    assert received == ["text"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("content", [None, "", "{", "[1]", "null"])
def test_missing_or_incomplete_json_reads_as_empty(tmp_path, content):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    assert RunFolder(tmp_path).read_json("run.json") == {}


def test_removed_folder_is_not_created_again(home):
    folder = create_run(home, "a")
    folder.path.rmdir()
    with pytest.raises(FailedRunError, match=r"cannot write .*report\.json: No such file"):
        folder.write_json("report.json", {})
    with pytest.raises(FailedRunError, match=r"cannot write .*jobs/1: No such"):
        folder.create_job_folder(1)
    assert not folder.path.exists()


@pytest.fixture
def zero_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def collect_modes(folder):
    """Return the modes of a run's folders and of its files, as two sets."""
    folder.write_json("run.json", {})
    (folder.create_job_folder(1) / "subfolder").mkdir(folder.path.stat().st_mode & 0o777)
    folder.write_json("jobs/1/argv.json", {})
    record_events(folder, SHORT_RUN)
    paths = [folder.path, *folder.path.rglob("*")]
    folders = {path.stat().st_mode & 0o777 for path in paths if path.is_dir()}
    return folders, {path.stat().st_mode & 0o777 for path in paths if path.is_file()}


def test_unshared_run_is_private_to_its_owner(home, zero_umask):
    assert collect_modes(create_run(home, "a")) == ({0o700}, {0o600})


@pytest.mark.parametrize(
    ("umask", "folder", "file"),
    [(0o022, 0o755, 0o644), (0o027, 0o750, 0o640), (0o077, 0o700, 0o600)],
)
def test_modes_of_shared_run_follow_the_umask(home, zero_umask, umask, folder, file):
    os.umask(umask)
    assert collect_modes(create_run(home, "a", shared=True)) == ({folder}, {file})


def test_unshared_run_of_another_user_is_reported(home, monkeypatch):
    folder = create_run(home, "a")
    monkeypatch.setattr(os.path, "isfile", lambda path: False)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert list_runs(home) == []
    with pytest.raises(UsageError, match=f"run {folder.id} is another user's, who has not shared"):
        find_run(home, folder.id)


def test_rejects_nan_in_json(tmp_path, messages):
    with messages.raises(ValueError):
        RunFolder(tmp_path).write_json("report.json", {"value": float("nan")})


def test_events_are_read_as_written(tmp_path):
    events = [console_event("notice", message=f"{number} ½\n") for number in range(3)]
    log = EventLog(tmp_path / "events.jsonl")
    for event in events:
        log.append(encode(event))
    log.close()
    assert list(RecordedEvents(tmp_path / "events.jsonl")) == events


def test_reopened_log_is_appended_to(tmp_path):
    for number in range(2):
        log = EventLog(tmp_path / "events.jsonl")
        log.append(encode(console_event("notice", number=number)))
        log.close()
    assert [event["number"] for event in RecordedEvents(tmp_path / "events.jsonl")] == [0, 1]


def test_recorded_run_can_be_replayed(home):
    assert record_run(home, make_complete_run()).replay().run.status == "passed"


# Liveness of the console


@pytest.fixture
def console():
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "spbench"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # before that, /proc may lack its arguments
        yield process
        process.kill()


def console_field(console, **changes):
    field = {"pid": console.pid, "host": socket.gethostname(), "started": time.time()}
    return {"console": field | changes}


def test_run_is_alive_until_its_console_ends(home, console):
    folder = record_run(home, SHORT_RUN, **console_field(console))
    assert folder.is_alive()
    console.kill()
    console.wait()
    assert not folder.is_alive()


def test_liveness_on_another_host_depends_on_the_log(home, console):
    folder = record_run(home, SHORT_RUN, **console_field(console, host="elsewhere"))
    assert folder.find_other_host() == "elsewhere"
    assert folder.is_alive() is None
    long_ago = time.time() - QUIET - 60
    os.utime(folder.events, (long_ago, long_ago))
    assert folder.is_alive() is False
    folder.events.unlink()
    assert folder.is_alive() is None, "it has not started to write"


def test_console_on_this_host_has_no_other_host(home, console, tmp_path):
    assert record_run(home, SHORT_RUN, **console_field(console)).find_other_host() is None
    assert (
        record_run(home, SHORT_RUN, **console_field(console, host=None)).find_other_host() is None
    )
    assert RunFolder(tmp_path).find_other_host() is None


def test_pid_of_another_program_is_not_alive(home, console):
    assert not record_run(home, SHORT_RUN, **console_field(console, pid=1)).is_alive()


def test_program_with_spbench_in_an_argument_path_is_not_a_console():
    command = [sys.executable, "-c", "input()", "/home/someone/spbench/notes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        assert find_process_start(process.pid) is None


def test_process_started_after_the_run_is_not_its_console(home, console):
    now = time.time()
    assert record_run(home, SHORT_RUN, **console_field(console, started=now + 3600)).is_alive()
    assert not record_run(home, SHORT_RUN, **console_field(console, started=now - 3600)).is_alive()
    assert not record_run(home, SHORT_RUN, **console_field(console, started=None)).is_alive()


def test_console_is_recognized_despite_clock_changes(home, console):
    since_boot = find_process_start(console.pid)
    ahead = time.time() + 7200
    behind = time.time() - 7200
    for started in (ahead, behind):
        field = console_field(console, started=started, since_boot=since_boot)
        assert record_run(home, SHORT_RUN, **field).is_alive()
        field = console_field(console, started=started, since_boot=since_boot - 1.0)
        assert not record_run(home, SHORT_RUN, **field).is_alive()


def test_folder_without_run_json_is_not_alive(tmp_path):
    assert not RunFolder(tmp_path).is_alive()


def test_run_json_is_valid_json(home):
    folder = record_run(home, SHORT_RUN, verdict="passed")
    assert json.loads((folder.path / "run.json").read_text())["verdict"] == "passed"


def test_rejects_json_with_a_huge_number(tmp_path, messages):
    path = tmp_path / "baseline.json"
    path.write_text(f'{{"a": {"9" * 5000}}}')
    with messages.raises(ValueError):
        read_json(path)
