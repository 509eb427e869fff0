"""What carries messages between stages: their order, deadlines and refusals, on two real ranks."""

import json
from pathlib import Path

import pytest

from running import on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

PROGRAM = str(Path(__file__).parent / "programs" / "carry_all.py")
CHECKS = ("mpi", "gloo", "deadline", "nccl without a GPU", "unknown")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    said = tmp_path_factory.mktemp("p2ps") / "results.json"
    ended = on_ranks(2, PROGRAM, str(said))
    assert ended.returncode == 0, ended.stderr
    return json.loads(said.read_text())


@pytest.mark.parametrize("check", CHECKS)
def test_messages_are_carried(answers, check):
    assert answers.keys() == set(CHECKS)
    assert answers[check] == ["", ""]
