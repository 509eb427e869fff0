"""Tests that share a launch run in one process of xdist."""

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


def count_launches(folder, distribution):
    """Return the number of starts of SAMPLE's shared launch in two processes."""
    sample = folder / "test_sample.py"
    sample.write_text(SAMPLE)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = mpi\n")
    log = folder / f"{distribution}.log"
    completed = subprocess.run(
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
    assert "24 passed" in completed.stdout, completed.stdout + completed.stderr
    return len(log.read_text().splitlines())


@pytest.mark.slow
def test_shared_launch_starts_once(tmp_path):
    assert count_launches(tmp_path, "load") == 2
    assert count_launches(tmp_path, "loadgroup") == 1
