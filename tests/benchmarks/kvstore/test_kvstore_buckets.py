"""Buckets of keys: complete keys, in order, and all of the arena."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_workers.benchmarks.kvstore.keys.arena import Bucket, compute_offsets, make_buckets

sizes = st.lists(st.integers(0, 40), max_size=12)
backward_or_not = st.booleans()


def list_spans(*args, **options):
    return [(bucket.first, bucket.last) for bucket in make_buckets(*args, **options)]


def test_a_bucket_takes_keys_while_they_fit():
    assert make_buckets([3, 5, 4, 1, 2], 4 * 8) == [
        Bucket(0, 8, range(0, 2)),
        Bucket(8, 15, range(2, 5)),
    ]
    assert list_spans([3, 5, 4, 1, 2], 4 * 8, itemsize=8) == [(0, 3), (3, 8), (8, 12), (12, 15)]


def test_backward_starts_with_the_last_key():
    assert make_buckets([3, 5, 4, 1, 2], 4 * 8, backward=True) == [
        Bucket(8, 15, range(2, 5)),
        Bucket(0, 8, range(0, 2)),
    ]
    assert list_spans([1, 7, 2], 4 * 8) == [(0, 8), (8, 10)]
    assert list_spans([1, 7, 2], 4 * 8, backward=True) == [(8, 10), (0, 8)]
    assert list_spans([2, 7, 2], 4 * 8, backward=True) == [(9, 11), (2, 9), (0, 2)]


def test_a_key_larger_than_a_bucket_has_a_separate_bucket():
    assert list_spans([1, 100, 1], 4 * 8) == [(0, 1), (1, 101), (101, 102)]


def test_none_is_a_flat_buffer_and_zero_a_bucket_per_key():
    assert make_buckets([3, 0, 2], None) == [Bucket(0, 5, range(3))]
    assert make_buckets([3, 0, 2], 0) == [
        Bucket(0, 3, range(0, 1)),
        Bucket(3, 3, range(1, 2)),
        Bucket(3, 5, range(2, 3)),
    ]
    assert list_spans([3, 0, 2], 0, backward=True) == [(3, 5), (3, 3), (0, 3)]


@pytest.mark.parametrize("bucket_bytes", [None, 0, 64])
def test_no_keys_make_no_bucket(bucket_bytes):
    assert make_buckets([], bucket_bytes) == []


def test_split_buckets_are_full_except_the_last():
    assert make_buckets([3, 5, 4], 4 * 5, split=True) == [
        Bucket(0, 5, range(0, 2)),
        Bucket(5, 10, range(1, 3)),
        Bucket(10, 12, range(2, 3)),
    ]
    assert list_spans([3, 5, 4], 4 * 5, split=True, backward=True) == [(7, 12), (2, 7), (0, 2)]


def test_rejects_buckets_smaller_than_an_element(messages):
    with messages.raises(ValueError):
        make_buckets([3, 5], 3, split=True)


@given(sizes, st.none() | st.integers(0, 200), backward_or_not)
def test_every_key_is_in_one_bucket_in_order(elements, bucket_bytes, backward):
    buckets = make_buckets(elements, bucket_bytes, backward=backward)
    starts = compute_offsets(elements)
    for bucket in buckets:
        assert (bucket.first, bucket.last) == (starts[bucket.keys.start], starts[bucket.keys.stop])
        fits = bucket_bytes is None or 4 * bucket.count <= bucket_bytes
        assert fits or sum(elements[key] > 0 for key in bucket.keys) == 1
    in_order = buckets[::-1] if backward else buckets
    assert [key for bucket in in_order for key in bucket.keys] == list(range(len(elements)))


@given(sizes, st.integers(4, 200), backward_or_not)
def test_no_two_buckets_would_fit_into_one(elements, bucket_bytes, backward):
    buckets = make_buckets(elements, bucket_bytes, backward=backward)
    for bucket, following in pairwise(buckets):
        first_key = following.keys[-1] if backward else following.keys[0]
        assert 4 * (bucket.count + elements[first_key]) > bucket_bytes


@given(sizes, st.integers(4, 200), backward_or_not)
def test_split_buckets_cover_the_arena(elements, bucket_bytes, backward):
    buckets = make_buckets(elements, bucket_bytes, backward=backward, split=True)
    covered = [element for bucket in buckets for element in range(bucket.first, bucket.last)]
    assert sorted(covered) == list(range(sum(elements)))
    assert all(4 * bucket.count <= bucket_bytes for bucket in buckets)
    starts = compute_offsets(elements)
    for bucket in buckets:
        touched = {
            key
            for key in range(len(elements))
            if max(starts[key], bucket.first) < min(starts[key + 1], bucket.last)
        }
        assert touched <= set(bucket.keys)
        assert all(elements[key] == 0 for key in set(bucket.keys) - touched)
