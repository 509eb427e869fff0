import os
import resource
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from spbench.engine.connections.descriptors import (
    FILES_OF_JOB,
    RESERVE,
    check_connections,
    count_free_for_pending,
    raise_file_limit,
)
from spbench.engine.plan import count_connections_at_once
from spbench.errors import ExitCode, MissingError
from spbench.launch.hosts.hosts import Host, Hosts
from spbench.launch.jobs import group_cases
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS


@pytest.fixture
def limits():
    """The limits of open files, lowered for a test; soft to 256 under what is hard now."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_to_the_hard_one(limits):
    assert raise_file_limit() == limits[1]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])


def test_ranks_keep_their_descriptors_free_of_strangers(limits):
    assert count_free_for_pending(100) == 256 - 100 - RESERVE
    assert count_free_for_pending(1000) > 0


def test_what_fits_under_the_hard_limit_is_let_through(limits):
    check_connections(limits[1] - RESERVE)


def test_what_does_not_fit_is_refused_with_both_numbers(limits):
    with pytest.raises(MissingError) as refused:
        check_connections(limits[1] - RESERVE + 1)
    assert f"need {limits[1] + 1} open files" in str(refused.value)
    assert f"the hard limit here is {limits[1]}" in str(refused.value)
    assert refused.value.exit_code == ExitCode.MISSING


@pytest.mark.slow
def test_a_run_of_more_ranks_than_open_files_is_refused_before_its_launch(tmp_path):
    suite = tmp_path / "many.yaml"
    suite.write_text(
        "schema: spbench.suite/1\nname: many\ncases:\n"
        "  - {name: a, benchmark: link.pingpong, np: 300}\n"
    )
    options = "--headless --oversubscribe --hosts localhost:300"
    line = f'ulimit -n 200; exec "$0" -m spbench run "$1" {options}'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable, str(suite), "--home", str(tmp_path)],
        env=os.environ | {"SPBENCH_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "300 connections of ranks need 364 open files" in done.stderr
    assert "the hard limit here is 200" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("at_once", "most"), [(1000, 20), (4, 4), (1, 1)])
def test_jobs_that_run_at_once_share_the_open_files(at_once, most):
    params = BENCHMARKS["memory.copy"].complete({})
    settings = LaunchSettings()
    case = Case("a", "a", "memory.copy", params, 3, 1, (), settings, 1, at_once=at_once)
    alone = replace(case, id="b", at_once=0)
    hosts = Hosts(tuple(Host(f"node{number}") for number in range(20)))
    jobs = group_cases([case, alone], lambda _: hosts)
    assert len(jobs) == 21
    prepared: list[Any] = [SimpleNamespace(placement=())] * 21
    numbers = list(count_connections_at_once(jobs, prepared))
    assert max(numbers) == most * (3 + FILES_OF_JOB)
    assert 3 in numbers
