"""The fault table: every fault ends within its deadline, leaves nothing behind, and is named."""

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


def assert_only_second_hit(ended: RunResult, status: str) -> dict[str, object]:
    assert ended.code == 4, ended.stderr
    assert ended.statuses == {"first": "passed", "second": status, "third": "passed"}
    assert "Traceback" not in ended.stderr
    ended.assert_no_process_left()
    ended.assert_no_event_missing()
    return ended.case("second")


def wait_until(condition: Callable[[], object], limit: float = 20.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.long
def test_corrupted_halo_fails_the_check_on_that_rank_alone(tmp_path: Path) -> None:
    ended = run(HALO, "-k", "uneven", "--inject", "corrupt-halo", home=tmp_path / "home")
    assert ended.code == 1, ended.stderr
    (case,) = ended.report["cases"]
    (check,) = case["checks"]
    assert case["status"] == "failed"
    assert (check["ranks_passed"], check["ranks_failed"]) == (3, 1)
    assert f"rank 3 on {HOST}" in case["reason"]
    ended.assert_no_process_left()


@pytest.mark.parametrize(
    ("fault", "message", "trace"),
    [
        ("raise", "InjectedFaultError: planted by --inject raise", "faults.py"),
        pytest.param("exit", "SystemExit: 3", "sys.exit(3)", marks=pytest.mark.long),
    ],
)
def test_a_rank_that_raises_or_exits_ends_its_case_with_its_traceback(
    tmp_path: Path, fault: str, message: str, trace: str
) -> None:
    ended = run(FAULTS, "--inject", f"{fault}@second", home=tmp_path / "home")
    case = assert_only_second_hit(ended, "error")
    assert f"rank 1 on {HOST}" in str(case["reason"])
    assert " s into second" in str(case["reason"])
    assert message in str(case["reason"])
    assert trace in str(case["traceback"])


def test_a_killed_rank_is_named_with_its_signal(tmp_path: Path) -> None:
    ended = run(FAULTS, "--inject", "kill@second", home=tmp_path / "home")
    case = assert_only_second_hit(ended, "error")
    assert f"rank 1 on {HOST}" in str(case["reason"])
    assert "signal 9" in str(case["reason"])
    told = [e["event"] for e in ended.events if e.get("rank") == 1 and e.get("case") == "second"]
    assert told == ["case_start", "device"]  # it is killed in its first iteration


@pytest.mark.long
def test_a_rank_killed_from_outside_is_an_error_too(tmp_path: Path) -> None:
    running = RunProcess(LONG, home=tmp_path / "home").wait_for_timing()
    os.kill(running.find_pid(0), signal.SIGKILL)
    ended = running.wait()
    assert ended.code == 4
    assert ended.statuses == {"long": "error", "after": "passed"}
    assert f"rank 0 on {HOST}" in ended.case("long")["reason"]
    ended.assert_no_process_left()


@pytest.mark.long
def test_a_rank_killed_before_the_first_case_takes_that_one_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "mark"
    once = f"[ -e {mark} ] || {{ touch {mark}; kill -9 $$; }}"
    line = f'[ "$OMPI_COMM_WORLD_RANK" != 1 ] || {once}'
    ended = run(FAULTS, "--set", f"launch.setup=['{line}']", home=tmp_path / "home")
    assert ended.code == 4, ended.stdout + ended.stderr
    assert ended.statuses == {"first": "error", "second": "passed", "third": "passed"}
    reason = ended.case("first")["reason"]
    assert reason.startswith(f"rank 1 on {HOST}, ")
    assert "was killed by signal 9 (SIGKILL)" in reason
    ended.assert_no_process_left()


@pytest.mark.long
def test_a_rank_stopped_while_it_loads_is_named_ten_seconds_after_the_others_started(
    tmp_path: Path,
) -> None:
    running = RunProcess(LONG, home=tmp_path / "home")
    victim = running.find_pid(1)
    os.kill(victim, signal.SIGSTOP)
    ended = running.wait()
    assert ended.seconds < 30
    assert ended.statuses == {"long": "error", "after": "passed"}
    assert f"rank 1 on {HOST} silent for" in ended.case("long")["reason"]


def test_a_hung_rank_is_timed_out_and_named(tmp_path: Path) -> None:
    words = ("--inject", "hang@second", "--set", "launch.timeout=2")
    ended = run(FAULTS, *words, home=tmp_path / "home")
    case = assert_only_second_hit(ended, "timeout")
    assert f"rank 1 on {HOST} is in _hang" in str(case["reason"])
    assert "its timeout is 2 s" in str(case["reason"])
    assert ended.seconds < 30


@pytest.mark.long
def test_a_stopped_rank_is_an_error_after_ten_seconds_of_silence(tmp_path: Path) -> None:
    running = RunProcess(LONG, home=tmp_path / "home").wait_for_timing()
    victim = running.find_pid(1)
    os.kill(victim, signal.SIGSTOP)
    stopped = time.monotonic()
    ended = running.wait()
    assert time.monotonic() - stopped < 30
    assert ended.code == 4
    assert ended.statuses == {"long": "error", "after": "passed"}
    assert f"rank 1 on {HOST} silent for 10 s" in ended.case("long")["reason"]
    ended.assert_no_process_left()
    ended.assert_no_event_missing()


@pytest.mark.long
def test_a_rank_without_its_gpu_ends_its_case_with_exit_3_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text(GPU_AND_HOST)
    # In an allocation hosts are not known before the launch: it is the ranks that look for GPUs.
    hidden = {"LSB_JOBID": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = run(str(suite), home=tmp_path / "home", env=hidden)
    assert ended.code == 3, ended.stdout + ended.stderr
    assert ended.statuses == {"host": "passed", "gpu": "error", "after": "passed"}
    reason = ended.case("gpu")["reason"]
    assert re.match(r"rank [01] on \S+, \d+\.\d s into gpu: device cuda: ", reason)
    assert reason.endswith("use device cpu or auto")
    device = ended.case("host")["choices"]["device"]
    assert device["value"] == "cpu"
    assert device["reason"].startswith("auto: ")
    assert [rank["device"] for rank in ended.case("host")["ranks"]] == ["cpu", "cpu"]


@pytest.mark.parametrize(
    ("times", "least", "most"),
    [(1, 4.9, 9.0), pytest.param(2, 0.0, 3.0, marks=pytest.mark.long)],
    ids=["once", "twice"],
)
def test_ctrl_c_cancels_writes_the_report_and_exits_130(
    tmp_path: Path, times: int, least: float, most: float
) -> None:
    """Pressed once it leaves ranks 5 s to end, which a stubborn process uses up; twice, none."""
    running = RunProcess(STUBBORN, home=tmp_path / "home").wait_for_timing()
    for _ in range(times):
        time.sleep(0.7)
        running.interrupt()
    pressed = time.monotonic()
    ended = running.wait()
    assert ended.code == 130
    assert least <= time.monotonic() - pressed < most
    assert ended.statuses == {"long": "cancelled", "after": "cancelled"}
    assert ended.report["run"]["exit_code"] == 130
    assert "Ctrl-C" in ended.case("long")["reason"]
    assert "Traceback" not in ended.stderr
    ended.assert_no_process_left()
    ended.assert_no_event_missing()


def test_sigterm_ends_with_143(tmp_path: Path) -> None:
    running = RunProcess(LONG, home=tmp_path / "home").wait_for_timing()
    running.interrupt(signal.SIGTERM)
    ended = running.wait()
    assert ended.code == 143
    ended.assert_no_process_left()


@pytest.mark.parametrize(
    "words",
    [pytest.param((), marks=pytest.mark.long), ("--headless",)],
    ids=["live", "headless"],
)
def test_a_closed_terminal_ends_the_run_with_143_and_its_report(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    running = TerminalRunProcess(LONG, *words, home=tmp_path / "home").wait_for_timing()
    running.close_terminal()
    ended = running.wait(20.0)
    assert ended.code == 143
    assert ended.stderr == ""
    assert ("0/2 cases" in ended.stdout) is not bool(words)
    kept = json.loads((running.folder / "report.json").read_text())
    assert kept["run"]["exit_code"] == ended.report["run"]["exit_code"] == 143
    assert ended.statuses == {"long": "cancelled", "after": "cancelled"}
    assert "SIGHUP" in ended.case("long")["reason"]
    ended.assert_no_process_left()
    ended.assert_no_event_missing()


def test_a_budget_that_is_used_up_cancels_the_running_case_and_exits_124(tmp_path: Path) -> None:
    ended = run(LONG, "--budget", "3s", home=tmp_path / "home")
    assert ended.code == ended.report["run"]["exit_code"] == 124
    assert ended.seconds < 12
    assert ended.statuses == {"long": "cancelled", "after": "cancelled"}
    assert "the budget of 3 s is used up" in ended.case("long")["reason"]
    ended.assert_no_process_left()


@pytest.mark.long
def test_ctrl_c_while_a_used_up_budget_ends_the_ranks_exits_130(tmp_path: Path) -> None:
    """The budget leaves ranks the time to start on a busy machine."""
    running = RunProcess(STUBBORN, "--budget", "12s", home=tmp_path / "home")
    rank = running.find_pid(0)
    wait_until(lambda: not Path(f"/proc/{rank}").exists())
    running.interrupt()
    time.sleep(0.2)
    running.interrupt()
    ended = running.wait()
    assert ended.code == ended.report["run"]["exit_code"] == 130
    assert ended.statuses == {"long": "cancelled", "after": "cancelled"}
    ended.assert_no_process_left()


@pytest.mark.long
def test_a_rank_that_ends_without_bye_makes_the_last_case_an_error(tmp_path: Path) -> None:
    """Rank 1 has said all that there is to say of its cases, but not that it is through."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "from spbench_workers.channel.tcp import TcpChannel\n"
        "close = TcpChannel.close\n"
        "TcpChannel.close = lambda self: os._exit(0) if self.rank == 1 else close(self)\n"
    )
    words = ("--set", f"launch.env.PYTHONPATH={tmp_path}")
    ended = run(FAULTS, *words, home=tmp_path / "home")
    assert ended.code == 4, ended.stdout + ended.stderr
    assert ended.statuses == {"first": "passed", "second": "passed", "third": "error"}
    assert f"rank 1 on {HOST}" in ended.case("third")["reason"]
    ended.assert_no_process_left()


def test_a_reader_of_the_report_that_has_gone_does_not_change_the_exit_code(
    tmp_path: Path,
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = ("--inject", "corrupt-message@second", "--json", "-", "--home", str(tmp_path))
    done = subprocess.run(
        [SPBENCH, "run", FAULTS, *words],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 1, done.stderr
    assert "check echo failed" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_report_that_cannot_be_written_is_an_error_in_exit_code_and_json(tmp_path: Path) -> None:
    running = RunProcess(FAULTS, home=tmp_path / "home")
    wait_until(lambda: list(running.home.glob("runs/*")))
    (running.folder / "report.json").mkdir()
    ended = running.wait()
    assert set(ended.statuses.values()) == {"passed"}
    assert ended.code == ended.report["run"]["exit_code"] == 4
    assert ended.report["run"]["verdict"] == "error"
    (error,) = ended.report["errors"]
    assert error == f"cannot write {running.folder}/report.json: Is a directory"
    assert "Traceback" not in ended.stderr


@pytest.fixture
def hanging_ssh(tmp_path: Path) -> Path:
    """A stand-in for ssh that tells its process and then nothing."""
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/draft\nmv {tmp_path}/draft {tmp_path}/asked\n"
        "exec sleep 30\n"
    )
    ssh.chmod(0o755)
    return tmp_path / "asked"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        pytest.param((), 130, "cancelled by Ctrl-C after", marks=pytest.mark.long),
        (("--budget", "2s"), 124, "the budget of 2 s is used up"),
    ],
    ids=["Ctrl-C", "budget"],
)
def test_a_run_that_is_stopped_before_its_first_job_is_cancelled(
    tmp_path: Path, hanging_ssh: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    words = ("--hosts", "far.invalid:2", *words)
    running = RunProcess(FAULTS, *words, home=tmp_path / "home", env=env)
    wait_until(hanging_ssh.exists)
    if code == 130:
        running.interrupt()
    ended = running.wait(10.0)
    assert ended.code == ended.report["run"]["exit_code"] == code
    assert ended.report["cases"] == []
    assert ended.report["run"]["verdict"] == "cancelled"
    (error,) = ended.report["errors"]
    assert error.startswith(told)
    assert ended.stderr.splitlines()[-1] == f"spbench: error: {error}"
    assert not Path("/proc", hanging_ssh.read_text().strip()).exists()
    assert not (running.home / "runs").exists()


def test_ctrl_c_while_a_setup_line_hangs_ends_it_at_once(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    line = f"echo $$ > {mark}; exec sleep 29.5"
    running = RunProcess(FAULTS, "--set", f"launch.setup=['{line}']", home=tmp_path / "home")
    wait_until(lambda: mark.exists() and mark.read_text().endswith("\n"))
    running.interrupt()
    ended = running.wait(15.0)
    assert ended.code == 130
    assert ended.seconds < 15
    assert ended.report["run"]["verdict"] == "cancelled"
    assert not Path("/proc", mark.read_text().strip()).exists()


def test_ranks_of_a_killed_console_end_and_results_show_reads_the_run(tmp_path: Path) -> None:
    running = RunProcess(LONG, home=tmp_path / "home").wait_for_timing()
    run_id = running.folder.name
    assert find_processes(run_id)
    running.process.kill()
    killed = time.monotonic()
    while find_processes(run_id) and time.monotonic() - killed < 10:
        time.sleep(0.1)
    assert find_processes(run_id) == []
    assert time.monotonic() - killed < 5
    running.wait()
    shown = subprocess.run(
        [SPBENCH, "results", "show", run_id, "--home", str(running.home)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "long" in shown.stdout
    assert "the console ended before the run did" in shown.stdout


@pytest.mark.long
def test_strangers_at_the_collector_do_not_disturb_the_run(tmp_path: Path) -> None:
    running = RunProcess(
        LONG, home=tmp_path / "home", env={"TMPDIR": str(tmp_path)}
    ).wait_for_timing()
    environ = Path(f"/proc/{running.find_pid(0)}/environ").read_bytes().split(b"\0")
    variables = dict(item.split(b"=", 1) for item in environ if b"=" in item)
    host, _, port = variables[b"SPBENCH_COLLECTOR"].decode().rpartition(":")
    assert host == "127.0.0.1"
    with ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(500)
        ]
        for rubbish in (
            b"GET / HTTP/1.0\r\n\r\n",
            b'{"event":"hello","rank":0,"seq":0,"time":0,"token":"wrong","host":"x","pid":1}\n',
            b"x" * (10 << 20),
        ):
            with socket.create_connection((host, int(port))) as stranger:
                try:
                    stranger.sendall(rubbish)
                    stranger.settimeout(10)
                    assert stranger.recv(1) == b""
                except ConnectionError:
                    pass  # reset: it was dropped while it was still sending
        before = len(running.folder.joinpath("events.jsonl").read_bytes())
        time.sleep(2.5)
        assert len(running.folder.joinpath("events.jsonl").read_bytes()) > before
        assert len(idle) == 500
    running.interrupt()
    ended = running.wait()
    assert ended.code == 130
    assert ended.statuses["long"] == "cancelled"
    ended.assert_no_event_missing()
    (job_end,) = [event for event in ended.events if event["event"] == "job_end"]
    assert job_end["strangers"] >= 3


@pytest.mark.long
def test_wrong_launcher_for_the_library_names_both(tmp_path: Path) -> None:
    """A launcher that starts every rank as a world of its own: here a plain loop in a script."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    mpiexec = bin_folder / "mpiexec"
    mpiexec.write_text(
        f"{build_script_head()}"
        "import subprocess, sys\n"
        "if '--version' in sys.argv:\n"
        "    print('HYDRA build details:\\n    Version: 5.0.2')\n"
        "    sys.exit(0)\n"
        "words = sys.argv[sys.argv.index(next(w for w in sys.argv if 'python' in w)):]\n"
        "ranks = [subprocess.Popen(words) for _ in range(2)]\n"
        "sys.exit(max(rank.wait() for rank in ranks))\n"
    )
    mpiexec.chmod(0o755)
    python = bin_folder / "python"
    python.write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n')
    python.chmod(0o755)
    words = ("--launcher", "hydra", "--set", f"launch.python={python}")
    path = f"{bin_folder}:{os.environ['PATH']}"
    ended = run(FAULTS, *words, home=tmp_path / "home", env={"PATH": path})
    assert ended.code == 3, ended.stdout + ended.stderr
    reason = ended.case("first")["reason"]
    assert "hydra" in reason
    assert "Open MPI" in reason
    assert "of 1 in a job of 2" in reason
    ended.assert_no_process_left()


def test_no_mpi4py_is_said_before_a_launch(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {PYTHON} -S "$@"\n')
    python.chmod(0o755)
    ended = run(FAULTS, "--set", f"launch.python={python}", home=tmp_path / "home")
    assert ended.code == 3
    assert ended.report["cases"] == []
    assert "mpi4py" in ended.stderr
    assert "pip install" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "code", "text"),
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
def test_what_cannot_run_is_refused_in_one_sentence(
    tmp_path: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    ended = run(FAULTS, *words, home=tmp_path / "home", env={"PATH": "/usr/bin:/bin"})
    assert ended.code == code, ended.stderr
    assert text in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.report["cases"] == []
    assert ended.report["run"]["exit_code"] == code
    assert ended.report["errors"]


@pytest.mark.long
def test_a_host_that_is_lost_in_the_launch_is_an_error(tmp_path: Path) -> None:
    """A stand-in for ssh that answers the first question and then reaches nothing."""
    ssh = tmp_path / "ssh"
    ssh.write_text(
        '#!/bin/sh\nfor word; do last=$word; done\n[ "$last" = true ] && exit 0\n'
        "echo 'ssh: connect to host lost port 22: No route to host' >&2\nexit 255\n"
    )
    ssh.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ("--hosts", "lost.invalid:2", "--set", "launch.start_timeout=20")
    ended = run(FAULTS, *words, home=tmp_path / "home", env=env)
    assert ended.code == 4, ended.stderr
    assert set(ended.statuses.values()) == {"error"}
    assert "lost" in ended.case("first")["reason"]
    ended.assert_no_process_left()


@pytest.mark.long
def test_a_full_disk_under_the_run_folder_is_one_sentence(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(small)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this machine mounts no tmpfs: {done.stderr.strip()}")
    try:
        ended = run(FAULTS, "--set", "iterations=20000", home=small / "home")
        assert ended.code == 4, ended.stdout + ended.stderr
        assert "No space left on device" in ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr
        assert [find_processes(path.name) for path in (small / "home" / "runs").iterdir()] == [[]]
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.long
def test_a_home_that_is_removed_under_a_run_is_an_error_and_stays_removed(tmp_path: Path) -> None:
    running = RunProcess(LONG, home=tmp_path / "home").wait_for_timing()
    run_id = running.folder.name
    shutil.rmtree(running.home)
    ended = running.wait()
    assert ended.code == 4, ended.stdout + ended.stderr
    assert set(ended.statuses.values()) == {"error"}
    assert f"{run_id}/events.jsonl was removed while the run went on" in ended.report["errors"][0]
    assert "no report was written" in ended.stdout
    assert "Traceback" not in ended.stderr
    assert not running.home.exists()
    assert find_processes(run_id) == []
