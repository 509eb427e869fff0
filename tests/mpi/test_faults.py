"""Faults in a run: each is reported, ends in time, and leaves no process."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from spbench.engine.processes import find_processes
from spbench_core.catalog.planted_fault import RAISED_TEXT
from support.paths import ROOT, SUITES, TEST_SUITES
from support.runs import SPBENCH, RunProcess, RunResult, TerminalRunProcess, build_script_head, run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

FAULTS = str(TEST_SUITES / "faults.yaml")
LONG = str(TEST_SUITES / "long.yaml")
STUBBORN = str(TEST_SUITES / "stubborn.yaml")
HALO = str(SUITES / "halo.yaml")
HOST = socket.gethostname()
PYTHON = shlex.quote(sys.executable)
GPU_AND_HOST = """\
schema: spbench.suite/1
name: gpu-and-host
cases:
  - {name: host, benchmark: compute.gemm, np: 2, params: {n: 32, iterations: 5}}
  - {name: gpu, benchmark: compute.gemm, np: 2, params: {n: 32, iterations: 5, device: cuda}}
  - {name: after, benchmark: compute.gemm, np: 2, params: {n: 64, iterations: 5}}
"""


def assert_only_second_case_fails(result: RunResult, status: str) -> dict[str, object]:
    assert result.code == 4, result.stderr
    assert result.statuses == {"first": "passed", "second": status, "third": "passed"}
    assert "Traceback" not in result.stderr
    result.assert_no_process_left()
    result.assert_no_event_missing()
    return result.case("second")


def wait_until(condition: Callable[[], object], limit: float = 20.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.long
def test_corrupted_halo_fails_the_check_on_one_rank(tmp_path: Path) -> None:
    result = run(HALO, "-k", "uneven", "--inject", "corrupt-halo", home=tmp_path / "home")
    assert result.code == 1, result.stderr
    (case,) = result.report["cases"]
    (check,) = case["checks"]
    assert case["status"] == "failed"
    assert (check["ranks_passed"], check["ranks_failed"]) == (3, 1)
    assert f"rank 3 on {HOST}" in case["reason"]
    result.assert_no_process_left()


@pytest.mark.long
def test_fault_is_found_on_the_chosen_rank(tmp_path: Path) -> None:
    fault = "corrupt-halo,rank=1"
    result = run(HALO, "-k", "uneven", "--inject", fault, home=tmp_path / "home")
    assert result.code == 1, result.stderr
    (case,) = result.report["cases"]
    (check,) = case["checks"]
    assert (check["ranks_passed"], check["ranks_failed"]) == (3, 1)
    assert f"rank 1 on {HOST}" in case["reason"]
    assert case["reason"].endswith(f"; fault found, as planted: {fault}")


def test_fault_is_in_the_chosen_rank(tmp_path: Path) -> None:
    result = run(FAULTS, "--inject", "raise,rank=0@second", home=tmp_path / "home")
    case = assert_only_second_case_fails(result, "error")
    assert f"rank 0 on {HOST}" in str(case["reason"])
    assert str(case["reason"]).endswith("; fault found, as planted: raise,rank=0")


def test_rank_of_a_fault_must_exist(tmp_path: Path) -> None:
    result = run(FAULTS, "--inject", "kill,rank=2@second", home=tmp_path / "home")
    assert result.code == 2
    reason = "--inject kill,rank=2: case second has no rank 2, only 0 to 1"
    assert reason in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("fault", "message", "trace"),
    [
        ("raise", f"InjectedFaultError: {RAISED_TEXT}", "faults.py"),
        pytest.param("exit", "SystemExit: 3", "sys.exit(", marks=pytest.mark.long),
    ],
)
def test_rank_that_raises_or_exits_has_its_traceback_reported(
    tmp_path: Path, fault: str, message: str, trace: str
) -> None:
    result = run(FAULTS, "--inject", f"{fault}@second", home=tmp_path / "home")
    case = assert_only_second_case_fails(result, "error")
    assert f"rank 1 on {HOST}" in str(case["reason"])
    assert " s into second" in str(case["reason"])
    assert f"{message}; fault found, as planted: {fault}" in str(case["reason"])
    assert trace in str(case["traceback"])


def test_killed_rank_is_named_with_its_signal(tmp_path: Path) -> None:
    result = run(FAULTS, "--inject", "kill@second", home=tmp_path / "home")
    case = assert_only_second_case_fails(result, "error")
    assert f"rank 1 on {HOST}" in str(case["reason"])
    assert str(case["reason"]).endswith("(SIGKILL); fault found, as planted: kill")
    kinds = [e["event"] for e in result.events if e.get("rank") == 1 and e.get("case") == "second"]
    assert kinds == ["case_start", "device"]  # the fault kills it in its first iteration


@pytest.mark.long
def test_rank_killed_by_another_process_is_an_error(tmp_path: Path) -> None:
    run_process = RunProcess(LONG, home=tmp_path / "home").wait_for_timing()
    os.kill(run_process.find_pid(0), signal.SIGKILL)
    result = run_process.wait()
    assert result.code == 4
    assert result.statuses == {"long": "error", "after": "passed"}
    assert f"rank 0 on {HOST}" in result.case("long")["reason"]
    result.assert_no_process_left()


@pytest.mark.long
def test_rank_killed_before_the_first_case_fails_only_that_case(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "mark"
    kill_once = f"[ -e {mark} ] || {{ touch {mark}; kill -9 $$; }}"
    line = f'[ "$OMPI_COMM_WORLD_RANK" != 1 ] || {kill_once}'
    result = run(FAULTS, "--set", f"launch.setup=['{line}']", home=tmp_path / "home")
    assert result.code == 4, result.stdout + result.stderr
    assert result.statuses == {"first": "error", "second": "passed", "third": "passed"}
    reason = result.case("first")["reason"]
    assert reason.startswith(f"rank 1 on {HOST}, ")
    assert "was killed by signal 9 (SIGKILL)" in reason
    result.assert_no_process_left()


@pytest.mark.long
def test_rank_stopped_at_its_start_is_reported_as_silent(
    tmp_path: Path,
) -> None:
    run_process = RunProcess(LONG, home=tmp_path / "home")
    victim = run_process.find_pid(1)
    os.kill(victim, signal.SIGSTOP)
    result = run_process.wait()
    assert result.seconds < 30
    assert result.statuses == {"long": "error", "after": "passed"}
    assert f"rank 1 on {HOST} silent for" in result.case("long")["reason"]


def test_hung_rank_is_named_at_the_timeout(tmp_path: Path) -> None:
    options = ("--inject", "hang@second", "--set", "launch.timeout=2")
    result = run(FAULTS, *options, home=tmp_path / "home")
    case = assert_only_second_case_fails(result, "timeout")
    assert f"rank 1 on {HOST} is in _hang" in str(case["reason"])
    assert str(case["reason"]).endswith("(its timeout is 2 s); fault found, as planted: hang")
    assert result.seconds < 30


@pytest.mark.long
def test_stopped_rank_is_an_error_after_ten_silent_seconds(tmp_path: Path) -> None:
    run_process = RunProcess(LONG, home=tmp_path / "home").wait_for_timing()
    victim = run_process.find_pid(1)
    os.kill(victim, signal.SIGSTOP)
    stop_time = time.monotonic()
    result = run_process.wait()
    assert time.monotonic() - stop_time < 30
    assert result.code == 4
    assert result.statuses == {"long": "error", "after": "passed"}
    assert f"rank 1 on {HOST} silent for 10 s" in result.case("long")["reason"]
    result.assert_no_process_left()
    result.assert_no_event_missing()


@pytest.mark.long
def test_missing_gpu_fails_only_its_case_with_exit_code_3(
    tmp_path: Path,
) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text(GPU_AND_HOST)
    # In an allocation, hosts are unknown before the launch, so the ranks look for GPUs.
    env = {"LSB_JOBID": "1", "CUDA_VISIBLE_DEVICES": ""}
    result = run(str(suite), home=tmp_path / "home", env=env)
    assert result.code == 3, result.stdout + result.stderr
    assert result.statuses == {"host": "passed", "gpu": "error", "after": "passed"}
    reason = result.case("gpu")["reason"]
    assert re.match(r"rank [01] on \S+, \d+\.\d s into gpu: device cuda: ", reason)
    assert reason.endswith("use device cpu or auto")
    device = result.case("host")["choices"]["device"]
    assert device["value"] == "cpu"
    assert device["reason"].startswith("auto: ")
    assert [rank["device"] for rank in result.case("host")["ranks"]] == ["cpu", "cpu"]


@pytest.mark.parametrize(
    ("times", "shortest", "longest"),
    [(1, 4.9, 9.0), pytest.param(2, 0.0, 3.0, marks=pytest.mark.long)],
    ids=["once", "twice"],
)
def test_ctrl_c_cancels_the_run_and_exits_with_130(
    tmp_path: Path, times: int, shortest: float, longest: float
) -> None:
    """The first Ctrl-C gives ranks 5 s to end, the second one 0 s."""
    run_process = RunProcess(STUBBORN, home=tmp_path / "home").wait_for_timing()
    for _ in range(times):
        time.sleep(0.7)
        run_process.interrupt()
    interrupt_time = time.monotonic()
    result = run_process.wait()
    assert result.code == 130
    assert shortest <= time.monotonic() - interrupt_time < longest
    assert result.statuses == {"long": "cancelled", "after": "cancelled"}
    assert result.report["run"]["exit_code"] == 130
    assert "Ctrl-C" in result.case("long")["reason"]
    assert "Traceback" not in result.stderr
    result.assert_no_process_left()
    result.assert_no_event_missing()


def test_sigterm_exits_with_143(tmp_path: Path) -> None:
    run_process = RunProcess(LONG, home=tmp_path / "home").wait_for_timing()
    run_process.interrupt(signal.SIGTERM)
    result = run_process.wait()
    assert result.code == 143
    result.assert_no_process_left()


@pytest.mark.parametrize(
    "options",
    [pytest.param((), marks=pytest.mark.long), ("--headless",)],
    ids=["live", "headless"],
)
def test_closed_terminal_writes_the_report_and_exits_with_143(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    run_process = TerminalRunProcess(LONG, *options, home=tmp_path / "home").wait_for_timing()
    run_process.close_terminal()
    result = run_process.wait(20.0)
    assert result.code == 143
    assert result.stderr == ""
    assert ("0/2 cases" in result.stdout) is not bool(options)
    report = json.loads((run_process.folder / "report.json").read_text())
    assert report["run"]["exit_code"] == result.report["run"]["exit_code"] == 143
    assert result.statuses == {"long": "cancelled", "after": "cancelled"}
    assert "SIGHUP" in result.case("long")["reason"]
    result.assert_no_process_left()
    result.assert_no_event_missing()


def test_used_up_budget_cancels_the_case_and_exits_with_124(tmp_path: Path) -> None:
    result = run(LONG, "--budget", "3s", home=tmp_path / "home")
    assert result.code == result.report["run"]["exit_code"] == 124
    assert result.seconds < 12
    assert result.statuses == {"long": "cancelled", "after": "cancelled"}
    assert "the budget of 3 s is used up" in result.case("long")["reason"]
    result.assert_no_process_left()


@pytest.mark.long
def test_ctrl_c_after_a_used_up_budget_exits_with_130(tmp_path: Path) -> None:
    """The budget gives ranks enough time to start on a busy machine."""
    run_process = RunProcess(STUBBORN, "--budget", "12s", home=tmp_path / "home")
    rank = run_process.find_pid(0)
    wait_until(lambda: not Path(f"/proc/{rank}").exists())
    run_process.interrupt()
    time.sleep(0.2)
    run_process.interrupt()
    result = run_process.wait()
    assert result.code == result.report["run"]["exit_code"] == 130
    assert result.statuses == {"long": "cancelled", "after": "cancelled"}
    result.assert_no_process_left()


@pytest.mark.long
def test_rank_that_ends_without_bye_fails_the_last_case(tmp_path: Path) -> None:
    """Rank 1 sends all events of its cases, but no ``bye``."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "from spbench_workers.channel.tcp import TcpChannel\n"
        "close = TcpChannel.close\n"
        "TcpChannel.close = lambda self: os._exit(0) if self.rank == 1 else close(self)\n"
    )
    options = ("--set", f"launch.env.PYTHONPATH={tmp_path}")
    result = run(FAULTS, *options, home=tmp_path / "home")
    assert result.code == 4, result.stdout + result.stderr
    assert result.statuses == {"first": "passed", "second": "passed", "third": "error"}
    assert f"rank 1 on {HOST}" in result.case("third")["reason"]
    result.assert_no_process_left()


def test_closed_pipe_of_the_report_keeps_the_exit_code(
    tmp_path: Path,
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    options = ("--inject", "corrupt-message@second", "--json", "-", "--home", str(tmp_path))
    process = subprocess.run(
        [SPBENCH, "run", FAULTS, *options],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert process.returncode == 1, process.stderr
    assert "check echo failed" in process.stderr
    assert "Traceback" not in process.stderr
    assert "Exception ignored" not in process.stderr


def test_unwritable_report_is_an_error(tmp_path: Path) -> None:
    run_process = RunProcess(FAULTS, home=tmp_path / "home")
    wait_until(lambda: list(run_process.home.glob("runs/*")))
    (run_process.folder / "report.json").mkdir()
    result = run_process.wait()
    assert set(result.statuses.values()) == {"passed"}
    assert result.code == result.report["run"]["exit_code"] == 4
    assert result.report["run"]["verdict"] == "error"
    (error,) = result.report["errors"]
    assert error == f"cannot write {run_process.folder}/report.json: Is a directory"
    assert "Traceback" not in result.stderr


@pytest.fixture
def hanging_ssh(tmp_path: Path) -> Path:
    """Return the file with the pid of a stand-in for ssh that hangs."""
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/draft\nmv {tmp_path}/draft {tmp_path}/pid\n"
        "exec sleep 30\n"
    )
    ssh.chmod(0o755)
    return tmp_path / "pid"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        pytest.param((), 130, "cancelled by Ctrl-C after", marks=pytest.mark.long),
        (("--budget", "2s"), 124, "the budget of 2 s is used up"),
    ],
    ids=["Ctrl-C", "budget"],
)
def test_run_stopped_before_its_first_job_is_cancelled(
    tmp_path: Path, hanging_ssh: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    options = ("--hosts", "far.invalid:2", *options)
    run_process = RunProcess(FAULTS, *options, home=tmp_path / "home", env=env)
    wait_until(hanging_ssh.exists)
    if code == 130:
        run_process.interrupt()
    result = run_process.wait(10.0)
    assert result.code == result.report["run"]["exit_code"] == code
    assert result.report["cases"] == []
    assert result.report["run"]["verdict"] == "cancelled"
    (error,) = result.report["errors"]
    assert error.startswith(message)
    assert result.stderr.splitlines()[-1] == f"spbench: error: {error}"
    assert not Path("/proc", hanging_ssh.read_text().strip()).exists()
    assert not (run_process.home / "runs").exists()


def test_ctrl_c_ends_a_hanging_setup_line(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    line = f"echo $$ > {mark}; exec sleep 29.5"
    run_process = RunProcess(FAULTS, "--set", f"launch.setup=['{line}']", home=tmp_path / "home")
    wait_until(lambda: mark.exists() and mark.read_text().endswith("\n"))
    run_process.interrupt()
    result = run_process.wait(15.0)
    assert result.code == 130
    assert result.seconds < 15
    assert result.report["run"]["verdict"] == "cancelled"
    assert not Path("/proc", mark.read_text().strip()).exists()


def test_ranks_of_a_killed_controller_end(tmp_path: Path) -> None:
    run_process = RunProcess(LONG, home=tmp_path / "home").wait_for_timing()
    run_id = run_process.folder.name
    assert find_processes(run_id)
    run_process.process.kill()
    kill_time = time.monotonic()
    while find_processes(run_id) and time.monotonic() - kill_time < 10:
        time.sleep(0.1)
    assert find_processes(run_id) == []
    assert time.monotonic() - kill_time < 5
    run_process.wait()
    process = subprocess.run(
        [SPBENCH, "results", "show", run_id, "--home", str(run_process.home)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "long" in process.stdout
    assert "the console ended before the run did" in process.stdout


@pytest.mark.long
def test_unauthenticated_connections_do_not_disturb_the_run(tmp_path: Path) -> None:
    run_process = RunProcess(
        LONG, home=tmp_path / "home", env={"TMPDIR": str(tmp_path)}
    ).wait_for_timing()
    environ = Path(f"/proc/{run_process.find_pid(0)}/environ").read_bytes().split(b"\0")
    variables = dict(item.split(b"=", 1) for item in environ if b"=" in item)
    host, _, port = variables[b"SPBENCH_COLLECTOR"].decode().rpartition(":")
    assert host == "127.0.0.1"
    with ExitStack() as stack:
        idle_sockets = [
            stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(500)
        ]
        for message in (
            b"GET / HTTP/1.0\r\n\r\n",
            b'{"event":"hello","rank":0,"seq":0,"time":0,"token":"wrong","host":"x","pid":1}\n',
            b"x" * (10 << 20),
        ):
            with socket.create_connection((host, int(port))) as connection:
                try:
                    connection.sendall(message)
                    connection.settimeout(10)
                    assert connection.recv(1) == b""
                except ConnectionError:
                    pass  # the collector closed the connection during the transfer
        size_before = len(run_process.folder.joinpath("events.jsonl").read_bytes())
        time.sleep(2.5)
        assert len(run_process.folder.joinpath("events.jsonl").read_bytes()) > size_before
        assert len(idle_sockets) == 500
    run_process.interrupt()
    result = run_process.wait()
    assert result.code == 130
    assert result.statuses["long"] == "cancelled"
    result.assert_no_event_missing()
    (job_end,) = [event for event in result.events if event["event"] == "job_end"]
    assert job_end["strangers"] >= 3


@pytest.mark.long
def test_wrong_launcher_for_the_library_names_both(tmp_path: Path) -> None:
    """A script replaces a launcher that starts each rank with its own world."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    mpiexec = bin_folder / "mpiexec"
    mpiexec.write_text(
        f"{build_script_head()}"
        "import subprocess, sys\n"
        "if '--version' in sys.argv:\n"
        "    print('HYDRA build details:\\n    Version: 5.0.2')\n"
        "    sys.exit(0)\n"
        "command = sys.argv[sys.argv.index(next(w for w in sys.argv if 'python' in w)):]\n"
        "ranks = [subprocess.Popen(command) for _ in range(2)]\n"
        "sys.exit(max(rank.wait() for rank in ranks))\n"
    )
    mpiexec.chmod(0o755)
    python = bin_folder / "python"
    python.write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n')
    python.chmod(0o755)
    options = ("--launcher", "hydra", "--set", f"launch.python={python}")
    path = f"{bin_folder}:{os.environ['PATH']}"
    result = run(FAULTS, *options, home=tmp_path / "home", env={"PATH": path})
    assert result.code == 3, result.stdout + result.stderr
    reason = result.case("first")["reason"]
    assert "hydra" in reason
    assert "Open MPI" in reason
    assert "of 1 in a job of 2" in reason
    result.assert_no_process_left()


def test_missing_mpi4py_is_reported_before_the_launch(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {PYTHON} -S "$@"\n')
    python.chmod(0o755)
    result = run(FAULTS, "--set", f"launch.python={python}", home=tmp_path / "home")
    assert result.code == 3
    assert result.report["cases"] == []
    assert "mpi4py" in result.stderr
    assert "pip install" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--hosts", "no-such-host.invalid:2"), 3, "no-such-host.invalid"),
        (("--launcher", "mpirun_rsh"), 3, "mpirun_rsh is not installed"),
        (("--launcher", "mpirunrsh"), 2, "did you mean mpirun_rsh?"),
        (("--hosts", "localhost:1"), 3, "2 ranks"),
        (("--inject", "no-such-fault"), 2, "no-such-fault"),
        (("--set", "iteratoins=3"), 2, "did you mean iterations?"),
        (("-k", "nothing"), 5, "nothing"),
    ],
)
def test_impossible_run_is_rejected_with_a_message(
    tmp_path: Path, options: tuple[str, ...], code: int, text: str
) -> None:
    result = run(FAULTS, *options, home=tmp_path / "home", env={"PATH": "/usr/bin:/bin"})
    assert result.code == code, result.stderr
    assert text in result.stderr
    assert "Traceback" not in result.stderr
    assert result.report["cases"] == []
    assert result.report["run"]["exit_code"] == code
    assert result.report["errors"]


@pytest.mark.long
def test_host_lost_during_the_launch_is_an_error(tmp_path: Path) -> None:
    """A stand-in for ssh responds to the first command and then reaches no host."""
    ssh = tmp_path / "ssh"
    ssh.write_text(
        '#!/bin/sh\nfor word; do last=$word; done\n[ "$last" = true ] && exit 0\n'
        "echo 'ssh: connect to host lost port 22: No route to host' >&2\nexit 255\n"
    )
    ssh.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    options = ("--hosts", "lost.invalid:2", "--set", "launch.start_timeout=20")
    result = run(FAULTS, *options, home=tmp_path / "home", env=env)
    assert result.code == 4, result.stderr
    assert set(result.statuses.values()) == {"error"}
    assert "lost" in result.case("first")["reason"]
    result.assert_no_process_left()


@pytest.mark.long
def test_full_disk_is_reported_without_a_traceback(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = tmp_path / "small"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)]
    process = subprocess.run(mount, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        pytest.skip(f"this machine mounts no tmpfs: {process.stderr.strip()}")
    try:
        result = run(FAULTS, "--set", "iterations=20000", home=disk / "home")
        assert result.code == 4, result.stdout + result.stderr
        assert "No space left on device" in result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        assert [find_processes(path.name) for path in (disk / "home" / "runs").iterdir()] == [[]]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.long
def test_removed_home_is_an_error_and_stays_removed(tmp_path: Path) -> None:
    run_process = RunProcess(LONG, home=tmp_path / "home").wait_for_timing()
    run_id = run_process.folder.name
    shutil.rmtree(run_process.home)
    result = run_process.wait()
    assert result.code == 4, result.stdout + result.stderr
    assert set(result.statuses.values()) == {"error"}
    assert f"{run_id}/events.jsonl was removed while the run went on" in result.report["errors"][0]
    assert "no report was written" in result.stdout
    assert "Traceback" not in result.stderr
    assert not run_process.home.exists()
    assert find_processes(run_id) == []
