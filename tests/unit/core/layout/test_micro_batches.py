"""Division of a batch into micro-batches and shares of members."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.layout.micro_batches import check_batch_size, split_batch, split_evenly


def list_images(intervals):
    return [image for first, last in intervals for image in range(first, last)]


def test_divides_five_images_into_two_parts():
    assert split_evenly(5, 2) == (3, 2)
    assert [batch.images for batch in split_batch(5, 2)] == [(0, 3), (3, 5)]
    assert [batch.size for batch in split_batch(5, 2)] == [3, 2]


def test_a_mirrored_step_consists_of_pairs_of_halves():
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
def test_each_image_is_in_exactly_one_micro_batch(batch_size, parts, times, mirrored, data):
    if batch_size < parts * (2 if mirrored else 1):
        with pytest.raises(ValueError, match="too few"):
            split_batch(batch_size, parts, mirrored=mirrored, times=times)
        return
    batches = split_batch(batch_size, parts, mirrored=mirrored, times=times)
    assert len(batches) == parts * (2 * times if mirrored else 1)
    image_count = batch_size * (times if mirrored else 1)
    assert list_images(batch.images for batch in batches) == list(range(image_count))
    sizes = [batch.size for batch in batches]
    assert max(sizes) - min(sizes) <= (2 if mirrored else 1)
    batch = data.draw(st.sampled_from(batches))
    members = data.draw(st.integers(1, batch.size))
    shares = [batch.member_images(member, members) for member in range(members)]
    assert list_images(shares) == list(range(*batch.images))
    assert min(last - first for first, last in shares) >= 1


@pytest.mark.parametrize(
    ("batch_size", "parts", "mirrored", "members", "smallest"),
    [(1, 2, False, 1, 2), (3, 2, True, 1, 4), (5, 3, False, 2, 6), (11, 3, True, 2, 12)],
)
def test_names_the_smallest_valid_batch_size(batch_size, parts, mirrored, members, smallest):
    with pytest.raises(ValueError, match=f"batch_size of at least {smallest}$"):
        check_batch_size(batch_size, parts, mirrored=mirrored, members=members)
    check_batch_size(smallest, parts, mirrored=mirrored, members=members)
    for batch in split_batch(smallest, parts, mirrored=mirrored):
        assert batch.size >= members
