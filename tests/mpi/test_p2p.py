"""Transports of messages between stages: order, deadlines and refusals, on two real ranks."""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

CHECKS = ("mpi", "gloo", "deadline", "nccl without a GPU", "unknown")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return run_cases_on_ranks(2, "carry_all.py", tmp_path_factory.mktemp("p2ps"))


@pytest.mark.parametrize("check", CHECKS)
def test_messages_are_carried(answers, check):
    assert answers.keys() == set(CHECKS)
    assert answers[check] == ["", ""]
