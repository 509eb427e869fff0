"""Steps over tiles with Winograd convolutions, which a stand-in computes.

`python -m benchmarks.winograd_faults` repeats each fault with 20 seeds.
"""

import pytest

from support.winograd_steps import (
    FAULTS,
    find_largest_error,
    make_winograd_case,
    run_winograd_cases,
)

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

CASES = {
    "right": make_winograd_case(0),
    "right, bounds of the CPU": make_winograd_case(0, on_gpu=False),
    **{fault: make_winograd_case(0, fault) for fault in FAULTS},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Run the cases once; return the errors of all ranks by case."""
    folder = tmp_path_factory.mktemp("winograd")
    return dict(zip(CASES, run_winograd_cases(list(CASES.values()), folder), strict=True))


def test_right_step_passes_with_bounds_of_gpu(results):
    for rank in results["right"]:
        assert rank["forward"] > 0
        assert rank["backward"] > 0
        assert {name for name, error in rank["errors"].items() if error > 1} == set()


def test_right_step_exceeds_bounds_of_cpu(results):
    ranks = results["right, bounds of the CPU"]
    assert find_largest_error(ranks, "operators") > 2
    assert find_largest_error(ranks, "scales") < 0.5


@pytest.mark.parametrize("fault", FAULTS)
def test_finds_fault_in_windows(results, fault):
    assert find_largest_error(results[fault], FAULTS[fault]) > 1
