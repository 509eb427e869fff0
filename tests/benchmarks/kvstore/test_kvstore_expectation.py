"""Expected values of a store, compared with explicit sums and codes."""

import zlib

import numpy as np
import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.typed_params import read_params
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.kvstore import case as cases
from spbench_workers.benchmarks.kvstore import compression
from spbench_workers.benchmarks.kvstore.arrays import Gradients
from spbench_workers.benchmarks.kvstore.case import build_case
from spbench_workers.benchmarks.kvstore.keys.sharding import PULL, PUSH, list_server_shards
from spbench_workers.benchmarks.kvstore.params import PushPullParams
from spbench_workers.benchmarks.kvstore.store.base import CompressedPush, make_sum
from spbench_workers.benchmarks.kvstore.verification.expectation import KeyExpectation
from spbench_workers.benchmarks.kvstore.verification.residual_check import ResidualCheck

ELEMENTS = (5, 1, 64, 0, 33)


def make_seed(*parts):
    return zlib.crc32(repr(parts).encode())


@pytest.fixture
def make_case(monkeypatch):
    def build(**params):
        monkeypatch.setattr(cases, "_count_elements", lambda _: ELEMENTS)
        complete = BENCHMARKS["kvstore.push_pull"].complete({"network": "lenet", **params})
        return build_case(read_params(PushPullParams, complete))

    return build


@pytest.fixture
def gradients():
    return Gradients(make_seed, ELEMENTS)


def test_gradients_are_uniform_and_different(gradients):
    many = Gradients(make_seed, [100_000]).make_gradient(0, 0, 0)
    assert many.dtype == np.float32
    assert -1 <= many.min() < -0.99 < 0.99 < many.max() < 1
    assert abs(many.mean()) < 0.01
    arrays = [
        gradients.make_gradient(rank, key, draw)
        for rank in (0, 1)
        for key in (2, 4)
        for draw in (0, 1)
    ]
    assert len({array[:33].tobytes() for array in arrays}) == 8
    assert (gradients.make_gradient(1, 2, 1) == gradients.make_gradient(1, 2, 1)).all()


def test_sums_devices_in_slot_order(make_case):
    case = make_case(
        kv_store="dist_device_sync", num_workers=2, gpus=2, num_servers=2, bigarray_bound=40
    )
    assert list(case.order) == [4, 3, 2, 1, 0]
    assert case.merge_devices[2] != case.merge_devices[4]
    assert case.list_clients(2) == [case.merge_devices[2], 2 + case.merge_devices[2]]
    server_shards = [list_server_shards(case.tagged_shards, server) for server in (0, 1)]
    assert all(
        [shard.index for shard in tagged_shards] == [*range(len(tagged_shards))]
        for tagged_shards in server_shards
    )
    keys = sorted(shard.key for tagged_shards in server_shards for shard in tagged_shards)
    assert keys == [0, 1, 2, 2, 3, 4]
    assert [(shard.first, shard.last) for shard in case.tagged_shards[2]] == [(0, 32), (32, 64)]
    tags = {shard.tag(kind) for shard in server_shards[0] for kind in (PUSH, PULL)}
    assert len(tags) == 2 * len(server_shards[0])
    assert list(make_case(kv_store="local", priority="ascending").order) == [0, 1, 2, 3, 4]
    assert make_case(kv_store="local", gpus=3).merge_devices == [0] * 5


@pytest.mark.parametrize("rounds", [1, 4])
def test_keeps_the_last_sum_without_an_optimizer(make_case, gradients, rounds):
    expected = KeyExpectation(make_case(kv_store="local", gpus=3), 2, gradients)
    expected.advance(0, rounds, {})
    weight, bound = expected.weight_and_bound()
    parts = [gradients.make_gradient(rank, 2, 0) for rank in range(3)]
    assert np.allclose(weight, np.sum(parts, axis=0, dtype=np.float64), rtol=1e-15, atol=0)
    assert np.allclose(bound, 3 * 2.0**-24 * np.sum(np.abs(parts), axis=0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["2bit", "1bit"])
@pytest.mark.parametrize("store", ["device", "dist_sync"])
def test_codes_equal_those_that_are_sent(make_case, gradients, name, store):
    shape = {"gpus": 2} if store == "device" else {"gpus": 2, "num_workers": 2, "num_servers": 1}
    case = make_case(kv_store=store, gc_type=name, gc_threshold=0.3, **shape)
    expected = KeyExpectation(case, 2, gradients)
    coder = compression.create_compression(name, 0.3)
    senders = [[0], [1]] if store == "device" else [[0, 1], [2, 3]]
    owed = [np.zeros(64, np.float32) for _ in senders]
    code = np.zeros(coder.nbytes(64), np.uint8)
    for draw in (0, 0, 1):
        total = np.zeros(64, np.float32)
        for ranks, residual in zip(senders, owed, strict=True):
            gradient = sum(
                (gradients.make_gradient(rank, 2, draw) for rank in ranks), np.zeros(64, np.float32)
            )
            coder.encode(gradient, residual, code)
            coder.decode_add(code, total)
        expected.advance(draw, 1, {})
        weight, bound = expected.weight_and_bound()
        assert (np.abs(weight - total) <= bound).all()
        assert bound.max() < 1e-6


def test_asynchronous_updates_follow_the_order_of_arrival(make_case, gradients):
    case = make_case(
        kv_store="dist_async", gpus=1, num_workers=2, num_servers=1, optimizer="momentum"
    )
    (shard,) = case.tagged_shards[2]
    weights = []
    for order in ([0, 1, 0, 1], [0, 0, 1, 1]):
        expected = KeyExpectation(case, 2, gradients)
        expected.advance(0, 2, {shard: order})
        weight, bound = expected.weight_and_bound()
        value = np.zeros(64)
        velocity = np.zeros(64)
        for worker in order:
            velocity = 0.9 * velocity - 0.01 * gradients.make_gradient(worker, 2, 0)
            value += velocity
        assert (np.abs(weight - value) <= bound).all()
        weights.append(weight)
    assert (np.abs(weights[0] - weights[1]) > bound).all()


def test_sums_go_in_order():
    parts = [np.full(3, value, np.float32) for value in (1e8, -1e8, 1)]
    target = np.zeros(3, np.float32)
    make_sum(parts, target, None)()
    assert target.tolist() == [1, 1, 1]
    make_sum(parts[::-1], target, None)()
    assert target.tolist() == [0, 0, 0]
    make_sum(parts[:1], target, None)()
    assert target.tolist() == parts[0].tolist()
    before = target.copy()
    make_sum([target], target, None)()
    assert (target == before).all()


def check_residuals(make_case, gradients, tamper=lambda push: None):
    case = make_case(gc_type="2bit", gpus=2)
    push = CompressedPush(2, 0, gradients.make_gradient(1, 2, 0).copy(), case.create_compression())
    push.prepare()
    residual_check = ResidualCheck(case, 1, [push], gradients)
    for draw in (1, 2):
        gradients.fill(1, 2, draw, push.gradient)
        push.prepare()
        tamper(push)
        residual_check.add_round(draw)
    worst = WorstError()
    residual_check.check(worst)
    return worst


def test_delivered_and_owed_values_equal_the_given(make_case, gradients):
    worst = check_residuals(make_case, gradients)
    assert 0 < worst.tolerance < 1e-5
    assert worst.error <= worst.tolerance


def test_detects_a_changed_code(make_case, gradients):
    def change_code(push):
        push.code[3] = 0b11000000

    worst = check_residuals(make_case, gradients, change_code)
    assert worst.error >= 0.49
    assert 12 <= int(worst.detail.split()[3].strip(",")) < 16
