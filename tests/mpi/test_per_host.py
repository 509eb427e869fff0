"""Cases with a job per host at the same time, on two names of this machine."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.runs import SPBENCH, RunProcess, RunResult, run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

HOST = socket.gethostname()
HOSTS = ("--hosts", f"{HOST}:2,localhost:2")
COPY = {"size": "1MiB", "iterations": 5, "warmup": 1}


def write_suite(folder: Path, *cases: dict[str, Any]) -> str:
    path = folder / "hosts.yaml"
    suite = {"schema": "spbench.suite/1", "name": "hosts", "cases": list(cases)}
    path.write_text(json.dumps(suite))
    return str(path)


def make_copy_case(**fields: Any) -> dict[str, Any]:
    return {"name": "copy", "benchmark": "memory.copy", "params": COPY, "per_host": True} | fields


def make_program_case(script: str, **fields: Any) -> dict[str, Any]:
    params = {"argv": ["sh", "-c", script]}
    entry = {"name": "program", "benchmark": "program.run", "np": 1, "params": params}
    return entry | {"per_host": True} | fields


def list_job_events(result: RunResult) -> list[tuple[str, int]]:
    kinds = ("job_start", "job_end")
    return [(event["event"], event["job"]) for event in result.events if event["event"] in kinds]


def test_case_has_a_job_on_each_host_with_all_ranks(tmp_path: Path) -> None:
    gemm_case = {"name": "gemm", "benchmark": "compute.gemm", "params": {"n": 64, "iterations": 3}}
    suite = write_suite(tmp_path, make_copy_case(), gemm_case | {"per_host": True})
    result = run(suite, *HOSTS, home=tmp_path / "home")
    assert result.code == 0, result.stdout + result.stderr
    job_events = list_job_events(result)
    assert sorted(job_events) == [
        ("job_end", 1),
        ("job_end", 2),
        ("job_start", 1),
        ("job_start", 2),
    ]
    assert {kind for kind, _ in job_events[:2]} == {"job_start"}
    for name in ("copy", "gemm"):
        case = result.case(name)
        assert case["np"] == 4
        assert [rank["rank"] for rank in case["ranks"]] == [0, 1, 2, 3]
        assert all(check["ranks_passed"] == 4 for check in case["checks"])
        timed_ranks = {
            e["rank"] for e in result.events if e["event"] == "samples" and e["case"] == name
        }
        assert timed_ranks == {0, 1, 2, 3}
    result.assert_no_process_left()


@pytest.mark.long
def test_per_host_number_limits_the_hosts_at_once(tmp_path: Path) -> None:
    result = run(
        write_suite(tmp_path, make_copy_case(per_host=1, np=1)), *HOSTS, home=tmp_path / "home"
    )
    assert result.code == 0, result.stdout + result.stderr
    assert list_job_events(result) == [
        ("job_start", 1),
        ("job_end", 1),
        ("job_start", 2),
        ("job_end", 2),
    ]
    assert result.case("copy")["np"] == 2
    assert len(result.case("copy")["samples"]["time_ms"][0]) == 5


@pytest.mark.long
@pytest.mark.parametrize("at_once", [True, 1])
def test_dead_rank_is_named_and_the_other_host_is_measured(
    at_once: bool | int, tmp_path: Path
) -> None:
    dying_case = make_program_case(
        f"mkdir {tmp_path}/first || {{ kill -9 $PPID; sleep 9; }}", per_host=at_once
    )
    result = run(
        write_suite(tmp_path, dying_case, make_copy_case(np=1)), *HOSTS, home=tmp_path / "home"
    )
    assert result.code == 4, result.stdout + result.stderr
    case = result.case("program")
    assert case["status"] == "error"
    dead_ranks = {rank["rank"] for rank in case["ranks"] if rank["status"] != "ok"}
    assert len(dead_ranks) == 1
    assert f"rank {min(dead_ranks)} on {HOST}" in case["reason"]
    timed_ranks = {
        e["rank"] for e in result.events if e["event"] == "samples" and e["case"] == "program"
    }
    assert timed_ranks == {0, 1} - dead_ranks
    assert case["metrics"]["time_ms"]["n"] == 1
    assert result.statuses["copy"] == "passed"


def test_failed_check_names_the_rank_among_all_hosts(tmp_path: Path) -> None:
    failing_case = make_program_case(f"mkdir {tmp_path}/first || exit 3")
    result = run(write_suite(tmp_path, failing_case), *HOSTS, home=tmp_path / "home")
    assert result.code == 1, result.stdout + result.stderr
    (check,) = result.case("program")["checks"]
    assert check["ranks_passed"] == 1
    assert "sh of rank" in result.case("program")["reason"]


@pytest.mark.long
def test_repeats_are_interleaved_launches_on_each_host(tmp_path: Path) -> None:
    result = run(
        write_suite(tmp_path, make_copy_case(np=1, repeat=2)), *HOSTS, home=tmp_path / "home"
    )
    assert result.code == 0, result.stdout + result.stderr
    assert len(list_job_events(result)) == 8
    assert len(result.case("copy")["medians"]["time_ms"]) == 2


@pytest.mark.long
def test_ctrl_c_ends_the_jobs_on_all_hosts(tmp_path: Path) -> None:
    run_process = RunProcess(
        write_suite(tmp_path, make_program_case("sleep 60")), *HOSTS, home=tmp_path / "home"
    )
    for rank in (0, 1):
        run_process.wait_for("progress", rank=rank)
    run_process.interrupt(signal.SIGINT)
    result = run_process.wait()
    assert result.code == 130, result.stdout + result.stderr
    assert result.statuses == {"program": "cancelled"}
    result.assert_no_process_left()


def test_case_without_hosts_is_one_local_job(tmp_path: Path) -> None:
    result = run(write_suite(tmp_path, make_copy_case(np=2)), home=tmp_path / "home")
    assert result.code == 0, result.stdout + result.stderr
    assert result.case("copy")["np"] == 2
    assert len(list_job_events(result)) == 2


@pytest.mark.long
def test_run_resumes_on_the_hosts_without_results(tmp_path: Path) -> None:
    slow_case = make_program_case("sleep 3", per_host=1)
    run_process = RunProcess(
        write_suite(tmp_path, make_copy_case(np=1), slow_case), *HOSTS, home=tmp_path / "home"
    )
    run_process.wait_for("progress", rank=1, case="program", limit=60)
    run_process.process.kill()
    run_process.wait()
    command = [SPBENCH, "run", "--resume", "last", *HOSTS, "--headless"]
    process = subprocess.run(
        [*command, "--home", str(run_process.home)], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr


def test_batch_job_rejects_a_case_per_host(tmp_path: Path) -> None:
    command = [SPBENCH, "script", write_suite(tmp_path, make_copy_case(np=1)), "--scheduler", "pbs"]
    process = subprocess.run(
        [*command, "--home", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert process.returncode == 2
    assert "hosts.yaml:1: copy has a job on each host" in process.stderr
