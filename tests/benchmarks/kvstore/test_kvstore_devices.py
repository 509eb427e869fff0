"""Stores on GPUs: which one a rank takes, what is waited for, and what stands beside a round."""

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
from unit.typed_params import TypedParams

pytestmark = pytest.mark.usefixtures("late")

LATE = install()
ENTRY = BENCHMARKS["kvstore.push_pull"]


# Which GPU


class Case(TypedParams):
    """A case on a rank of some on one host."""

    def __init__(self, rank, size, **given):
        self.params = ENTRY.complete({"network": "lenet", "device": "cuda", **given})
        comm = SimpleNamespace(allgather=lambda mine: [mine] * size)
        self.world = SimpleNamespace(
            rank=rank,
            size=size,
            local_rank_conflict="",
            local_rank=rank,
            host="node01",
            cpus=(0,),
            comm=comm,
        )
        self.said = []

    def device(self, value, reason, *, speaks, near=None):
        self.said.append((value, reason))

    def log(self, *_, **__):
        pass


@pytest.fixture
def gpus(monkeypatch):
    """Let torch tell of so many GPUs."""

    def see(count):
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
    return see


def test_a_named_gpu_that_is_not_seen_is_missed_before_anything_is_asked_of_it(gpus):
    gpus(1)
    assert opening._choose_device(Case(0, 2, gpus="0,1"), serves=False) == torch.device("cuda", 0)
    with pytest.raises(NoDeviceError, match=r"GPU 1 is asked for on node01, .* sees 1; name"):
        opening._choose_device(Case(1, 2, gpus="0,1"), serves=False)
    assert NoDeviceError.missing


def test_named_gpus_are_those_of_a_workers_devices(gpus):
    gpus(4)
    given = {"kv_store": "dist_sync", "gpus": "3,1", "num_workers": 2, "num_servers": 1}
    taken = [
        opening._choose_device(Case(rank, 5, **given), serves=False).index for rank in range(4)
    ]
    assert taken == [3, 1, 3, 1]


def test_a_number_of_devices_shares_the_gpus_there_are(gpus):
    gpus(1)
    cases = [Case(rank, 2, gpus="2") for rank in range(2)]
    assert [opening._choose_device(case, serves=False).index for case in cases] == [0, 0]
    assert "shared by 2 ranks" in cases[1].said[0][1]


def test_a_server_needs_no_gpu_whichever_are_named(gpus):
    gpus(1)
    given = {"kv_store": "dist_sync", "gpus": "0,1", "num_servers": 2}
    servers = [Case(rank, 4, **given) for rank in (2, 3)]
    assert [opening._choose_device(case, serves=True).type for case in servers] == ["cpu", "cpu"]
    assert [case.said for case in servers] == [[("cpu", "this rank needs no GPU")]] * 2


# What is waited for


def memory_of(device="late"):
    return StoreMemory(Arena([3, 2]), Arena([3, 2]), torch.device(device))


class Doubling:
    """A store of the host that gives each device twice what it gave."""

    traffic = SentTraffic(0, 0)
    pushes = ()

    def __init__(self, memory):
        self.memory = memory

    def round(self):
        np.multiply(self.memory.gradients.flat, 2.0, out=self.memory.values.flat)

    def settle(self):
        self.memory.values.flat += 1.0


def test_a_staged_round_waits_for_its_copies_and_for_no_other_stream():
    memory = memory_of()
    memory.gradients.flat[:] = 3.0
    memory.upload_gradients()
    memory.gradients.flat[:] = -1.0
    # What the device is asked for comes before the round.
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


def test_what_is_compared_is_what_the_round_brought():
    memory = memory_of()
    store = StagedStore(Doubling(memory), memory, asynchronous=False)
    store.round()
    memory.device_values.add_(5.0)
    store.settle()
    memory.download_values()
    assert memory.values.flat.tolist() == [5.0] * 5


def test_on_the_host_nothing_is_copied():
    memory = memory_of("cpu")
    assert memory.device_gradients is memory.gradients.tensor
    assert memory.device_values is memory.values.tensor


# What stands beside a round


class Alone:
    rank = 0
    size = 1

    def Allreduce(self, *vectors):  # noqa: N802 - MPI's word
        if len(vectors) == 2:
            np.copyto(vectors[1], vectors[0])

    def Barrier(self):  # noqa: N802 - MPI's word
        pass


def opened(monkeypatch, words):
    def open_reduction(comm, algorithm, source, result):
        words.extend([algorithm, source.device.type, result.device.type])
        return SimpleNamespace(run=lambda: words.append("run"), free=lambda: words.append("free"))

    monkeypatch.setattr(report, "open_reduction", open_reduction)


def test_a_store_that_stages_stands_beside_copies_there_and_back():
    memory = memory_of()
    memory.device_gradients.fill_(5.0)
    limits = report._make_limit_calls(memory, Alone(), nccl=False)
    assert limits.copy_text == (
        "copies of 20 B from its GPU to the host and back by each device, all at once"
    )
    limits.allreduce()
    assert memory.device_values.elem.tolist() == [5.0] * 5
    memory.device_gradients.fill_(6.0)
    limits.copy()
    assert memory.gradients.flat.tolist() == [6.0] * 5
    assert limits.library == "the MPI itself, by way of the host"


def test_nccl_stands_beside_a_copy_within_the_gpu_and_nccl(monkeypatch):
    memory = memory_of()
    words = []
    opened(monkeypatch, words)
    memory.device_gradients.fill_(5.0)
    limits = report._make_limit_calls(memory, Alone(), nccl=True)
    limits.copy()
    assert memory.device_values.elem.tolist() == [5.0] * 5
    limits.allreduce()
    limits.free()
    assert words == ["nccl", "late", "late", "run", "free"]
    assert limits.copy_text == "a copy of 20 B within its GPU's memory by each device, all at once"
    assert limits.library == "NCCL"


def test_on_the_host_it_is_as_it_was(monkeypatch):
    memory = memory_of("cpu")
    memory.gradients.flat[:] = 5.0
    limits = report._make_limit_calls(memory, Alone(), nccl=False)
    limits.copy()
    assert memory.values.flat.tolist() == [5.0] * 5
    assert limits.copy_text == "a copy of 20 B within its memory by each device, all at once"
    assert limits.library == "the MPI itself"
