"""Names of stores, and the roles of ranks."""

import pytest

from spbench_core.catalog.benchmark import ParamError
from spbench_workers.benchmarks.kvstore.roles import (
    SPELLINGS,
    STORES,
    Device,
    Roles,
    Server,
    assign_roles,
    count_ranks,
    find_store,
    parse_devices,
)


@pytest.mark.parametrize("name", [*STORES, *SPELLINGS])
def test_names_determine_the_properties(name):
    store = find_store(name)
    assert store.dist == ("dist" in name)
    assert store.on_device == ("device" in name)
    assert store.asynchronous == ("_async" in name)
    assert store.needs_optimizer == store.asynchronous
    assert store.compresses == (store.dist or store.on_device)
    assert STORES[store.name] is store


def test_spellings_belong_to_existing_stores():
    assert find_store("dist_sync_device") is STORES["dist_device_sync"]
    assert find_store("dist_device_async") is STORES["dist_async_device"]
    assert not set(SPELLINGS) & set(STORES)


@pytest.mark.parametrize("name", ["", "dist", "nccl", "dist_sync_", "Local"])
def test_rejects_an_unknown_name(name, messages):
    with messages.raises(ValueError):
        find_store(name)


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        (1, (0,)),
        (4, (0, 1, 2, 3)),
        ("2", (0, 1)),
        ("0,1,2,3", (0, 1, 2, 3)),
        (" 3, 1 ", (3, 1)),
        ("5,", (5,)),
        ([0, 2], (0, 2)),
        ([7], (7,)),
    ],
)
def test_devices_are_a_count_or_a_list(value, devices):
    assert parse_devices(value) == devices


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("two", "neither a number"),
        ("", "neither a number"),
        ("0,,1", "neither a number"),
        (True, "neither a number"),
        (1.5, "neither a number"),
        ([], "neither a number"),
        (0, "0 is how many, and none is too few"),
        (-2, "names no device"),
        ("0,-1", "names no device"),
        ("0,1,0", "twice"),
    ],
)
def test_rejects_invalid_devices(value, reason):
    with pytest.raises(ValueError, match=reason):
        parse_devices(value)


def test_devices_come_first_and_servers_last(messages):
    roles = Roles(workers=2, devices=3, servers=2)
    assert [roles.role(rank) for rank in range(roles.size)] == [
        Device(0, 0),
        Device(0, 1),
        Device(0, 2),
        Device(1, 0),
        Device(1, 1),
        Device(1, 2),
        Server(0),
        Server(1),
    ]
    assert (roles.device_ranks, roles.server_ranks) == (range(6), range(6, 8))
    assert roles.list_worker_ranks(1) == range(3, 6)
    for rank in (-1, 8):
        with messages.raises(ValueError):
            roles.role(rank)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("local", 4), 4),
        (("device", "0,1,2"), 3),
        (("allreduce", 2, 1, 0), 2),
        (("dist_sync", 2), 3),
        (("dist_sync", 2, 3), 9),
        (("dist_device_sync", "0,1", 2, 1), 5),
        (("dist_sync_device", "0,1", 2, 1), 5),
        (("dist_async", 1, 1, 4), 5),
    ],
)
def test_ranks_follow_from_the_parameters(arguments, expected):
    assert count_ranks(*arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        (("nccl", 2), "kv_store"),
        (("local", "none"), "gpus"),
        (("local", 2, 2), "num_workers"),
        (("dist_sync", 2, 0), "num_workers"),
        (("allreduce", 2, 1, 1), "num_servers"),
        (("dist_sync", 2, 1, 0), "num_servers"),
    ],
)
def test_rejects_parameters_that_a_store_cannot_use(arguments, param):
    with pytest.raises(ParamError) as caught:
        count_ranks(*arguments)
    assert caught.value.param == param


def test_each_server_adds_a_rank():
    store = STORES["dist_sync"]
    assert [assign_roles(store, 2, 2, servers).size for servers in (1, 2, 5)] == [5, 6, 9]
