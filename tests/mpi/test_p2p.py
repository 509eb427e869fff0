"""Messages between stages on two real ranks: order, deadlines and errors."""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

CHECKS = ("mpi", "gloo", "deadline", "nccl without a GPU", "unknown")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_cases_on_ranks(2, "send_between_stages.py", tmp_path_factory.mktemp("p2ps"))


@pytest.mark.parametrize("check", CHECKS)
def test_check_finds_no_problem(results, check):
    assert results.keys() == set(CHECKS)
    assert results[check] == ["", ""]
