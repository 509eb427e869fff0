"""Links, pipes and folders planted at paths that spbench writes next."""

import ast
import errno
import os
import sys
from pathlib import Path

import pytest

import spbench
from spbench.engine import background, processes
from spbench.engine.stop import remove_cancel_request, request_cancel
from spbench.errors import FailedRunError, SpbenchError
from spbench.launch.hosts.hostfiles import write_hostfile
from spbench.launch.launcher import Command
from spbench.record.runs.event_log import EventLog
from spbench.record.runs.files import write_file
from spbench.record.runs.folder import RunFolder, create_run
from spbench.record.runs.index_file import UnusableIndexError, open_writing
from spbench.record.runs.notes import NO_NOTE, RunNote, read_note, write_note
from spbench.record.runs.prune import remove_run
from spbench.suites.shipped import copy_shipped
from spbench.tui.failed_page import write_report
from spbench.tui.suites.recovery import RecoveryFile
from support.sample_events import make_complete_run, record_run

CONTENT = "precious\n"
KINDS = ("link", "link-to-nothing", "hard-link", "pipe", "folder")
JOB_FILES = ("jobs/1/argv.json", "jobs/1/env.json", "jobs/1/hostfile")
FILES = ("run.json", "suite.yaml", "report.json", "note.json", "cancel.json", *JOB_FILES)
CONSOLE = {"pid": 0, "host": "elsewhere", "started": 5.0}


class OutsideFile:
    """A user's file outside the run's folder; it and its folder must not change."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder = folder
        self.file = folder / "file"
        self.file.write_text(CONTENT)

    def plant(self, path, kind):
        """Replace a path by something that leads to this file."""
        if path.exists():
            path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            path.symlink_to(self.file)
        elif kind == "link-to-nothing":
            path.symlink_to(self.folder / "new")
        elif kind == "hard-link":
            os.link(self.file, path)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()

    def assert_unchanged(self):
        assert self.file.read_text() == CONTENT
        assert [path.name for path in self.folder.iterdir()] == ["file"]


@pytest.fixture
def outside(tmp_path):
    return OutsideFile(tmp_path / "outside")


@pytest.fixture
def run(tmp_path):
    return record_run(tmp_path / "home", make_complete_run(), verdict="passed", console=CONSOLE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_writing_a_run_file_replaces_a_planted_path(run, outside, name, kind):
    outside.plant(run.path / name, kind)
    if kind == "folder":
        with pytest.raises(FailedRunError, match="cannot write"):
            run.write_text(name, "new")
    else:
        run.write_text(name, "new")
        assert (run.path / name).read_text() == "new"
        assert not (run.path / name).is_symlink()
    outside.assert_unchanged()


@pytest.mark.parametrize("name", FILES)
def test_does_not_write_to_a_planted_temporary_file(run, outside, name):
    path = run.path / name
    outside.plant(path.with_name(f".{path.name}.{os.getpid()}"), "link")
    run.write_text(name, "new")
    outside.assert_unchanged()


@pytest.mark.parametrize("kind", KINDS)
def test_notes_and_cancel_requests_do_not_follow_links(run, outside, kind):
    for name in ("note.json", "cancel.json"):
        outside.plant(run.path / name, kind)
    assert read_note(run) == NO_NOTE
    request_cancel(run)
    if kind == "folder":
        with pytest.raises(FailedRunError, match=r"note\.json"):
            write_note(run, RunNote("x"))
    else:
        write_note(run, RunNote("x"))
        write_note(run, NO_NOTE)
        remove_cancel_request(run)
        assert not {"note.json", "cancel.json"} & {path.name for path in run.path.iterdir()}
    outside.assert_unchanged()


@pytest.mark.parametrize("planted", ["jobs", "jobs/1"])
@pytest.mark.parametrize("name", JOB_FILES)
def test_rejects_a_link_instead_of_a_folder_of_the_run(run, outside, planted, name):
    path = run.path / planted
    path.parent.mkdir(exist_ok=True)
    (outside.folder / "1").mkdir()
    path.symlink_to(outside.folder)
    with pytest.raises(FailedRunError, match=f"{path.name} is a link, which spbench does not"):
        run.write_text(name, "new")
    with pytest.raises(FailedRunError, match=f"{path.name} is a link, which spbench does not"):
        run.create_job_folder(1)
    (outside.folder / "1").rmdir()
    outside.assert_unchanged()


@pytest.mark.parametrize("name", ["runs", "run"])
def test_run_folder_and_its_parent_may_be_links(tmp_path, run, name):
    link = tmp_path / "link"
    link.symlink_to(run.path if name == "run" else run.path.parent)
    linked = RunFolder(link if name == "run" else link / run.id)
    write_note(linked, RunNote("x"))
    EventLog(linked.events).close()
    linked.create_job_folder(1)
    linked.write_text("jobs/1/argv.json", "new")
    assert read_note(run) == RunNote("x")
    assert (run.path / "jobs" / "1" / "argv.json").read_text() == "new"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("link", "it is a link"),
        ("link-to-nothing", "it is a link"),
        ("hard-link", "it has another name"),
        ("pipe", "it is a pipe or a device"),
        ("folder", "Is a directory"),
    ],
)
def test_rejects_a_log_that_is_not_a_plain_file(run, outside, kind, reason):
    outside.plant(run.events, kind)
    with pytest.raises(FailedRunError, match=f"cannot write .*events.jsonl: {reason}"):
        EventLog(run.events)
    outside.assert_unchanged()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["stdout.log", "stderr.log"])
async def test_launcher_output_does_not_follow_a_planted_link(run, outside, name, kind):
    folder = run.create_job_folder(1)
    outside.plant(folder / name, kind)
    script = "import sys; print('out'); print('err', file=sys.stderr)"
    command = Command((sys.executable, "-ISc", script), {})
    if kind == "folder":
        with pytest.raises(FailedRunError, match="Is a directory"):
            await processes.start_launcher(command, folder, run.path)
    else:
        process = await processes.start_launcher(command, folder, run.path)
        assert await process.wait() == 0
        assert (folder / name).read_text() == name.removeprefix("std").replace(".log", "\n")
    outside.assert_unchanged()


async def test_launcher_output_rejects_a_linked_job_folder(run, outside):
    folder = run.path / "jobs" / "1"
    folder.parent.mkdir()
    folder.symlink_to(outside.folder)
    with pytest.raises(FailedRunError, match="1 is a link"):
        await processes.start_launcher(Command((sys.executable, "-c", ""), {}), folder, run.path)
    outside.assert_unchanged()


async def test_missing_job_folder_is_reported_as_a_write_error(run):
    folder = run.path / "jobs" / "1"  # it does not exist
    with pytest.raises(FailedRunError, match=r"cannot write .*jobs/1: No such file"):
        await processes.start_launcher(Command((sys.executable, "-c", ""), {}), folder, run.path)


def test_full_disk_keeps_the_old_file_without_leftovers(run, monkeypatch):
    run.write_text("report.json", "old")
    before = sorted(path.name for path in run.path.iterdir())

    def raise_disk_full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "rename", raise_disk_full)
    with pytest.raises(FailedRunError, match=r"report\.json: No space left .*; free some space"):
        run.write_text("report.json", "new")
    assert sorted(path.name for path in run.path.iterdir()) == before
    assert run.report.read_text() == "old"


# The home


@pytest.mark.parametrize("kind", KINDS)
def test_hostfile_replaces_a_planted_path(tmp_path, outside, kind, messages):
    path = write_hostfile(tmp_path, CONTENT)  # the same content as outside
    outside.plant(path, kind)
    if kind == "folder":
        with messages.raises(FailedRunError):
            write_hostfile(tmp_path, CONTENT)
    else:
        assert write_hostfile(tmp_path, CONTENT).read_text() == CONTENT
        assert not path.is_symlink()
    outside.assert_unchanged()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_rejects_an_index_that_is_not_a_plain_file(tmp_path, outside, kind, messages):
    outside.plant(tmp_path / "index.sqlite", kind)
    with messages.raises(UnusableIndexError), open_writing(tmp_path):
        pass
    outside.assert_unchanged()


def test_removing_a_run_does_not_follow_a_linked_trash_folder(tmp_path, run, outside):
    home = tmp_path / "home"
    (home / "removed").symlink_to(outside.folder)
    with pytest.raises(FailedRunError, match="removed is a link"):
        remove_run(home, run)
    assert run.path.is_dir()
    outside.assert_unchanged()


def test_removing_a_run_follows_no_link_inside_it(tmp_path, run, outside):
    (run.path / "jobs").symlink_to(outside.folder)
    outside.plant(run.path / "note.json", "link")
    assert remove_run(tmp_path / "home", run)
    outside.assert_unchanged()


@pytest.mark.parametrize("kind", ["link", "link-to-nothing", "pipe"])
def test_files_of_a_home_replace_planted_paths(tmp_path, outside, kind, monkeypatch):
    home = tmp_path / "home"
    suite = tmp_path / "a.yaml"
    monkeypatch.setattr("spbench.tui.failed_page.time.strftime", lambda *_: "now")
    unsaved = RecoveryFile.locate(home, suite)
    report = home / "crashes" / "console-now.txt"
    for path in (unsaved.path, report):
        outside.plant(path, kind)
    unsaved.write(suite, None, "text")
    write_report(home, "it failed")
    for path in (unsaved.path, report):
        assert (path.is_symlink(), path.is_file()) == (False, True)
        assert path.stat().st_mode & 0o777 == 0o600
    outside.assert_unchanged()


@pytest.mark.parametrize("kind", KINDS)
def test_shipped_files_replace_planted_paths(tmp_path, outside, kind):
    target = tmp_path / "here" / "suites" / "halo.yaml"
    outside.plant(target, kind)
    if kind == "folder":
        with pytest.raises(FailedRunError, match="cannot write"):
            copy_shipped(tmp_path / "here", force=True)
    else:
        copy_shipped(tmp_path / "here", force=True)
        assert not target.is_symlink()
    outside.assert_unchanged()


def test_log_of_a_console_is_private(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/python")
    with pytest.raises(SpbenchError):
        background.start_run((), tmp_path / "home", {}, tmp_path)
    [log] = (tmp_path / "home" / "console").iterdir()
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def zero_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("shared", [True, False])
def test_no_folder_above_a_run_is_world_writable(tmp_path, zero_umask, shared):
    folder = create_run(tmp_path / "new" / "home", "a", shared=shared)
    write_file(tmp_path / "new" / "home" / "baselines" / "a.json", "{}")
    for path in (*folder.path.parents[:3], tmp_path / "new" / "home" / "baselines"):
        assert path.stat().st_mode & 0o777 == 0o775, path


# Paths that the user chose


def test_existing_output_file_keeps_its_permissions(tmp_path, zero_umask):
    for mode in (0o600, 0o640, 0o666):
        path = tmp_path / "report.json"
        path.touch()
        path.chmod(mode)
        write_file(path, "new")
        assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_another_user_does_not_stay_world_writable(tmp_path):
    path = tmp_path / "report.json"
    path.touch()
    path.chmod(0o666)
    os.chown(path, 12345, 12345)
    write_file(path, "new")
    assert path.stat().st_mode & 0o777 == 0o664


def test_writes_a_file_with_a_long_name(tmp_path):
    path = tmp_path / ("é" * 127)
    write_file(path, "new")
    assert path.read_text() == "new"


def test_writes_to_an_open_file_by_its_descriptor_path(tmp_path):
    with (tmp_path / "out").open("w") as file:
        write_file(Path(f"/dev/fd/{file.fileno()}"), "new")
        link = tmp_path / "stdout"  # like /dev/stdout
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        write_file(link, "newer")
    assert link.is_symlink()
    assert (tmp_path / "out").read_text() == "newer"


def test_replaces_a_link_given_as_output(tmp_path, outside):
    outside.plant(tmp_path / "report.json", "link")
    write_file(tmp_path / "report.json", "new")
    outside.assert_unchanged()


# Writers other than write_file

_OTHER_WRITERS = {
    "__main__.py": "opens /dev/null for closed streams",
    "cli/runs/execution.py": "opens /dev/null",
    "cli/completion.py": "appends to the start-up file of the user's own shell",
    "batch/collect.py": "copies into a new folder with a random name and mode 0700",
    "suites/pipe_files.py": "writes to a pipe or a device given by the user",
    "record/runs/index_file.py": "creates the index with O_EXCL",
}
_COPIES = {"shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move"}
_MAKERS = {"tempfile.mkstemp", "mkstemp", "os.mkfifo", "os.mknod"}


def is_writing_call(call):
    """Return whether a call writes a file by name, judged by its source text."""
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    if last in ("write_bytes", "touch", "symlink_to", "hardlink_to"):
        return True
    if last == "write_text":
        return len(call.args) == 1  # RunFolder.write_text takes the name first
    if last != "open":
        return name in _COPIES | _MAKERS
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    arguments = [ast.unparse(value) for value in values]
    if name == "os.open":
        return any("O_CREAT" in argument or "WR" in argument for argument in arguments)
    modes = ("w", "wb", "a", "ab", "x", "xb", "r+b")
    return any(argument.strip("'") in modes for argument in arguments)


@pytest.mark.slow
def test_only_known_modules_write_files_directly():
    package = Path(spbench.__file__).parent
    writers = set()
    for path in package.rglob("*.py"):
        calls = (node for node in ast.walk(ast.parse(path.read_text())) if type(node) is ast.Call)
        if any(map(is_writing_call, calls)):
            writers.add(str(path.relative_to(package)))
    assert writers == set(_OTHER_WRITERS)
