"""The limit of a halo exchange on real ranks, one of which has no part in the ping-pong."""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

WORDS = {
    "pinned": "by way of pinned memory",
    "pointers": "device pointers",
    "nccl": "by NCCL",
    "cuda-ipc": "by CUDA IPC",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_cases_on_ranks(3, "limit_paths.py", tmp_path_factory.mktemp("limits"), seconds=100)


@pytest.mark.parametrize("path", WORDS)
def test_one_rank_gives_the_limit_of_the_path(results, path):
    assert len(results[path]) == 3
    checks = [one for told in results[path] for one in told if one["event"] == "check"]
    assert [(one["name"], one["passed"]) for one in checks] == [("halo", True)] * 3
    given = [limit for limits in results[path] for limit in limits if limit["name"] == "time_ms"]
    (limit,) = given
    assert limit["value"] > 0
    assert WORDS[path] in limit["measured_by"]
    assert "rank 1 to 0" in limit["measured_by"]
