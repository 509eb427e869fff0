"""Tests of sorted samples and repeats."""

import random
from array import array
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.stats.sorted_samples import SortedRepeats, SortedSamples
from spbench.stats.summary import percentile, summarize, summarize_repeats

value = st.floats(-1e9, 1e9) | st.integers(0, 5).map(float)
batches = st.lists(st.lists(value, max_size=12), max_size=12)


class SmallBlocks(SortedSamples):
    """Samples in blocks so short that a few samples fill several."""

    block_samples = 4
    few_samples = 3


def build_samples(batches):
    samples = SmallBlocks()
    for batch in batches:
        samples.add(array("d", batch))
    return samples


@given(batches)
def test_samples_are_sorted_in_any_order_of_arrival(batches):
    expected = sorted(value for batch in batches for value in batch)
    samples = build_samples(batches)
    assert [samples[index] for index in range(len(samples))] == expected
    with pytest.raises(IndexError):
        samples[len(samples)]
    assert all(0 < len(block) <= 2 * SmallBlocks.block_samples for block in samples._blocks)


@given(batches.filter(any), value)
def test_statistics_are_exact(batches, limit):
    values = [value for batch in batches for value in batch]
    samples = build_samples(batches)
    summary = summarize(values)
    assert (samples.smallest, samples.largest) == (summary.min, summary.max)
    percentiles = [samples.percentile(part) for part in (0.5, 0.95, 0.99)]
    assert percentiles == [summary.p50, summary.p95, summary.p99]
    assert samples.count_below(limit) == sum(value < limit for value in values)
    assert samples.count_below(values[0]) == sum(value < values[0] for value in values)


def test_thousands_of_samples_are_sorted():
    generator = random.Random(7)
    values = [generator.gauss(10.0, 1.0) for _ in range(5000)]
    samples = build_samples(
        [values[:3000], *([value] for value in values[3000:4000]), values[4000:]]
    )
    assert samples.percentile(0.95) == percentile(sorted(values), 0.95)


def test_empty_samples_have_length_zero():
    assert len(SortedSamples()) == 0
    assert SortedSamples().count_below(1.0) == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(value, max_size=12)), max_size=12))
def test_repeats_are_summarized_exactly_at_any_time(batches):
    samples = SortedRepeats(SmallBlocks)
    repeats = {}
    for repeat, values in batches:
        samples.add(repeat, array("d", values))
        repeats.setdefault(repeat, []).extend(values)
        if len(samples):
            summary = summarize_repeats([*repeats.values()])
            assert samples.median() == summary.p50
            assert samples.values.percentile(0.95) == summary.p95
    assert list(samples.values) == sorted(chain.from_iterable(repeats.values()))
