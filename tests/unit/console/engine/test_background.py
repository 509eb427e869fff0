"""Runs in the background: start, look-up, cancellation and repetition."""

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
from support.paths import SUITES
from support.runs import build_script_head
from support.sample_events import record_run, run_start

HALO = SUITES / "halo.yaml"
TIMEOUT = 30.0

CONSOLE = f"""\
{build_script_head("-IS")}
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
"""A program that creates the folder of a run like a console and ends on Ctrl-C."""


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def stand_in_program(tmp_path):
    program = tmp_path / "console"
    program.write_text(CONSOLE)
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def stand_in_console(stand_in_program, monkeypatch):
    monkeypatch.setattr(sys, "executable", stand_in_program)


@pytest.fixture
def start(home, tmp_path):
    """Return a function that starts runs; end those still running after the test."""
    started = []

    def start(*arguments, **environ):
        launched = start_run(arguments, home, os.environ | environ, tmp_path)
        started.append(launched)
        return launched

    yield start
    for launched in started:
        if launched.get_exit_status() is None:
            os.kill(launched.pid, signal.SIGKILL)
            poll(launched.get_exit_status)


def poll(probe):
    """Return the first value of ``probe`` that is not None, once processes provide it."""
    deadline = time.monotonic() + TIMEOUT
    while (value := probe()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


# Rejected runs


@pytest.mark.slow
def test_last_lines_are_the_errors_of_the_suite(start, home, tmp_path):
    suite = tmp_path / "bad.yaml"
    suite.write_text("schema: spbench.suite/1\nname: s\ncases:\n  - {name: a, benchmark: b}\n")
    launched = start("bad.yaml")
    assert launched.read_last_lines() is None
    assert poll(launched.get_exit_status) is ExitCode.USAGE
    assert launched.find_folder() is None
    assert launched.read_last_lines().startswith("bad.yaml:4:26: error: unknown benchmark 'b'")
    assert launched.log.parent == home / "console"


@pytest.mark.slow
def test_last_lines_report_a_missing_launcher(start):
    pytest.importorskip("mpi4py")
    launched = start(*build_run_args(HALO, LaunchChoice(launcher="mpirun_rsh")), PATH="")
    assert poll(launched.get_exit_status) is ExitCode.MISSING
    assert launched.read_last_lines().startswith("launcher mpirun_rsh is not installed")


# Running runs


@pytest.mark.usefixtures("stand_in_console")
def test_finds_a_run_by_its_console(start, home, tmp_path):
    record_run(home, [run_start()])
    launched = start("a.yaml", LETTER="x")
    folder = poll(launched.find_folder)
    assert folder.path == home / "runs" / "20260101-000000-made-up-0000"
    assert (launched.get_exit_status(), launched.read_last_lines()) == (None, None)
    assert os.getsid(launched.pid) == launched.pid
    poll(lambda: launched.log.read_text() or None)
    assert launched.log.read_text() == "begun  x\n"
    assert find_running(home) == [folder]
    run = folder.read_json("run.json")
    assert run["argv"] == ["run", "a.yaml", "--headless", "--home", str(home)]
    assert build_rerun_args(folder) == ("a.yaml",)
    assert find_start_folder(folder) == tmp_path


@pytest.mark.usefixtures("stand_in_console")
def test_cancels_a_run_like_ctrl_c(start, home):
    launched = start("a.yaml")
    assert has_running()
    folder = poll(launched.find_folder)
    cancel_run(folder)
    assert poll(launched.get_exit_status) is ExitCode.INTERRUPTED
    assert not has_running()
    assert launched.read_last_lines() is None
    assert find_running(home) == []
    with pytest.raises(UsageError, match="has ended; there is nothing to cancel"):
        cancel_run(folder)


def test_cancels_a_run_before_it_has_a_folder(start, monkeypatch, tmp_path):
    program = tmp_path / "sleeper"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    launched = start("a.yaml")
    launched.cancel()
    assert poll(launched.get_exit_status) == -signal.SIGINT
    assert launched.read_last_lines() == "the run ended with status -2 and said nothing"
    launched.cancel()


def test_reads_folders_of_other_runs_only_once(start, home, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", "/bin/true")
    launched = start("a.yaml")
    other = record_run(home, [run_start()])
    incomplete = home / "runs" / "half"
    incomplete.mkdir()
    ids_read = []
    original = RunFolder.read_json

    def read_json(folder, name):
        ids_read.append(folder.id)
        return original(folder, name)

    monkeypatch.setattr(RunFolder, "read_json", read_json)
    assert [launched.find_folder(), launched.find_folder()] == [None, None]
    assert sorted(ids_read) == sorted([other.id, "half", "half"])
    poll(launched.get_exit_status)


def test_start_failure_reports_its_reason(home, tmp_path, monkeypatch):
    with pytest.raises(FailedRunError, match=r"cannot start a run in .*/missing: there is no such"):
        start_run((), home, {}, tmp_path / "missing")
    assert not home.exists()
    monkeypatch.setattr(sys, "executable", "/no/python")
    with pytest.raises(FailedRunError, match=r"cannot start a run with .*: No such file"):
        start_run((), home, {}, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(FailedRunError, match=r"cannot write .*: .*/file is not a folder"):
        start_run((), tmp_path / "file", {}, tmp_path)


def test_past_and_remote_runs_are_not_running(home):
    console = {"pid": os.getpid(), "host": socket.gethostname(), "started": 1000.0}
    ended = record_run(home, [run_start()], console=console)
    elsewhere = record_run(home, [run_start()], console=console | {"host": "node07"})
    assert find_running(home) == []
    with pytest.raises(UsageError, match="has ended; there is nothing to cancel"):
        cancel_run(ended)
    with pytest.raises(UsageError, match="runs on node07; cancel it there"):
        cancel_run(elsewhere)


@pytest.mark.usefixtures("stand_in_console")
def test_run_with_a_report_is_not_running(start, home):
    launched = start("a.yaml")
    folder = poll(launched.find_folder)
    assert find_running(home) == [folder]
    folder.write_json("report.json", {})
    assert find_running(home) == []


def test_run_outlives_the_process_that_started_it(home, stand_in_program):
    program = (
        "import os, sys\nfrom pathlib import Path\n"
        "from spbench.engine.background import start_run\n"
        "sys.executable, home = sys.argv[1:]\n"
        "print(start_run(['a.yaml'], Path(home), os.environ, Path.cwd()).pid)\n"
    )
    command = [sys.executable, "-c", program, stand_in_program, str(home)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    folder = poll(lambda: next(iter(find_running(home)), None))
    assert folder.read_json("run.json")["console"]["pid"] == int(process.stdout)
    cancel_run(folder)
    assert poll(lambda: not find_running(home) or None)


# Arguments


OPTIONS: dict[str, Any] = {
    "keyword": "small and not square",
    "cases": ("small[slice_method=square]",),
    "inject": ("slow@small", "kill@large"),
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
def parse_request(monkeypatch):
    """Return a function that parses arguments of ``spbench run`` into its request."""

    def parse(*arguments):
        requests = []

        def plan(request, warn):
            requests.append(request)
            raise UsageError("enough")

        monkeypatch.setattr("spbench.engine.plan.plan_run", plan)
        monkeypatch.setattr(sys, "argv", ["spbench", "run", *arguments])
        assert run_command_line(["run", *arguments]) == ExitCode.USAGE
        return requests[0]

    return parse


def test_every_field_of_a_launch_choice_is_an_option():
    assert list(_LAUNCH_OPTIONS) == [field.name for field in fields(LaunchChoice)]
    unset = [name for name, value in asdict(OPTIONS["launch_choice"]).items() if value is None]
    assert unset == ["assume"], "a run with assumed hosts is rejected"


def test_arguments_parse_to_the_same_request(parse_request):
    request = parse_request(*build_run_args(Path("s.yaml"), **OPTIONS), "--headless", "--home", "h")
    for name, value in OPTIONS.items():
        actual = getattr(request, name)
        assert actual == value
    assert (request.suite, request.home) == (Path("s.yaml"), Path("h"))


def test_defaults_add_no_arguments(parse_request):
    assert build_run_args(HALO) == (str(HALO),)
    assert parse_request(*build_run_args(Path("-k.yaml"))).suite == Path("-k.yaml")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["run", "s.yaml"], ("s.yaml",)),
        (["run", "--headless", "--home", "h", "s.yaml", "-k", "a b"], ("s.yaml", "-k", "a b")),
        (["run", "s.yaml", "--home=h", "--json", "-", "--no-samples"], ("s.yaml",)),
        (["run", "s.yaml", "--json=r.json", "--budget", "5m"], ("s.yaml", "--budget", "5m")),
        (["run", "s.yaml", "--junit", "j.xml", "--html=r.html"], ("s.yaml",)),
        (["run", "s.yaml", "--quiet", "-v", "-q", "--verbose"], ("s.yaml",)),
        (["run", "s.yaml", "--home"], ("s.yaml",)),
        ([], ("suites/s.yaml",)),
        (None, ("suites/s.yaml",)),
    ],
)
def test_rerun_arguments_omit_outputs_and_home(home, argv, expected):
    folder = record_run(home, [], argv=argv, file="suites/s.yaml")
    assert build_rerun_args(folder) == expected


@pytest.mark.parametrize(
    "options", [[], ["--set", "repeat=2"], ["--set=repeat=2"], ["--set", "repeat=1", "-k", "a"]]
)
def test_rerun_arguments_set_the_repeat_once(home, options):
    folder = record_run(home, [], argv=["run", "s.yaml", "--set", "seed=1", *options], file="s")
    args = build_rerun_args(folder, 6)
    assert args[:3] == ("s.yaml", "--set", "seed=1")
    assert args[-2:] == ("--set", "repeat=6")
    assert sum("repeat=" in arg for arg in args) == 1


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("s.yaml", "--inject", "slow", "-k", "a"), ("s.yaml", "-k", "a")),
        (("--inject=slow@a", "s.yaml", "--inject", "kill,rank=0@b"), ("s.yaml",)),
        (("s.yaml",), ("s.yaml",)),
        (("--failed", "last"), ("--failed", "last", "--without-faults")),
        (("--failed=last", "--without-faults"), ("--failed=last", "--without-faults")),
    ],
)
def test_rerun_arguments_may_leave_the_faults_out(home, args, expected):
    folder = record_run(home, [], argv=["run", *args])
    assert build_rerun_args(folder, with_faults=False) == expected
    assert build_rerun_args(folder) == args


def test_rejects_a_rerun_without_recorded_arguments(home):
    with pytest.raises(UsageError, match="does not say what it was asked for"):
        build_rerun_args(record_run(home, []))


def test_missing_or_unknown_start_folder_is_none(home, tmp_path):
    assert find_start_folder(record_run(home, [], cwd=str(tmp_path))) == tmp_path
    assert find_start_folder(record_run(home, [], cwd=str(tmp_path / "gone"))) is None
    assert find_start_folder(record_run(home, [])) is None
