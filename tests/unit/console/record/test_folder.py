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
from spbench.record.runs.files import read_json
from spbench.record.runs.folder import (
    QUIET,
    RunFolder,
    create_run,
    find_home,
    find_run,
    list_runs,
    process_start,
    write_file,
)
from spbench.record.runs.follow import RecordedEvents
from unit.events import console_event, record, recorded, run_end, run_start, whole_run

SHORT_RUN = [run_start(), run_end()]


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def finished(home, name):
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
def test_the_home_is_the_options_then_the_environments(option, environ, expected):
    assert find_home(option, environ) == Path(expected)


@pytest.mark.parametrize(
    ("suite", "slug"),
    [("Halo Exchange!", "-halo-exchange-"), ("日本", "-run-"), ("x" * 80, f"-{'x' * 24}-")],
)
def test_an_id_tells_when_and_what(home, suite, slug):
    folder = create_run(home, suite)
    assert folder.path.is_dir()
    assert folder.path.parent == home / "runs"
    assert slug in folder.id
    assert folder.id[:15].replace("-", "").isdigit()


def test_runs_of_the_same_second_have_folders_of_their_own(home):
    assert len({create_run(home, "a").id for _ in range(20)}) == 20


def test_an_id_that_is_taken_is_not_used_again(home, monkeypatch):
    ends = iter(("0000", "0000", "0001"))
    monkeypatch.setattr("spbench.record.runs.folder.secrets.token_hex", lambda _: next(ends))
    monkeypatch.setattr("spbench.record.runs.folder.time.strftime", lambda *_: "20260101-000000")
    names = [create_run(home, "a").id for _ in range(2)]
    assert names == ["20260101-000000-a-0000", "20260101-000000-a-0001"]


def test_runs_are_listed_by_age_and_only_where_they_are_runs(home):
    names = ["20260102-000000-b-0000", "20260101-000000-a-0000"]
    for name in names:
        finished(home, name)
    (home / "runs" / "20260103-000000-c-0000").mkdir()
    (home / "runs" / "notes.txt").write_text("")
    assert [folder.id for folder in list_runs(home)] == sorted(names)


def test_a_home_that_is_not_there_has_no_runs(home):
    assert list_runs(home) == []


@pytest.mark.parametrize(
    ("name", "found"),
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
def test_a_run_is_found_by_its_id_its_ends_or_as_the_last(home, name, found):
    for known in ("20260101-000000-a-0001", "20260102-000000-a-0001", "20260102-000000-ab-0002"):
        finished(home, known)
    if found:
        assert find_run(home, name).id == found
    else:
        with pytest.raises(UsageError):
            find_run(home, name)


def test_an_id_may_begin_another(home):
    for known in ("20260101-000000-a-0001", "20260101-000000-a-0001-more"):
        finished(home, known)
    assert find_run(home, "20260101-000000-a-0001").id == "20260101-000000-a-0001"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("2026", ["2 runs begin or end with '2026'", "20260101-000000-a-0001", "write more"]),
        ("20260101-000000-a-0009", ["no run", "did you mean 20260101-000000-a-0001"]),
    ],
)
def test_a_run_that_is_not_found_is_explained_in_one_sentence(home, name, words):
    for known in ("20260101-000000-a-0001", "20260101-000000-b-0002"):
        finished(home, known)
    with pytest.raises(UsageError) as caught:
        find_run(home, name)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_there_is_no_last_run_of_none(home):
    with pytest.raises(UsageError, match=r"no run 'last' under .*home"):
        find_run(home, "last")


# What cannot be written


def told_once(error):
    told = str(error)
    return (
        error.exit_code is ExitCode.ERROR and "\n" not in told and told.startswith("cannot write ")
    )


@pytest.mark.parametrize("place", ["a-file", "a-file/below", "/proc/none"])
def test_a_home_that_cannot_be_written_is_told_in_one_sentence(tmp_path, place):
    (tmp_path / "a-file").write_text("")
    with pytest.raises(MissingError) as caught:
        create_run(tmp_path / place, "suite")
    message = str(caught.value)
    assert caught.value.exit_code is ExitCode.MISSING
    assert message.startswith(f"cannot write {tmp_path / place}")
    assert message.endswith("; choose another folder by --home or SPBENCH_HOME")
    assert "\n" not in message


def test_a_full_disk_is_told_in_one_sentence(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    monkeypatch.setattr(event_log, "open_to_append", lambda *_: os.open("/dev/full", os.O_RDWR))
    log = EventLog(path)
    with pytest.raises(FailedRunError) as caught:
        log.append(b"{}\n")
    log.close()
    assert told_once(caught.value)
    mend = "free some space there or write elsewhere"
    assert str(caught.value) == f"cannot write {path}: No space left on device; {mend}"


def test_a_torn_last_line_is_cut_off_when_a_log_is_gone_on_with(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event":"a"}\n' + b'{"event":' + b"x" * 100_000)
    log = EventLog(path)
    log.append(b'{"event":"b"}\n')
    log.close()
    assert path.read_bytes() == b'{"event":"a"}\n{"event":"b"}\n'


def test_a_log_that_is_torn_in_its_first_line_begins_anew(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event":')
    EventLog(path).close()
    assert path.read_bytes() == b""


def test_two_consoles_do_not_write_one_log(tmp_path):
    path = tmp_path / "events.jsonl"
    first = EventLog(path)
    with pytest.raises(UsageError, match=r"events.jsonl is written by another spbench"):
        EventLog(path)
    first.close()
    EventLog(path).close()


def test_a_log_that_cannot_be_made_is_told_in_one_sentence(tmp_path):
    with pytest.raises(FailedRunError) as caught:
        EventLog(tmp_path / "missing" / "events.jsonl")
    assert told_once(caught.value)
    assert str(caught.value).endswith("events.jsonl: No such file or directory")


def test_a_job_folder_that_cannot_be_made_is_told_in_one_sentence(tmp_path):
    (tmp_path / "jobs").write_text("")
    with pytest.raises(FailedRunError) as caught:
        RunFolder(tmp_path).job(1)
    assert told_once(caught.value)


# Files


def test_a_file_is_written_whole_and_leaves_no_draft(tmp_path):
    for text in ("old", "new"):
        write_file(tmp_path / "below" / "report.json", text)
    assert [path.name for path in (tmp_path / "below").iterdir()] == ["report.json"]
    assert (tmp_path / "below" / "report.json").read_text() == "new"


def test_a_file_that_cannot_be_written_leaves_no_draft_and_the_old_one(tmp_path):
    target = tmp_path / "report.json"
    target.mkdir()
    with pytest.raises(FailedRunError):
        write_file(target, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_file_below_a_file_is_told_in_one_sentence(tmp_path):
    (tmp_path / "a-file").write_text("")
    with pytest.raises(FailedRunError) as caught:
        write_file(tmp_path / "a-file" / "report.json", "text")
    assert told_once(caught.value)


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    taken = []
    reader = threading.Thread(target=lambda: taken.append(pipe.read_text()), daemon=True)
    reader.start()
    write_file(pipe, "text")
    reader.join(2.0)
    assert taken == ["text"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("content", [None, "", "{", "[1]", "null"])
def test_json_that_is_missing_or_torn_is_empty(tmp_path, content):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    assert RunFolder(tmp_path).read_json("run.json") == {}


def test_a_folder_that_was_removed_is_not_made_again(home):
    folder = create_run(home, "a")
    folder.path.rmdir()
    with pytest.raises(FailedRunError, match=r"cannot write .*report\.json: No such file"):
        folder.write_json("report.json", {})
    with pytest.raises(FailedRunError, match=r"cannot write .*jobs/1: No such"):
        folder.job(1)
    assert not folder.path.exists()


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def modes_of(folder):
    """The modes of a run's folder and of all in it."""
    folder.write_json("run.json", {})
    (folder.job(1) / "made").mkdir(folder.path.stat().st_mode & 0o777)
    folder.write_json("jobs/1/argv.json", {})
    record(folder, SHORT_RUN)
    found = [folder.path, *folder.path.rglob("*")]
    folders = {path.stat().st_mode & 0o777 for path in found if path.is_dir()}
    return folders, {path.stat().st_mode & 0o777 for path in found if path.is_file()}


def test_a_run_is_its_owners_alone(home, no_umask):
    assert modes_of(create_run(home, "a")) == ({0o700}, {0o600})


@pytest.mark.parametrize(
    ("umask", "folder", "file"),
    [(0o022, 0o755, 0o644), (0o027, 0o750, 0o640), (0o077, 0o700, 0o600)],
)
def test_a_shared_run_is_for_whom_the_umask_allows(home, no_umask, umask, folder, file):
    os.umask(umask)
    assert modes_of(create_run(home, "a", shared=True)) == ({folder}, {file})


def test_a_run_that_another_user_has_not_shared_is_told(home, monkeypatch):
    theirs = create_run(home, "a")
    monkeypatch.setattr(os.path, "isfile", lambda path: False)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert list_runs(home) == []
    with pytest.raises(UsageError, match=f"run {theirs.id} is another user's, who has not shared"):
        find_run(home, theirs.id)


def test_json_is_never_nan(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        RunFolder(tmp_path).write_json("report.json", {"value": float("nan")})


def test_events_come_back_as_they_were_written(tmp_path):
    events = [console_event("notice", message=f"{number} ½\n") for number in range(3)]
    log = EventLog(tmp_path / "events.jsonl")
    for event in events:
        log.append(encode(event))
    log.close()
    assert list(RecordedEvents(tmp_path / "events.jsonl")) == events


def test_a_log_is_appended_to(tmp_path):
    for number in range(2):
        log = EventLog(tmp_path / "events.jsonl")
        log.append(encode(console_event("notice", number=number)))
        log.close()
    assert [event["number"] for event in RecordedEvents(tmp_path / "events.jsonl")] == [0, 1]


def test_a_recorded_run_replays(home):
    assert recorded(home, whole_run()).replay().run.verdict == "passed"


# Whether its console lives


@pytest.fixture
def console():
    words = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "spbench"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # before that /proc may not have its words yet
        yield process
        process.kill()


def place_of(console, **changes):
    place = {"pid": console.pid, "host": socket.gethostname(), "started": time.time()}
    return {"console": place | changes}


def test_a_run_lives_as_long_as_its_console(home, console):
    folder = recorded(home, SHORT_RUN, **place_of(console))
    assert folder.is_alive()
    console.kill()
    console.wait()
    assert not folder.is_alive()


def test_of_a_console_on_another_host_only_the_log_tells(home, console):
    folder = recorded(home, SHORT_RUN, **place_of(console, host="elsewhere"))
    assert folder.find_other_host() == "elsewhere"
    assert folder.is_alive() is None
    long_ago = time.time() - QUIET - 60
    os.utime(folder.events, (long_ago, long_ago))
    assert folder.is_alive() is False
    folder.events.unlink()
    assert folder.is_alive() is None, "it has not begun to write"


def test_a_console_of_this_host_is_not_elsewhere(home, console, tmp_path):
    assert recorded(home, SHORT_RUN, **place_of(console)).find_other_host() is None
    assert recorded(home, SHORT_RUN, **place_of(console, host=None)).find_other_host() is None
    assert RunFolder(tmp_path).find_other_host() is None


def test_another_program_of_that_number_is_no_console(home, console):
    assert not recorded(home, SHORT_RUN, **place_of(console, pid=1)).is_alive()


def test_a_program_with_a_file_in_a_folder_called_spbench_is_no_console():
    words = [sys.executable, "-c", "input()", "/home/someone/spbench/notes"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as other:
        while not Path(f"/proc/{other.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        assert process_start(other.pid) is None


def test_a_process_that_began_after_the_run_is_not_its_console(home, console):
    began = time.time()
    assert recorded(home, SHORT_RUN, **place_of(console, started=began + 3600)).is_alive()
    assert not recorded(home, SHORT_RUN, **place_of(console, started=began - 3600)).is_alive()
    assert not recorded(home, SHORT_RUN, **place_of(console, started=None)).is_alive()


def test_a_console_is_known_whatever_the_system_clock_says(home, console):
    begun = process_start(console.pid)
    ahead = time.time() + 7200
    behind = time.time() - 7200
    for started in (ahead, behind):
        place = place_of(console, started=started, since_boot=begun)
        assert recorded(home, SHORT_RUN, **place).is_alive()
        place = place_of(console, started=started, since_boot=begun - 1.0)
        assert not recorded(home, SHORT_RUN, **place).is_alive()


def test_a_folder_without_run_json_is_not_alive(tmp_path):
    assert not RunFolder(tmp_path).is_alive()


def test_run_json_is_json(home):
    folder = recorded(home, SHORT_RUN, verdict="passed")
    assert json.loads((folder.path / "run.json").read_text())["verdict"] == "passed"


def test_a_json_file_with_a_huge_number_is_rejected_in_plain_words(tmp_path):
    path = tmp_path / "baseline.json"
    path.write_text(f'{{"a": {"9" * 5000}}}')
    with pytest.raises(ValueError, match=r"a number in .*\.json has more than 4300 digits"):
        read_json(path)
