"""Shared memory of killed ranks is removed; mapped segments stay."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from spbench.engine.processes import find_segments, remove_unused_segments

RANK = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
print("mapped", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def segment():
    path = Path(f"/dev/shm/mpich_shm_{secrets.token_hex(8)}_0")
    path.write_bytes(bytes(4096))
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def start_rank(segment):
    """Return a function that starts a process with the segment mapped, like a rank."""
    ranks = []

    def start(run_id):
        rank = subprocess.Popen(
            [sys.executable, "-c", RANK, str(segment)],
            env={**os.environ, "SPBENCH_RUN": run_id},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        ranks.append(rank)
        assert rank.stdout.readline() == b"mapped\n"
        return rank

    yield start
    for rank in ranks:
        rank.kill()
        rank.communicate()


def test_removes_segments_of_killed_ranks(segment, start_rank):
    run_id = f"run-{secrets.token_hex(4)}"
    rank = start_rank(run_id)
    segments = find_segments(run_id)
    assert segments == {segment}
    rank.kill()
    rank.wait()
    assert segment.exists()
    remove_unused_segments(segments)
    assert not segment.exists()


def test_does_not_find_segments_of_another_run(segment, start_rank):
    start_rank("another-run")
    assert find_segments(f"run-{secrets.token_hex(4)}") == set()


def test_keeps_a_segment_that_a_process_has_mapped(segment, start_rank):
    start_rank("another-run")
    remove_unused_segments({segment})
    assert segment.exists()


def test_keeps_a_link(segment, tmp_path):
    (tmp_path / "target").write_text("kept")
    segment.unlink()
    segment.symlink_to(tmp_path / "target")
    remove_unused_segments({segment})
    assert segment.is_symlink()
