import os
import resource
import subprocess
import sys

import pytest

from spbench.engine.connections.descriptors import (
    RESERVE,
    check_connections,
    raise_limit,
    room_for_strangers,
)
from spbench.errors import ExitCode, MissingError


@pytest.fixture
def limits():
    """The limits of open files, lowered for a test; soft to 256 under what is hard now."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_to_the_hard_one(limits):
    assert raise_limit() == limits[1]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])


def test_ranks_keep_their_descriptors_free_of_strangers(limits):
    assert room_for_strangers(100) == 256 - 100 - RESERVE
    assert room_for_strangers(1000) > 0


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
    line = 'ulimit -n 200; exec "$0" -m spbench run "$1" --headless --hosts localhost:300'
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
