"""Images into micro-batches and shares, none dropped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.layout.micro_batches import check_batch_size, split_batch, split_evenly


def images_of(intervals):
    return [image for first, last in intervals for image in range(first, last)]


def test_five_images_in_two_parts():
    assert split_evenly(5, 2) == (3, 2)
    assert [batch.images for batch in split_batch(5, 2)] == [(0, 3), (3, 5)]
    assert [batch.size for batch in split_batch(5, 2)] == [3, 2]


def test_a_mirrored_step_has_pairs_of_halves():
    batches = split_batch(5, 2, mirrored=True, times=2)
    assert [(batch.images, batch.direction, batch.pair) for batch in batches] == [
        ((0, 2), 0, 0),
        ((2, 3), 0, 0),
        ((3, 4), 1, 0),
        ((4, 5), 1, 0),
        ((5, 7), 0, 1),
        ((7, 8), 0, 1),
        ((8, 9), 1, 1),
        ((9, 10), 1, 1),
    ]


@given(st.integers(1, 100), st.integers(1, 12), st.integers(1, 4), st.booleans(), st.data())
def test_no_image_is_dropped_or_seen_twice(batch_size, parts, times, mirrored, data):
    if batch_size < parts * (2 if mirrored else 1):
        with pytest.raises(ValueError, match="too few"):
            split_batch(batch_size, parts, mirrored=mirrored, times=times)
        return
    batches = split_batch(batch_size, parts, mirrored=mirrored, times=times)
    assert len(batches) == parts * (2 * times if mirrored else 1)
    whole = batch_size * (times if mirrored else 1)
    assert images_of(batch.images for batch in batches) == list(range(whole))
    sizes = [batch.size for batch in batches]
    assert max(sizes) - min(sizes) <= (2 if mirrored else 1)
    batch = data.draw(st.sampled_from(batches))
    members = data.draw(st.integers(1, batch.size))
    shares = [batch.member_images(member, members) for member in range(members)]
    assert images_of(shares) == list(range(*batch.images))
    assert min(last - first for first, last in shares) >= 1


@pytest.mark.parametrize(
    ("batch_size", "parts", "mirrored", "members", "least"),
    [(1, 2, False, 1, 2), (3, 2, True, 1, 4), (5, 3, False, 2, 6), (11, 3, True, 2, 12)],
)
def test_the_least_batch_is_named_and_would_do(batch_size, parts, mirrored, members, least):
    with pytest.raises(ValueError, match=f"batch_size of at least {least}$"):
        check_batch_size(batch_size, parts, mirrored=mirrored, members=members)
    check_batch_size(least, parts, mirrored=mirrored, members=members)
    for batch in split_batch(least, parts, mirrored=mirrored):
        assert batch.size >= members
