"""Two ranks that learn on a device that does its work late learn what the host does.

The device stands in for a GPU: a wait that is missing shows as NaN. In NCCL's place there is gloo.
"""

import json
import os
from pathlib import Path

import pytest

from running import on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

TESTS = Path(__file__).parent.parent
PROGRAM = TESTS / "mpi" / "programs" / "learn_late.py"
OPERATORS = {"operators"}
SUMS = {
    f"sums{way} torch.{dtype}"
    for way in ("", " by groups")
    for dtype in ("float64", "float32", "bfloat16", "float16")
}
LEARNT = {"replicas", "members", "stages", "mirrored", "one way", "tiles", "by groups"}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    said = tmp_path_factory.mktemp("late") / "results.json"
    path = f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    ended = on_ranks(2, str(PROGRAM), str(said), PYTHONPATH=path, OMPI_MCA_mpi_yield_when_idle="1")
    assert ended.returncode == 0, ended.stderr
    return json.loads(said.read_text())


@pytest.mark.parametrize("name", sorted(OPERATORS | SUMS | LEARNT))
def test_numbers_are_those_of_the_host_to_the_last_digit(answers, name):
    assert [answer["errors"][name] for answer in answers] == [0.0, 0.0]


def test_nothing_else_was_compared_and_nobody_waited_for_all_streams(answers):
    for answer in answers:
        assert answer["errors"].keys() == OPERATORS | SUMS | LEARNT
        assert answer["device_wide"] == 0
