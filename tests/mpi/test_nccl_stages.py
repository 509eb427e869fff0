"""Stages over NCCL: no operation waits for NCCL while a receive is posted.

No GPU takes part: gloo replaces NCCL (see programs/train_over_nccl.py).
"""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(300)]

DEFAULTS = {
    "stages": 2,
    "grids": [],
    "batch": 5,
    "parts": 2,
    "members": 1,
    "replicas": 1,
    "mirrored": False,
    "precision": "fp32",
    "transport": "once",
    "statistics": "image",
    "trains": True,
    "skips": False,
}
MODELS = {
    "stages": {},
    "bf16": {"precision": "bf16"},
    "tiles": {"grids": ["1x2"]},
    "tiles on tiles": {"grids": ["1x2", "2x1"]},
    "tiles that infer": {"grids": ["2x1"], "trains": False},
    "mirrored tiles": {"grids": ["1x2", "1x2"], "mirrored": True},
    "members": {"stages": 2, "members": 2},
    "skips past stages": {"stages": 4, "parts": 5, "skips": True},
    "replicas of one batch": {"replicas": 2, "statistics": "replicas"},
}


def make_setting_case(name, value, rank, message):
    return {"name": name, "value": value, "rank": rank, "message": message}


ONE_QUEUE = (
    "backend nccl: rank 1 has CUDA_DEVICE_MAX_CONNECTIONS=1, with which a receive that is posted "
    "ahead holds up all other work of the GPU; unset it, or take backend mpi or gloo"
)
SETTINGS = {
    "one queue": make_setting_case("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1, ONE_QUEUE),
    "blocking launches": make_setting_case(
        "CUDA_LAUNCH_BLOCKING",
        "1",
        0,
        ONE_QUEUE.replace("rank 1", "rank 0").replace(
            "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING"
        ),
    ),
    "eight queues": make_setting_case("CUDA_DEVICE_MAX_CONNECTIONS", "8", 0, None),
}
CASES = {name: DEFAULTS | fields for name, fields in MODELS.items()} | SETTINGS


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nccl")
    case_results = run_cases_on_ranks(4, "train_over_nccl.py", folder, list(CASES.values()))
    return dict(zip(CASES, case_results, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_no_rank_waits_for_nccl_with_a_posted_receive(results, name):
    assert results[name] == [""] * 4
