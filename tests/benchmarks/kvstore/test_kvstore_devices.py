"""Stores on GPUs: the GPU of a rank, synchronization, and limits of a round."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spbench_core.catalog import BENCHMARKS
from spbench_core.host_facts import VISIBLE_DEVICES
from spbench_parallel.device import gpus as gpu_facts
from spbench_parallel.device.gpus import NoDeviceError
from spbench_workers.benchmarks.kvstore import report
from spbench_workers.benchmarks.kvstore.keys.arena import Arena
from spbench_workers.benchmarks.kvstore.store import opening
from spbench_workers.benchmarks.kvstore.store.base import SentTraffic
from spbench_workers.benchmarks.kvstore.store.memory import StagedStore, StoreMemory
from spbench_workers.binding.local_rank import VARIABLES
from standins.late_device import install
from support.typed_params import TypedParams

pytestmark = pytest.mark.usefixtures("late")

LATE = install()
ENTRY = BENCHMARKS["kvstore.push_pull"]


# The choice of a GPU


class Case(TypedParams):
    """A case on one of several ranks of a host."""

    def __init__(self, rank, size, **params):
        self.params = ENTRY.complete({"network": "lenet", "device": "cuda", **params})
        comm = SimpleNamespace(allgather=lambda value: [value] * size)
        self.world = SimpleNamespace(
            rank=rank,
            size=size,
            local_rank_conflict="",
            local_rank=rank,
            host="node01",
            cpus=(0,),
            comm=comm,
        )
        self.reports = []

    def device(self, value, reason, *, speaks, near=None, address=None):
        self.reports.append((value, reason))

    def log(self, *_, **__):
        pass


@pytest.fixture
def gpus(monkeypatch):
    """Return a function that simulates a number of GPUs."""

    def simulate(count):
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(gpu_facts, "read_pci_address", lambda _: "0000:41:00.0")
        answers = {
            "is_available": lambda: count > 0,
            "device_count": lambda: count,
            "get_device_name": lambda _: "NVIDIA H200",
            "get_device_capability": lambda _: (9, 0),
            "set_device": lambda _: None,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(torch.cuda, name, answer)

    for name in (*VARIABLES, VISIBLE_DEVICES):
        monkeypatch.delenv(name, raising=False)
    return simulate


def test_rejects_a_requested_gpu_that_is_not_visible(gpus, messages):
    gpus(1)
    assert opening._choose_device(Case(0, 2, gpus="0,1"), is_server=False) == torch.device(
        "cuda", 0
    )
    with messages.raises(NoDeviceError):
        opening._choose_device(Case(1, 2, gpus="0,1"), is_server=False)
    assert NoDeviceError.missing


def test_requested_gpus_are_the_devices_of_a_worker(gpus):
    gpus(4)
    params = {"kv_store": "dist_sync", "gpus": "3,1", "num_workers": 2, "num_servers": 1}
    indices = [
        opening._choose_device(Case(rank, 5, **params), is_server=False).index for rank in range(4)
    ]
    assert indices == [3, 1, 3, 1]


def test_devices_share_the_existing_gpus(gpus, messages):
    gpus(1)
    cases = [Case(rank, 2, gpus="2") for rank in range(2)]
    assert [opening._choose_device(case, is_server=False).index for case in cases] == [0, 0]
    messages.check(cases[1].reports[0][1])


def test_a_server_needs_no_gpu(gpus):
    gpus(1)
    params = {"kv_store": "dist_sync", "gpus": "0,1", "num_servers": 2}
    servers = [Case(rank, 4, **params) for rank in (2, 3)]
    assert [opening._choose_device(case, is_server=True).type for case in servers] == ["cpu", "cpu"]
    assert [case.reports for case in servers] == [[("cpu", "this rank needs no GPU")]] * 2


# Synchronization


def make_memory(device="late"):
    return StoreMemory(Arena([3, 2]), Arena([3, 2]), torch.device(device))


class Doubling:
    """A store of the host that returns twice the value of each device."""

    traffic = SentTraffic(0, 0)
    pushes = ()

    def __init__(self, memory):
        self.memory = memory

    def round(self):
        np.multiply(self.memory.gradients.flat, 2.0, out=self.memory.values.flat)

    def settle(self):
        self.memory.values.flat += 1.0


def test_a_staged_round_waits_only_for_its_copies():
    memory = make_memory()
    memory.gradients.flat[:] = 3.0
    memory.upload_gradients()
    memory.gradients.flat[:] = -1.0
    # Work that the device was asked for happens before the round.
    memory.device_gradients.add_(1.0)
    store = StagedStore(Doubling(memory), memory, asynchronous=True)
    store.round()
    assert memory.device_values.elem.tolist() == [8.0] * 5
    store.settle()
    assert memory.device_values.elem.tolist() == [9.0] * 5
    memory.values.flat[:] = 0.0
    memory.device_values.mul_(2.0)
    memory.download_values()
    assert memory.values.flat.tolist() == [18.0] * 5
    assert LATE.device_wide == 0


def test_settling_replaces_values_with_those_of_the_round():
    memory = make_memory()
    store = StagedStore(Doubling(memory), memory, asynchronous=False)
    store.round()
    memory.device_values.add_(5.0)
    store.settle()
    memory.download_values()
    assert memory.values.flat.tolist() == [5.0] * 5


def test_copies_nothing_on_the_host():
    memory = make_memory("cpu")
    assert memory.device_gradients is memory.gradients.tensor
    assert memory.device_values is memory.values.tensor


# Limits of a round


class SingleRank:
    rank = 0
    size = 1

    def Allreduce(self, *vectors):  # noqa: N802 - MPI's name
        if len(vectors) == 2:
            np.copyto(vectors[1], vectors[0])

    def Barrier(self):  # noqa: N802 - MPI's name
        pass


def patch_allreduce(monkeypatch, events):
    def open_allreduce(comm, algorithm, source, result):
        events.extend([algorithm, source.device.type, result.device.type])
        return SimpleNamespace(run=lambda: events.append("run"), free=lambda: events.append("free"))

    monkeypatch.setattr(report, "open_allreduce", open_allreduce)


def test_a_staged_store_has_the_limit_of_copies_both_ways(messages):
    memory = make_memory()
    memory.device_gradients.fill_(5.0)
    limits = report._make_limit_calls(memory, SingleRank(), nccl=False)
    messages.check(limits.copy_text)
    limits.allreduce()
    assert memory.device_values.elem.tolist() == [5.0] * 5
    memory.device_gradients.fill_(6.0)
    limits.copy()
    assert memory.gradients.flat.tolist() == [6.0] * 5
    messages.check(limits.library)


def test_nccl_has_the_limit_of_a_copy_within_the_gpu(monkeypatch, messages):
    memory = make_memory()
    events = []
    patch_allreduce(monkeypatch, events)
    memory.device_gradients.fill_(5.0)
    limits = report._make_limit_calls(memory, SingleRank(), nccl=True)
    limits.copy()
    assert memory.device_values.elem.tolist() == [5.0] * 5
    limits.allreduce()
    limits.free()
    assert events == ["nccl", "late", "late", "run", "free"]
    messages.check(limits.copy_text)
    assert limits.library == "NCCL"


def test_the_host_has_the_limit_of_a_memory_copy(monkeypatch, messages):
    memory = make_memory("cpu")
    memory.gradients.flat[:] = 5.0
    limits = report._make_limit_calls(memory, SingleRank(), nccl=False)
    limits.copy()
    assert memory.values.flat.tolist() == [5.0] * 5
    messages.check(limits.copy_text)
    messages.check(limits.library)
