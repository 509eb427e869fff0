"""Stages that talk over NCCL: nothing that might wait for it while a receive is posted.

No GPU takes part: gloo stands in for NCCL (see programs/learn_over_nccl.py).
"""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(300)]

PLAIN = {
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
    "learns": True,
    "skips": False,
}
MODELS = {
    "stages": {},
    "bf16": {"precision": "bf16"},
    "tiles": {"grids": ["1x2"]},
    "tiles on tiles": {"grids": ["1x2", "2x1"]},
    "tiles that infer": {"grids": ["2x1"], "learns": False},
    "mirrored tiles": {"grids": ["1x2", "1x2"], "mirrored": True},
    "members": {"stages": 2, "members": 2},
    "skips past stages": {"stages": 4, "parts": 5, "skips": True},
    "replicas of one batch": {"replicas": 2, "statistics": "replicas"},
}


def setting(name, value, rank, words):
    return {"name": name, "value": value, "rank": rank, "words": words}


ONE_QUEUE = (
    "backend nccl: rank 1 has CUDA_DEVICE_MAX_CONNECTIONS=1, with which a receive that is posted "
    "ahead holds up all other work of the GPU; unset it, or take backend mpi or gloo"
)
SETTINGS = {
    "one queue": setting("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1, ONE_QUEUE),
    "blocking launches": setting(
        "CUDA_LAUNCH_BLOCKING",
        "1",
        0,
        ONE_QUEUE.replace("rank 1", "rank 0").replace(
            "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING"
        ),
    ),
    "eight queues": setting("CUDA_DEVICE_MAX_CONNECTIONS", "8", 0, None),
}
CASES = {name: PLAIN | words for name, words in MODELS.items()} | SETTINGS


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nccl")
    said = run_cases_on_ranks(4, "learn_over_nccl.py", folder, list(CASES.values()))
    return dict(zip(CASES, said, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_nothing_waits_for_what_may_never_come(answers, name):
    assert answers[name] == [""] * 4
