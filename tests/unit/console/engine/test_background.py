import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

from places import SUITES
from running import script_head
from spbench.cli.app import run_command_line
from spbench.cli.request import _LAUNCH_OPTIONS
from spbench.engine.background import (
    build_rerun_args,
    build_run_args,
    cancel_run,
    find_running,
    find_start_folder,
    has_running,
    start_run,
)
from spbench.errors import ExitCode, FailedRunError, UsageError
from spbench.launch.choice import LaunchChoice
from spbench.record.runs.folder import RunFolder
from unit.events import recorded, run_start

HALO = SUITES / "halo.yaml"
PATIENCE = 30.0

CONSOLE = f"""\
{script_head("-IS")}
import json, os, signal, socket, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
home = sys.argv[sys.argv.index("--home") + 1]
folder = os.path.join(home, "runs", "20260101-000000-made-up-0000")
os.makedirs(folder)
console = {{"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}}
run = {{"argv": sys.argv[3:], "cwd": os.getcwd(), "console": console}}
with open(os.path.join(folder, "draft"), "w") as file:
    json.dump(run, file)
os.rename(os.path.join(folder, "draft"), os.path.join(folder, "run.json"))
print("begun", sys.stdin.read(), os.environ.get("LETTER"), flush=True)
signal.sigwait([signal.SIGINT])
sys.exit(130)
"""
"""A console that makes its run's folder, and ends by Ctrl-C; it runs nothing."""


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def stand_in(tmp_path):
    program = tmp_path / "console"
    program.write_text(CONSOLE)
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def console(stand_in, monkeypatch):
    monkeypatch.setattr(sys, "executable", stand_in)


@pytest.fixture
def begin(home, tmp_path):
    """Starts runs, and ends those that a test leaves over."""
    started = []

    def begin(*words, **environ):
        launched = start_run(words, home, os.environ | environ, tmp_path)
        started.append(launched)
        return launched

    yield begin
    for launched in started:
        if launched.exit_status() is None:
            os.kill(launched.pid, signal.SIGKILL)
            until(launched.exit_status)


def until(look):
    """The first thing that a look gives, for which others' processes need their time."""
    deadline = time.monotonic() + PATIENCE
    while (seen := look()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return seen


# Real runs that are refused


@pytest.mark.slow
def test_the_errors_of_a_suite_are_the_complaint(begin, home, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("schema: spbench.suite/1\nname: s\ncases:\n  - {name: a, benchmark: b}\n")
    launched = begin("bad.yaml")
    assert launched.read_last_lines() is None
    assert until(launched.exit_status) is ExitCode.USAGE
    assert launched.folder() is None
    assert launched.read_last_lines().startswith("bad.yaml:4:26: error: unknown benchmark 'b'")
    assert launched.log.parent == home / "console"


@pytest.mark.slow
def test_a_missing_launcher_is_the_complaint(begin):
    pytest.importorskip("mpi4py")
    launched = begin(*build_run_args(HALO, LaunchChoice(launcher="mpirun_rsh")), PATH="")
    assert until(launched.exit_status) is ExitCode.MISSING
    assert launched.read_last_lines().startswith("launcher mpirun_rsh is not installed")


# A run that goes on


@pytest.mark.usefixtures("console")
def test_a_run_is_found_by_its_console(begin, home, tmp_path):
    recorded(home, [run_start()])
    launched = begin("a.yaml", LETTER="x")
    folder = until(launched.folder)
    assert folder.path == home / "runs" / "20260101-000000-made-up-0000"
    assert (launched.exit_status(), launched.read_last_lines()) == (None, None)
    assert os.getsid(launched.pid) == launched.pid
    until(lambda: launched.log.read_text() or None)
    assert launched.log.read_text() == "begun  x\n"
    assert find_running(home) == [folder]
    run = folder.read_json("run.json")
    assert run["argv"] == ["run", "a.yaml", "--headless", "--home", str(home)]
    assert build_rerun_args(folder) == ("a.yaml",)
    assert find_start_folder(folder) == tmp_path


@pytest.mark.usefixtures("console")
def test_a_run_is_cancelled_as_by_ctrl_c(begin, home):
    launched = begin("a.yaml")
    assert has_running()
    folder = until(launched.folder)
    cancel_run(folder)
    assert until(launched.exit_status) is ExitCode.INTERRUPTED
    assert not has_running()
    assert launched.read_last_lines() is None
    assert find_running(home) == []
    with pytest.raises(UsageError, match="has ended; there is nothing to cancel"):
        cancel_run(folder)


def test_a_run_is_cancelled_before_it_has_a_folder(begin, monkeypatch, tmp_path):
    program = tmp_path / "sleeper"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    launched = begin("a.yaml")
    launched.cancel()
    assert until(launched.exit_status) == -signal.SIGINT
    assert launched.read_last_lines() == "the run ended with status -2 and said nothing"
    launched.cancel()


def test_folders_of_others_are_read_only_once(begin, home, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", "/bin/true")
    launched = begin("a.yaml")
    other = recorded(home, [run_start()])
    half = home / "runs" / "half"
    half.mkdir()
    read = []
    plain = RunFolder.read_json

    def read_json(folder, name):
        read.append(folder.id)
        return plain(folder, name)

    monkeypatch.setattr(RunFolder, "read_json", read_json)
    assert [launched.folder(), launched.folder()] == [None, None]
    assert sorted(read) == sorted([other.id, "half", "half"])
    until(launched.exit_status)


def test_a_run_that_cannot_be_started_says_why(home, tmp_path, monkeypatch):
    with pytest.raises(FailedRunError, match=r"cannot start a run in .*/missing: there is no such"):
        start_run((), home, {}, tmp_path / "missing")
    assert not home.exists()
    monkeypatch.setattr(sys, "executable", "/no/python")
    with pytest.raises(FailedRunError, match=r"cannot start a run with .*: No such file"):
        start_run((), home, {}, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(FailedRunError, match=r"cannot write .*: .*/file is not a folder"):
        start_run((), tmp_path / "file", {}, tmp_path)


def test_the_runs_of_other_hosts_and_of_the_past_do_not_go_on(home):
    here = {"pid": os.getpid(), "host": socket.gethostname(), "started": 1000.0}
    past = recorded(home, [run_start()], console=here)
    elsewhere = recorded(home, [run_start()], console=here | {"host": "node07"})
    assert find_running(home) == []
    with pytest.raises(UsageError, match="has ended; there is nothing to cancel"):
        cancel_run(past)
    with pytest.raises(UsageError, match="runs on node07; cancel it there"):
        cancel_run(elsewhere)


@pytest.mark.usefixtures("console")
def test_a_console_with_a_report_is_at_its_end(begin, home):
    launched = begin("a.yaml")
    folder = until(launched.folder)
    assert find_running(home) == [folder]
    folder.write_json("report.json", {})
    assert find_running(home) == []


def test_a_run_outlives_the_process_that_started_it(home, stand_in):
    program = (
        "import os, sys\nfrom pathlib import Path\n"
        "from spbench.engine.background import start_run\n"
        "sys.executable, home = sys.argv[1:]\n"
        "print(start_run(['a.yaml'], Path(home), os.environ, Path.cwd()).pid)\n"
    )
    words = [sys.executable, "-c", program, stand_in, str(home)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    folder = until(lambda: next(iter(find_running(home)), None))
    assert folder.read_json("run.json")["console"]["pid"] == int(done.stdout)
    cancel_run(folder)
    assert until(lambda: not find_running(home) or None)


# Words


ASKED: dict[str, Any] = {
    "keyword": "small and not square",
    "cases": ("small[slice_method=square]",),
    "inject": "slow@small",
    "launch_choice": LaunchChoice(
        Path("my hosts"),
        "node[01-02]:4",
        "node02",
        "hydra",
        "login.ib,10.0.0.1",
        "5000-5010",
        oversubscribe=True,
    ),
    "overrides": ("halo_len=2", "launch.timeout=3"),
}


@pytest.fixture
def requested(monkeypatch):
    """Reads words as ``spbench run`` does; gives the request that it would plan."""

    def read(*words):
        seen = []

        def plan(request, warn):
            seen.append(request)
            raise UsageError("enough")

        monkeypatch.setattr("spbench.engine.plan.plan_run", plan)
        monkeypatch.setattr(sys, "argv", ["spbench", "run", *words])
        assert run_command_line(["run", *words]) == ExitCode.USAGE
        return seen[0]

    return read


def test_every_field_of_a_launch_choice_is_an_option():
    assert list(_LAUNCH_OPTIONS) == [field.name for field in fields(LaunchChoice)]
    unset = [name for name, value in asdict(ASKED["launch_choice"]).items() if value is None]
    assert unset == ["assume"], "what is assumed cannot be run"


def test_words_ask_for_what_was_asked(requested):
    request = requested(*build_run_args(Path("s.yaml"), **ASKED), "--headless", "--home", "h")
    for name, value in ASKED.items():
        got = getattr(request, name)
        assert got == ((value,) if name == "inject" else value)
    assert (request.suite, request.home) == (Path("s.yaml"), Path("h"))


def test_what_is_not_asked_is_not_said(requested):
    assert build_run_args(HALO) == (str(HALO),)
    assert requested(*build_run_args(Path("-k.yaml"))).suite == Path("-k.yaml")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["run", "s.yaml"], ("s.yaml",)),
        (["run", "--headless", "--home", "h", "s.yaml", "-k", "a b"], ("s.yaml", "-k", "a b")),
        (["run", "s.yaml", "--home=h", "--json", "-", "--no-samples"], ("s.yaml",)),
        (["run", "s.yaml", "--json=r.json", "--budget", "5m"], ("s.yaml", "--budget", "5m")),
        (["run", "s.yaml", "--home"], ("s.yaml",)),
        ([], ("suites/s.yaml",)),
        (None, ("suites/s.yaml",)),
    ],
)
def test_a_run_again_asks_for_the_same_elsewhere(home, argv, words):
    folder = recorded(home, [], argv=argv, file="suites/s.yaml")
    assert build_rerun_args(folder) == words


def test_a_run_that_does_not_say_what_it_was_is_not_run_again(home):
    with pytest.raises(UsageError, match="does not say what it was asked for"):
        build_rerun_args(recorded(home, []))


def test_the_folder_of_a_run_is_none_where_it_is_gone_or_not_known(home, tmp_path):
    assert find_start_folder(recorded(home, [], cwd=str(tmp_path))) == tmp_path
    assert find_start_folder(recorded(home, [], cwd=str(tmp_path / "gone"))) is None
    assert find_start_folder(recorded(home, [])) is None
