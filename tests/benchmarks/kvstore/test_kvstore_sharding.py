"""Who keeps which elements: servers and homes, against MXNet's rules and their known imbalance."""

from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.networks.registry import NETWORKS, list_parameters
from spbench_workers.benchmarks.kvstore.keys import merge_devices, sharding
from spbench_workers.benchmarks.kvstore.keys.merge_devices import (
    assign_largest_first,
    max_over_mean,
    sum_loads,
)
from spbench_workers.benchmarks.kvstore.keys.sharding import (
    Shard,
    compute_imbalance,
    make_shards,
    sum_server_loads,
)

ALEXNET = {"network": "alexnet"}
VGG = {"network": "vgg"}
RESNET_50 = {"network": "resnet"}
RESNET_200 = {"network": "resnet", "num_layers": 200}
INCEPTION_BN = {"network": "inception-bn"}
INCEPTION_V3 = {"network": "inception-v3"}

sizes = st.lists(st.integers(0, 60) | st.sampled_from([1000, 1777]), min_size=1, max_size=12)
words = st.sampled_from([1, 16, 32])


def elements_of(network):
    return [parameter.elements for parameter in list_parameters(**network)]


def test_small_arrays_go_where_the_hash_says():
    of_keys = make_shards([10] * 20, 3)
    assert of_keys == [[Shard(key * 9973 % 3, 0, 10)] for key in range(20)]
    assert sum_server_loads(of_keys, 3) == [70, 70, 60]


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
def test_big_arrays_are_cut_as_mxnet_cuts_them(count, servers, cuts):
    (of_key,) = make_shards([count], servers, bigarray_bound=count)
    assert of_key == [Shard(i, *span) for i, span in enumerate(pairwise(cuts))]
    assert make_shards([count], servers, bigarray_bound=count + 1) == [[Shard(0, 0, count)]]


def test_the_bound_is_a_million_elements():
    below, at = make_shards([999_999, 1_000_000], 2)
    assert (len(below), len(at)) == (1, 2)


@given(st.integers(1, 2000), st.integers(1, 9))
def test_cuts_are_rounded_shares(count, servers):
    (of_key,) = make_shards([count], servers, bigarray_bound=1)
    half = Fraction(1, 2)
    ends = [int(Fraction(count * i, servers) + half) for i in range(servers + 1)]
    expected = [Shard(i, *span) for i, span in enumerate(pairwise(ends)) if span[0] < span[1]]
    assert of_key == expected


@given(st.integers(1, 2000), st.integers(1, 9), words)
def test_compressed_words_are_cut_as_elements_are(count, servers, word):
    of_elements = make_shards([-(-count // word)], servers, bigarray_bound=1)[0]
    of_words = make_shards([count], servers, bigarray_bound=1, word=word)[0]
    spans = [(piece.server, piece.first * word, piece.last * word) for piece in of_elements]
    server, first, _ = spans[-1]
    assert of_words == [Shard(*span) for span in [*spans[:-1], (server, first, count)]]


@given(sizes, st.integers(1, 9), st.sampled_from(list(sharding.SCHEMES)), words)
def test_every_element_has_one_server(elements, servers, scheme, word):
    of_keys = make_shards(elements, servers, scheme, bigarray_bound=50, word=word)
    assert len(of_keys) == len(elements)
    for count, of_key in zip(elements, of_keys, strict=True):
        assert of_key[0].first == 0
        assert of_key[-1].last == count
        assert all(one.last == next_one.first for one, next_one in pairwise(of_key))
        assert all(piece.first % word == 0 for piece in of_key)
        assert all(0 <= piece.server < servers for piece in of_key)
        assert len({piece.server for piece in of_key}) == len(of_key)
    assert sum(sum_server_loads(of_keys, servers)) == sum(elements)


@given(sizes, st.integers(1, 9), words)
def test_balanced_is_never_worse_than_the_hash(elements, servers, word):
    balanced, hashed = (
        compute_imbalance(make_shards(elements, servers, scheme, 50, word=word), servers)
        for scheme in ("balanced", "hash")
    )
    assert 1.0 <= balanced <= hashed


def test_balanced_fills_the_least_loaded_servers_to_one_level():
    # 9 and 4 are small: the third array fills up what they leave.
    of_keys = make_shards([9, 4, 20], 3, "balanced", 10)
    assert of_keys[:2] == [[Shard(0, 0, 9)], [Shard(1, 0, 4)]]
    assert of_keys[2] == [Shard(0, 0, 2), Shard(1, 2, 9), Shard(2, 9, 20)]


def test_balanced_leaves_a_server_out_that_is_full():
    of_keys = make_shards([6, 6, 6, 6, 10], 3, "balanced", 10)
    assert of_keys[4] == [Shard(1, 0, 5), Shard(2, 5, 10)]
    assert sum_server_loads(of_keys, 3) == [12, 11, 11]


def test_balanced_takes_the_hash_where_that_is_luckily_more_even():
    elements = [2, 3, 2, 3, 2]
    assert sum_server_loads(make_shards(elements, 2, "balanced"), 2) == [6, 6]
    assert max(sum_loads(elements, assign_largest_first(elements, 2), 2)) == 7


def test_balanced_splits_an_array_beyond_a_fair_share():
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
def test_the_hash_is_as_uneven_as_is_known(network, by_servers):
    elements = elements_of(network)
    found = [compute_imbalance(make_shards(elements, servers), servers) for servers in (2, 4, 8)]
    assert found == pytest.approx(by_servers, abs=0.0051)


def test_without_splitting_vgg_would_hang_on_one_server():
    elements = elements_of(VGG)
    found = [
        compute_imbalance(make_shards(elements, n, bigarray_bound=10**9), n) for n in (2, 4, 8)
    ]
    assert found == pytest.approx([2.0, 3.3, 6.1], abs=0.051)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("servers", range(2, 9))
def test_balanced_mends_every_network(name, servers):
    elements = elements_of({"network": name})
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
def test_homes_are_as_uneven_as_is_known(network, by_devices):
    elements = elements_of(network)
    found = [
        merge_devices.compute_imbalance(
            merge_devices.assign_merge_devices(elements, devices), elements, devices
        )
        for devices in (2, 4, 8)
    ]
    assert found == pytest.approx(by_devices, abs=0.0055)


def test_homes_go_by_size_to_the_least_loaded():
    assert merge_devices.assign_merge_devices([3, 10, 4, 4, 6], 2) == [1, 0, 1, 0, 1]
    assert merge_devices.assign_merge_devices([0, 0, 5], 3) == [1, 1, 0]
    assert merge_devices.compute_imbalance([1, 0, 1, 0, 1], [3, 10, 4, 4, 6], 2) == pytest.approx(
        14 / 13.5
    )


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 3))
def test_the_largest_first_is_within_grahams_bound(elements, places):
    every = product(range(places), repeat=len(elements))
    best = min(max(sum_loads(elements, chosen, places)) for chosen in every)
    found = max(sum_loads(elements, assign_largest_first(elements, places), places))
    assert best <= found <= Fraction(4 * places - 1, 3 * places) * best


def test_nothing_is_even():
    assert max_over_mean([0, 0, 0]) == 1.0
    assert max_over_mean([6, 0, 0]) == 3.0
