"""The limit of a halo exchange on three ranks, two of them in the ping-pong."""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

PATH_NAMES = {
    "pinned": "by way of pinned memory",
    "pointers": "device pointers",
    "nccl": "by NCCL",
    "cuda-ipc": "by CUDA IPC",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_cases_on_ranks(3, "limit_paths.py", tmp_path_factory.mktemp("limits"), seconds=100)


@pytest.mark.parametrize("path", PATH_NAMES)
def test_one_rank_reports_the_limit_of_the_path(results, path):
    assert len(results[path]) == 3
    events = [event for rank_events in results[path] for event in rank_events]
    checks = [event for event in events if event["event"] == "check"]
    assert [(check["name"], check["passed"]) for check in checks] == [("halo", True)] * 3
    (limit,) = [event for event in events if event["name"] == "time_ms"]
    assert limit["value"] > 0
    assert PATH_NAMES[path] in limit["measured_by"]
    assert "rank 1 to 0" in limit["measured_by"]
