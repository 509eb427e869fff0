"""The baseline of a single rank: warm, and without interference."""

from time import sleep

import pytest

from spbench_workers.single_rank_baseline import time_single_rank


def time_slow_body(slow_calls, iterations):
    """Time a body that takes 1 ms, or 20 ms in slow calls; return the calls, too."""
    calls = iter(range(10_000))

    def body():
        sleep(0.020 if next(calls) in slow_calls else 0.001)

    return time_single_rank(body, iterations), next(calls)


@pytest.mark.parametrize("slow_calls", [range(1), range(45, 60)])
def test_ignores_a_cold_start_and_short_interference(slow_calls):
    seconds, _ = time_slow_body(slow_calls, 50)
    assert 0.001 <= seconds < 0.010


def test_times_at_most_the_iterations_of_the_case():
    assert time_slow_body(range(0), 5)[1] <= 5 + 10


def test_times_long_iterations_only_once():
    assert time_slow_body(range(10_000), 1_000)[1] == 1 + 10
