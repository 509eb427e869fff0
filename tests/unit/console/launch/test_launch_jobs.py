"""Tests of grouping cases into jobs, and of preparing launches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from spbench.errors import FailedRunError, MissingError, UsageError
from spbench.launch import jobs
from spbench.launch.hosts.hostfiles import make_hosts_finder
from spbench.launch.hosts.hosts import parse_hosts
from spbench.launch.jobs import (
    Job,
    Launch,
    group_cases,
    interleave_repeats,
    prepare_launch,
)
from spbench.launch.launcher import RankBlock
from spbench.launch.mpi_probe import MpiLibrary
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS

NO_HOSTS = make_hosts_finder(None, Path())


def make_settings(**fields: object) -> LaunchSettings:
    return LaunchSettings.model_validate(fields)


def build_case(
    name: str, np: int | None, benchmark: str = "link.pingpong", **launch: object
) -> Case:
    params = BENCHMARKS[benchmark].complete({})
    return Case(name, name, benchmark, params, np, 1, (), make_settings(**launch), 1)


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def summarize_jobs(grouped: Sequence[Job]) -> list[tuple[int, int, list[str]]]:
    return [(job.number, job.np, [case.name for case in job.cases]) for job in grouped]


def test_cases_with_equal_settings_share_a_job():
    cases = [
        build_case("a", 4),
        build_case("b", 2),
        build_case("c", 4, bind="none"),
        build_case("d", 4, env={"X": "1"}),
        build_case("e", 4),
        build_case("f", 4, env={"X": "1"}),
    ]
    assert summarize_jobs(group_cases(cases, NO_HOSTS)) == [
        (1, 4, ["a", "e"]),
        (2, 2, ["b"]),
        (3, 4, ["c"]),
        (4, 4, ["d", "f"]),
    ]
    assert group_cases([], NO_HOSTS) == ()


def test_repeats_of_jobs_are_interleaved():
    often = replace(build_case("a", 4), repeat=3)
    once = build_case("b", 4)
    other = replace(build_case("c", 2), repeat=2)
    jobs = group_cases([often, once, other], NO_HOSTS)
    rounds = list(interleave_repeats(jobs))
    assert summarize_jobs(rounds) == [
        (1, 4, ["a", "b"]),
        (2, 2, ["c"]),
        (1, 4, ["a"]),
        (2, 2, ["c"]),
        (1, 4, ["a"]),
    ]
    assert [job.repeat for job in rounds] == [0, 0, 1, 1, 2]
    assert rounds[2].case_repeats == [(often, 1)]
    assert jobs[0].case_repeats == [(often, 0), (often, 1), (often, 2), (once, 0)]
    assert list(interleave_repeats(())) == []


@pytest.mark.usefixtures("two_cores")
def test_unspecified_ranks_use_all_slots():
    assert summarize_jobs(group_cases([build_case("a", None), build_case("b", 2)], NO_HOSTS)) == [
        (1, 2, ["a", "b"])
    ]
    hosts = make_hosts_finder(parse_hosts("n[1-2]:4"), Path())
    assert group_cases([build_case("a", None)], hosts)[0].np == 8
    assert group_cases([build_case("a", None, ranks_per_host=3)], hosts)[0].np == 6
    # a ping-pong needs two ranks, with any number of slots
    assert (
        group_cases([build_case("a", None)], make_hosts_finder(parse_hosts("n1"), Path()))[0].np
        == 2
    )


def test_finds_the_hosts_of_a_job(tmp_path, messages):
    (tmp_path / "near").write_text("n[1-4]:2\n")
    from_suite = make_hosts_finder(None, tmp_path)
    hosts = from_suite(make_settings(hostfile="near"))
    assert hosts is not None
    assert hosts.names == ("n1", "n2", "n3", "n4")
    assert from_suite(make_settings()) is None
    replaced = make_hosts_finder(parse_hosts("m1"), tmp_path)(make_settings(hostfile="near"))
    assert replaced is not None
    assert replaced.names == ("m1",)
    remaining = make_hosts_finder(None, tmp_path, "n[2-3]")(make_settings(hostfile="near"))
    assert remaining is not None
    assert remaining.names == ("n1", "n4")
    with messages.raises(UsageError):
        make_hosts_finder(None, tmp_path, "n1")(make_settings())


@pytest.fixture
def openmpi(monkeypatch, python_next_to_mpirun):
    """Return the interpreter of a venv with mpirun and Open MPI."""
    library = MpiLibrary("openmpi", "Open MPI v5.0.11")
    monkeypatch.setattr(jobs, "detect_mpi_library", lambda *_: library)
    return str(python_next_to_mpirun)


def prepare(python: str, home: Path, hosts: str | None, np: int = 4, **fields: object) -> Launch:
    job = Job(1, (), np, make_settings(python=python, **fields))
    env = {"PATH": "/usr/bin"}
    return prepare_launch(
        job, parse_hosts(hosts) if hosts else None, home, {"SPBENCH_RUN": "r"}, env
    )


def test_prepared_launch_is_complete_and_reproducible(openmpi, tmp_path, messages):
    launch = prepare(openmpi, tmp_path / "home", "node[01-02]:2")
    text = "node01 slots=2\nnode02 slots=2\n"
    assert launch.hostfile_text == text
    path = launch.spec.hostfile
    assert path is not None
    assert path.parent == tmp_path / "home/hostfiles"
    assert path.read_text() == text
    assert launch.placement == (RankBlock("node01", 2), RankBlock("node02", 2))
    messages.check((launch.launcher.name, launch.version))
    assert launch.library.name == "openmpi"
    assert not launch.spec.oversubscribed
    assert str(path) in launch.command.argv
    before = path.stat().st_mtime_ns
    assert prepare(openmpi, tmp_path / "home", "node[01-02]:2") == launch
    assert path.stat().st_mtime_ns == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_fan_in_is_passed_to_ranks(openmpi, tmp_path):
    direct = prepare(openmpi, tmp_path, "node[01-02]:2").spec.private_env
    relayed = prepare(openmpi, tmp_path, "node[01-02]:2", fan_in="node").spec.private_env
    assert relayed == {**direct, "SPBENCH_FAN_IN": "node"}


def test_damaged_hostfile_is_rewritten(openmpi, tmp_path):
    launch = prepare(openmpi, tmp_path, "node01:4")
    path = launch.spec.hostfile
    assert path is not None
    path.write_text("other")
    prepare(openmpi, tmp_path, "node01:4")
    assert path.read_text() == "node01 slots=4\n"


@pytest.mark.usefixtures("two_cores")
def test_more_ranks_than_cores_oversubscribe(openmpi, tmp_path):
    launch = prepare(openmpi, tmp_path, None)
    assert launch.spec.oversubscribed
    assert launch.hostfile_text is None
    assert launch.spec.hostfile is None
    assert "--oversubscribe" in launch.command.argv
    assert not prepare(openmpi, tmp_path, None, np=2).spec.oversubscribed
    job = Job(1, (), 4, make_settings(python=openmpi))
    in_batch = prepare_launch(job, None, tmp_path, {}, {"PATH": "", "SLURM_JOB_ID": "7"})
    assert not in_batch.spec.oversubscribed


def test_rejects_invalid_launches(openmpi, tmp_path, messages):
    with messages.raises(MissingError):
        prepare(openmpi, tmp_path, "node01:4", np=8)
    with pytest.raises(UsageError, match="NUL character"):
        prepare(openmpi, tmp_path, None, env={"A": "x\0y"})
    (tmp_path / "file").touch()
    with messages.raises(FailedRunError):
        prepare(openmpi, tmp_path / "file", "node01:4")


def test_ranks_per_host_limits_this_machine(openmpi, tmp_path, messages):
    with messages.raises(MissingError):
        prepare(openmpi, tmp_path, None, ranks_per_host=2)
    assert prepare(openmpi, tmp_path, None, ranks_per_host=4).placement == ()
    in_batch = Job(1, (), 4, make_settings(python=openmpi, ranks_per_host=2))
    assert prepare_launch(in_batch, None, tmp_path, {}, {"PATH": "", "SLURM_JOB_ID": "7"})
