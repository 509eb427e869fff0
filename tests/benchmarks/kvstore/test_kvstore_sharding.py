"""Servers and merge devices of elements, by MXNet's rules with known imbalance."""

from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.mxnet_networks.registry import NETWORKS, list_parameters
from spbench_workers.benchmarks.kvstore.keys import sharding
from spbench_workers.benchmarks.kvstore.keys.sharding import (
    Shard,
    assign_largest_first,
    assign_merge_devices,
    compute_imbalance,
    compute_max_over_mean,
    make_shards,
    sum_loads,
    sum_server_loads,
)

ALEXNET = {"network": "alexnet"}
VGG = {"network": "vgg"}
RESNET_50 = {"network": "resnet"}
RESNET_200 = {"network": "resnet", "num_layers": 200}
INCEPTION_BN = {"network": "inception-bn"}
INCEPTION_V3 = {"network": "inception-v3"}

sizes = st.lists(st.integers(0, 60) | st.sampled_from([1000, 1777]), min_size=1, max_size=12)
word_sizes = st.sampled_from([1, 16, 32])


def list_elements(network):
    return [parameter.elements for parameter in list_parameters(**network)]


def test_the_hash_places_small_arrays():
    shards_by_key = make_shards([10] * 20, 3)
    assert shards_by_key == [[Shard(key * 9973 % 3, 0, 10)] for key in range(20)]
    assert sum_server_loads(shards_by_key, 3) == [70, 70, 60]


def test_alternating_weights_and_biases_share_no_server():
    assert sum_server_loads(make_shards([100, 1] * 6, 2), 2) == [600, 6]
    assert compute_imbalance(make_shards([100, 1] * 6, 2), 2) == pytest.approx(600 / 303)


@pytest.mark.parametrize(
    ("count", "servers", "cuts"),
    [
        (1_000_000, 3, [0, 333333, 666667, 1_000_000]),
        (10, 4, [0, 3, 5, 8, 10]),  # 2.5 and 7.5: halves go up, not to the even number
        (6, 4, [0, 2, 3, 5, 6]),  # 1.5 and 4.5
        (7, 2, [0, 4, 7]),
    ],
)
def test_large_arrays_are_cut_like_in_mxnet(count, servers, cuts):
    (shards,) = make_shards([count], servers, bigarray_bound=count)
    assert shards == [Shard(i, *span) for i, span in enumerate(pairwise(cuts))]
    assert make_shards([count], servers, bigarray_bound=count + 1) == [[Shard(0, 0, count)]]


def test_the_bound_is_a_million_elements():
    below, at_bound = make_shards([999_999, 1_000_000], 2)
    assert (len(below), len(at_bound)) == (1, 2)


@given(st.integers(1, 2000), st.integers(1, 9))
def test_cuts_are_rounded_shares(count, servers):
    (shards,) = make_shards([count], servers, bigarray_bound=1)
    half = Fraction(1, 2)
    ends = [int(Fraction(count * i, servers) + half) for i in range(servers + 1)]
    expected = [Shard(i, *span) for i, span in enumerate(pairwise(ends)) if span[0] < span[1]]
    assert shards == expected


@given(st.integers(1, 2000), st.integers(1, 9), word_sizes)
def test_compressed_words_are_cut_like_elements(count, servers, word):
    element_shards = make_shards([-(-count // word)], servers, bigarray_bound=1)[0]
    word_shards = make_shards([count], servers, bigarray_bound=1, word=word)[0]
    spans = [(piece.server, piece.first * word, piece.last * word) for piece in element_shards]
    server, first, _ = spans[-1]
    assert word_shards == [Shard(*span) for span in [*spans[:-1], (server, first, count)]]


@given(sizes, st.integers(1, 9), st.sampled_from(list(sharding.SCHEMES)), word_sizes)
def test_every_element_has_one_server(elements, servers, scheme, word):
    shards_by_key = make_shards(elements, servers, scheme, bigarray_bound=50, word=word)
    assert len(shards_by_key) == len(elements)
    for count, shards in zip(elements, shards_by_key, strict=True):
        assert shards[0].first == 0
        assert shards[-1].last == count
        assert all(shard.last == next_shard.first for shard, next_shard in pairwise(shards))
        assert all(piece.first % word == 0 for piece in shards)
        assert all(0 <= piece.server < servers for piece in shards)
        assert len({piece.server for piece in shards}) == len(shards)
    assert sum(sum_server_loads(shards_by_key, servers)) == sum(elements)


@given(sizes, st.integers(1, 9), word_sizes)
def test_balanced_is_never_worse_than_the_hash(elements, servers, word):
    balanced, hashed = (
        compute_imbalance(make_shards(elements, servers, scheme, 50, word=word), servers)
        for scheme in ("balanced", "hash")
    )
    assert 1.0 <= balanced <= hashed


def test_balanced_fills_the_least_loaded_servers_to_one_level():
    # 9 and 4 are small: the third array fills the remaining capacity.
    shards_by_key = make_shards([9, 4, 20], 3, "balanced", 10)
    assert shards_by_key[:2] == [[Shard(0, 0, 9)], [Shard(1, 0, 4)]]
    assert shards_by_key[2] == [Shard(0, 0, 2), Shard(1, 2, 9), Shard(2, 9, 20)]


def test_balanced_skips_a_full_server():
    shards_by_key = make_shards([6, 6, 6, 6, 10], 3, "balanced", 10)
    assert shards_by_key[4] == [Shard(1, 0, 5), Shard(2, 5, 10)]
    assert sum_server_loads(shards_by_key, 3) == [12, 11, 11]


def test_balanced_takes_the_hash_if_it_is_more_even():
    elements = [2, 3, 2, 3, 2]
    assert sum_server_loads(make_shards(elements, 2, "balanced"), 2) == [6, 6]
    assert max(sum_loads(elements, assign_largest_first(elements, 2), 2)) == 7


def test_balanced_splits_an_array_above_a_fair_share():
    assert sum_server_loads(make_shards([900, 50, 50], 4, "balanced"), 4) == [250] * 4
    assert max(sum_server_loads(make_shards([900, 50, 50], 4), 4)) >= 900


@pytest.mark.parametrize(
    ("network", "by_servers"),
    [
        (INCEPTION_BN, [1.91, 1.98, 2.05]),
        (RESNET_200, [1.02, 1.03, 1.06]),
        (INCEPTION_V3, [1.00, 1.07, 1.13]),
        (RESNET_50, [1.04, 1.05, 1.22]),
        (VGG, [1.01, 1.02, 1.03]),
        (ALEXNET, [1.05, 1.09, 1.10]),
    ],
)
def test_the_hash_has_the_known_imbalance(network, by_servers):
    elements = list_elements(network)
    imbalances = [
        compute_imbalance(make_shards(elements, servers), servers) for servers in (2, 4, 8)
    ]
    assert imbalances == pytest.approx(by_servers, abs=0.0051)


def test_without_splitting_one_server_dominates_vgg():
    elements = list_elements(VGG)
    imbalances = [
        compute_imbalance(make_shards(elements, n, bigarray_bound=10**9), n) for n in (2, 4, 8)
    ]
    assert imbalances == pytest.approx([2.0, 3.3, 6.1], abs=0.051)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("servers", range(2, 9))
def test_balanced_is_even_for_every_network(name, servers):
    elements = list_elements({"network": name})
    hashed = compute_imbalance(make_shards(elements, servers), servers)
    balanced = compute_imbalance(make_shards(elements, servers, "balanced"), servers)
    assert balanced <= hashed
    assert balanced < 1.04


@pytest.mark.parametrize(
    ("network", "by_devices"),
    [
        (ALEXNET, [1.03, 2.06, 4.13]),
        (VGG, [1.49, 2.97, 5.94]),
        (RESNET_50, [1.0, 1.0, 1.0]),
        (RESNET_200, [1.0, 1.0, 1.0]),
        (INCEPTION_BN, [1.0, 1.0, 1.0]),
        (INCEPTION_V3, [1.0, 1.0, 1.0]),
    ],
)
def test_merge_devices_have_the_known_imbalance(network, by_devices):
    elements = list_elements(network)
    imbalances = [
        compute_max_over_mean(sum_loads(elements, assign_merge_devices(elements, devices), devices))
        for devices in (2, 4, 8)
    ]
    assert imbalances == pytest.approx(by_devices, abs=0.0055)


def test_merge_devices_are_assigned_by_size():
    assert assign_merge_devices([3, 10, 4, 4, 6], 2) == [1, 0, 1, 0, 1]
    assert assign_merge_devices([0, 0, 5], 3) == [1, 1, 0]
    assert compute_max_over_mean(sum_loads([3, 10, 4, 4, 6], [1, 0, 1, 0, 1], 2)) == pytest.approx(
        14 / 13.5
    )


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 3))
def test_the_largest_first_is_within_grahams_bound(elements, devices):
    assignments = product(range(devices), repeat=len(elements))
    best = min(max(sum_loads(elements, assignment, devices)) for assignment in assignments)
    largest_load = max(sum_loads(elements, assign_largest_first(elements, devices), devices))
    assert best <= largest_load <= Fraction(4 * devices - 1, 3 * devices) * best


def test_zero_loads_are_even():
    assert compute_max_over_mean([0, 0, 0]) == 1.0
    assert compute_max_over_mean([6, 0, 0]) == 3.0
