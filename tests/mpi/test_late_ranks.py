"""Training on two ranks with a device that works late, compared with the host.

The device stands in for a GPU: a missing synchronisation gives NaN. Gloo replaces NCCL.
"""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(300)]

OPERATORS = {"operators"}
SUMS = {
    f"sums{method} torch.{dtype}"
    for method in ("", " by groups")
    for dtype in ("float64", "float32", "bfloat16", "float16")
}
TRAINED = {
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
def rank_results(tmp_path_factory):
    return run_cases_on_ranks(2, "train_late.py", tmp_path_factory.mktemp("late"))


@pytest.mark.parametrize("name", sorted(OPERATORS | SUMS | TRAINED))
def test_results_are_bitwise_equal_to_the_host(rank_results, name):
    assert [result["errors"][name] for result in rank_results] == [0.0, 0.0]


def test_all_results_are_tested_without_device_wide_waits(rank_results):
    for result in rank_results:
        assert result["errors"].keys() == OPERATORS | SUMS | TRAINED
        assert result["device_wide"] == 0
