"""Tests of sharing samples among devices of several speeds."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.planner.search.cost_model import share_samples

kinds = st.lists(
    st.tuples(st.sampled_from([0.5, 1.0, 1.3, 2.0, 3.7]), st.integers(1, 4)),
    min_size=2,
    max_size=4,
)


def compute_slowest_time(speeds, shares):
    return max(share / speed for (speed, _), share in zip(speeds, shares, strict=True))


@settings(max_examples=100)
@given(kinds, st.integers(1, 40))
def test_no_shorter_time_fits_all_samples(speeds, samples):
    shares = share_samples(speeds, samples)
    assert sum(share * count for (_, count), share in zip(speeds, shares, strict=True)) >= samples
    time = compute_slowest_time(speeds, shares)
    times = {share / speed for speed, _ in speeds for share in range(1, samples + 1)}
    for shorter in (seconds for seconds in times if seconds < time * (1 - 1e-6)):
        assert sum(int(shorter * speed + 1e-9) * count for speed, count in speeds) < samples


def test_large_micro_batch_is_shared_quickly():
    start = time.perf_counter()
    assert share_samples([(1.0, 2), (3.0, 2)], 1 << 18) == [32768, 98304]
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize(("samples", "share"), [(1, 1), (7, 4), (8, 4)])
def test_equal_devices_share_evenly(samples, share):
    assert share_samples([(1.0, 2)], samples) == [share]
