"""The reference of one rank alone: warm, and without moments of other work."""

from time import sleep

import pytest

from spbench_workers.single_rank_baseline import time_single_rank


def time_slow_body(slow_calls, iterations):
    """Time a body that takes 1 ms, and 20 ms in some calls; return the calls, too."""
    calls = iter(range(10_000))

    def body():
        sleep(0.020 if next(calls) in slow_calls else 0.001)

    return time_single_rank(body, iterations), next(calls)


@pytest.mark.parametrize("slow_calls", [range(1), range(45, 60)])
def test_a_cold_start_and_a_moment_of_other_work_do_not_count(slow_calls):
    seconds, _ = time_slow_body(slow_calls, 50)
    assert 0.001 <= seconds < 0.010


def test_no_more_iterations_are_timed_than_the_case_has():
    assert time_slow_body(range(0), 5)[1] <= 5 + 10


def test_long_iterations_are_timed_no_more_often_than_needed():
    assert time_slow_body(range(10_000), 1_000)[1] == 1 + 10
