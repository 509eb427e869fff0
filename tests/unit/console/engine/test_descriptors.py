"""Limits of open files: raised, reserved for ranks, and checked before a launch."""

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
from spbench.engine.plan import count_concurrent_connections
from spbench.errors import ExitCode, MissingError
from spbench.launch.hosts.hosts import Host, Hosts
from spbench.launch.jobs import group_cases
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS


@pytest.fixture
def limits():
    """Lower the soft limit of open files to 256; return the previous limits."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_raises_the_soft_limit_to_the_hard_limit(limits):
    assert raise_file_limit() == limits[1]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])


def test_reserves_descriptors_for_ranks(limits):
    assert count_free_for_pending(100) == 256 - 100 - RESERVE
    assert count_free_for_pending(1000) > 0


def test_accepts_connections_within_the_hard_limit(limits):
    check_connections(limits[1] - RESERVE)


def test_rejects_connections_above_the_hard_limit(limits):
    with pytest.raises(MissingError) as caught:
        check_connections(limits[1] - RESERVE + 1)
    assert f"need {limits[1] + 1} open files" in str(caught.value)
    assert f"the hard limit here is {limits[1]}" in str(caught.value)
    assert caught.value.exit_code == ExitCode.MISSING


@pytest.mark.slow
def test_rejects_more_ranks_than_open_files_before_the_launch(tmp_path, messages):
    suite = tmp_path / "many.yaml"
    suite.write_text(
        "schema: spbench.suite/1\nname: many\ncases:\n"
        "  - {name: a, benchmark: link.pingpong, np: 300}\n"
    )
    options = "--headless --oversubscribe --hosts localhost:300"
    line = f'ulimit -n 200; exec "$0" -m spbench run "$1" {options}'
    process = subprocess.run(
        ["bash", "-c", line, sys.executable, str(suite), "--home", str(tmp_path)],
        env=os.environ | {"SPBENCH_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 3, process.stderr
    messages.check(process.stderr)
    assert len(process.stderr.splitlines()) == 1


@pytest.mark.parametrize(("at_once", "concurrent"), [(1000, 20), (4, 4), (1, 1)])
def test_concurrent_jobs_share_the_open_files(at_once, concurrent):
    params = BENCHMARKS["memory.copy"].complete({})
    settings = LaunchSettings()
    case = Case("a", "a", "memory.copy", params, 3, 1, (), settings, 1, at_once=at_once)
    exclusive = replace(case, id="b", at_once=0)
    hosts = Hosts(tuple(Host(f"node{number}") for number in range(20)))
    jobs = group_cases([case, exclusive], lambda _: hosts)
    assert len(jobs) == 21
    prepared: list[Any] = [SimpleNamespace(placement=())] * 21
    numbers = list(count_concurrent_connections(jobs, prepared))
    assert max(numbers) == concurrent * (3 + FILES_OF_JOB)
    assert 3 in numbers
