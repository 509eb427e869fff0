"""Two ranks that learn on a device that does its work late learn what the host does.

The device stands in for a GPU: a wait that is missing shows as NaN. In NCCL's place there is gloo.
"""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(300)]

OPERATORS = {"operators"}
SUMS = {
    f"sums{way} torch.{dtype}"
    for way in ("", " by groups")
    for dtype in ("float64", "float32", "bfloat16", "float16")
}
LEARNT = {
    "replicas",
    "members",
    "stages",
    "mirrored",
    "one way",
    "tiles",
    "tiles in parts",
    "by groups",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return run_cases_on_ranks(2, "learn_late.py", tmp_path_factory.mktemp("late"))


@pytest.mark.parametrize("name", sorted(OPERATORS | SUMS | LEARNT))
def test_numbers_are_those_of_the_host_to_the_last_digit(answers, name):
    assert [answer["errors"][name] for answer in answers] == [0.0, 0.0]


def test_nothing_else_was_compared_and_nobody_waited_for_all_streams(answers):
    for answer in answers:
        assert answer["errors"].keys() == OPERATORS | SUMS | LEARNT
        assert answer["device_wide"] == 0
