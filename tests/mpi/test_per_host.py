"""Cases with a job on each host, all at once; two names of this machine stand for two hosts."""

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


def suite_of(folder: Path, *cases: dict[str, Any], **more: Any) -> str:
    path = folder / "hosts.yaml"
    whole = {"schema": "spbench.suite/1", "name": "hosts", "cases": list(cases)}
    path.write_text(json.dumps(whole | more))
    return str(path)


def copy(**more: Any) -> dict[str, Any]:
    return {"name": "copy", "benchmark": "memory.copy", "params": COPY, "per_host": True} | more


def program(words: str, **more: Any) -> dict[str, Any]:
    params = {"argv": ["sh", "-c", words]}
    entry = {"name": "program", "benchmark": "program.run", "np": 1, "params": params}
    return entry | {"per_host": True} | more


def starts_and_ends(ended: RunResult) -> list[tuple[str, int]]:
    kinds = ("job_start", "job_end")
    return [(one["event"], one["job"]) for one in ended.events if one["event"] in kinds]


def test_each_host_has_a_job_of_its_own_and_the_case_has_the_ranks_of_all(tmp_path: Path) -> None:
    after = {"name": "gemm", "benchmark": "compute.gemm", "params": {"n": 64, "iterations": 3}}
    suite = suite_of(tmp_path, copy(), after | {"per_host": True})
    ended = run(suite, *HOSTS, home=tmp_path / "home")
    assert ended.code == 0, ended.stdout + ended.stderr
    order = starts_and_ends(ended)
    assert sorted(order) == [("job_end", 1), ("job_end", 2), ("job_start", 1), ("job_start", 2)]
    assert {kind for kind, _ in order[:2]} == {"job_start"}
    for name in ("copy", "gemm"):
        case = ended.case(name)
        assert case["np"] == 4
        assert [rank["rank"] for rank in case["ranks"]] == [0, 1, 2, 3]
        assert all(check["ranks_passed"] == 4 for check in case["checks"])
        timed = {e["rank"] for e in ended.events if e["event"] == "samples" and e["case"] == name}
        assert timed == {0, 1, 2, 3}
    ended.assert_no_process_left()


@pytest.mark.long
def test_a_number_is_the_most_hosts_at_once(tmp_path: Path) -> None:
    ended = run(suite_of(tmp_path, copy(per_host=1, np=1)), *HOSTS, home=tmp_path / "home")
    assert ended.code == 0, ended.stdout + ended.stderr
    assert starts_and_ends(ended) == [
        ("job_start", 1),
        ("job_end", 1),
        ("job_start", 2),
        ("job_end", 2),
    ]
    assert ended.case("copy")["np"] == 2
    assert len(ended.case("copy")["samples"]["time_ms"][0]) == 5


@pytest.mark.long
@pytest.mark.parametrize("at_once", [True, 1])
def test_a_host_on_which_it_dies_is_named_and_the_others_have_their_figures(
    at_once: bool | int, tmp_path: Path
) -> None:
    dies = program(f"mkdir {tmp_path}/first || {{ kill -9 $PPID; sleep 9; }}", per_host=at_once)
    ended = run(suite_of(tmp_path, dies, copy(np=1)), *HOSTS, home=tmp_path / "home")
    assert ended.code == 4, ended.stdout + ended.stderr
    case = ended.case("program")
    assert case["status"] == "error"
    dead = {rank["rank"] for rank in case["ranks"] if rank["status"] != "ok"}
    assert len(dead) == 1
    assert f"rank {min(dead)} on {HOST}" in case["reason"]
    timed = {e["rank"] for e in ended.events if e["event"] == "samples" and e["case"] == "program"}
    assert timed == {0, 1} - dead
    assert case["metrics"]["time_ms"]["n"] == 1
    assert ended.statuses["copy"] == "passed"


def test_a_check_that_fails_on_a_host_is_told_with_its_rank_among_all(tmp_path: Path) -> None:
    fails = program(f"mkdir {tmp_path}/first || exit 3")
    ended = run(suite_of(tmp_path, fails), *HOSTS, home=tmp_path / "home")
    assert ended.code == 1, ended.stdout + ended.stderr
    (check,) = ended.case("program")["checks"]
    assert check["ranks_passed"] == 1
    assert "sh of rank" in ended.case("program")["reason"]


@pytest.mark.long
def test_repeats_are_launches_by_turns_on_each_host(tmp_path: Path) -> None:
    ended = run(suite_of(tmp_path, copy(np=1, repeat=2)), *HOSTS, home=tmp_path / "home")
    assert ended.code == 0, ended.stdout + ended.stderr
    assert len(starts_and_ends(ended)) == 8
    assert len(ended.case("copy")["medians"]["time_ms"]) == 2


@pytest.mark.long
def test_ctrl_c_ends_the_jobs_on_all_hosts(tmp_path: Path) -> None:
    running = RunProcess(suite_of(tmp_path, program("sleep 60")), *HOSTS, home=tmp_path / "home")
    for rank in (0, 1):
        running.wait_for("progress", rank=rank)
    running.interrupt(signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130, ended.stdout + ended.stderr
    assert ended.statuses == {"program": "cancelled"}
    ended.assert_no_process_left()


def test_without_hosts_it_is_one_job_here(tmp_path: Path) -> None:
    ended = run(suite_of(tmp_path, copy(np=2)), home=tmp_path / "home")
    assert ended.code == 0, ended.stdout + ended.stderr
    assert ended.case("copy")["np"] == 2
    assert len(starts_and_ends(ended)) == 2


@pytest.mark.long
def test_a_run_resumes_on_the_hosts_where_it_is_missing(tmp_path: Path) -> None:
    slow = program("sleep 3", per_host=1)
    running = RunProcess(suite_of(tmp_path, copy(np=1), slow), *HOSTS, home=tmp_path / "home")
    running.wait_for("progress", rank=1, case="program", limit=60)
    running.process.kill()
    running.wait()
    words = [SPBENCH, "run", "--resume", "last", *HOSTS, "--headless"]
    done = subprocess.run(
        [*words, "--home", str(running.home)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_batch_job_refuses_it_where_it_stands(tmp_path: Path) -> None:
    words = [SPBENCH, "script", suite_of(tmp_path, copy(np=1)), "--scheduler", "pbs"]
    done = subprocess.run(
        [*words, "--home", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "hosts.yaml:1: copy has a job on each host" in done.stderr
