"""Tests that share a launch run in one process of xdist, so that it starts once."""

import subprocess
import sys

import pytest

from support.paths import ROOT

SAMPLE = """
import os, pytest

pytestmark = pytest.mark.mpi

@pytest.fixture(
    scope="module"
)
def launch(tmp_path_factory):
    with open(os.environ["LAUNCHES"], "a") as file:
        file.write("launch\\n")

@pytest.fixture
def events(launch):
    pass

@pytest.mark.parametrize("rank", range(8))
def test_rank(events, rank):
    pass

@pytest.mark.parametrize("rank", range(8))
class TestTimes:
    def test_time(self, launch, rank):
        pass

@pytest.mark.parametrize("rank", range(8))
def test_own_launch(rank):
    pass
"""


def launches(folder, distribution):
    """Return how often the shared launch of SAMPLE starts in two processes."""
    sample = folder / "test_sample.py"
    sample.write_text(SAMPLE)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = mpi\n")
    log = folder / f"{distribution}.log"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "support.process_groups"),
            *("--numprocesses", "2", "--dist", distribution, sample),
        ],
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(ROOT / "tests"), "LAUNCHES": str(log)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "24 passed" in done.stdout, done.stdout + done.stderr
    return len(log.read_text().splitlines())


@pytest.mark.slow
def test_a_shared_launch_starts_once(tmp_path):
    assert launches(tmp_path, "load") == 2
    assert launches(tmp_path, "loadgroup") == 1
