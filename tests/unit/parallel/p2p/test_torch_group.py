"""Calls to NCCL, and to the GPU while other groups hold receives.

Both are simulated.
"""

from itertools import count
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from spbench_parallel.device import gpus, streams
from spbench_parallel.p2p import torch_group
from spbench_parallel.p2p.opening import NcclP2P
from spbench_parallel.spatial.transports import TransportSpec
from spbench_parallel.spatial.transports.staged import StagedTransport
from standins.late_device import install, unwrap

LATE = install()


class Comm:
    """A communicator of one rank."""

    rank = 0
    size = 1
    handle = 7

    def allgather(self, value):
        return [value]

    def bcast(self, value):
        return value

    def Dup(self):  # noqa: N802 - MPI's name
        return self

    def Barrier(self):  # noqa: N802 - MPI's name
        pass

    Free = Barrier


class Nccl:
    """The part of ``dist.ProcessGroupNCCL`` that is used."""

    supports_coalescing = False

    def __init__(self, store, rank, size, options):
        self.options = options

    class Options:
        def __init__(self):
            self._timeout = None
            self.is_high_priority_stream = False

    def allreduce(self, tensors, options):
        return SimpleNamespace(wait=lambda: None)

    def shutdown(self):
        pass


@pytest.fixture
def _nccl(monkeypatch):
    monkeypatch.setattr(dist, "ProcessGroupNCCL", Nccl, raising=False)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch_group, "is_on_one_host", lambda comm: True)
    monkeypatch.setattr(torch_group, "_open_store", lambda *_: SimpleNamespace(port=1))


@pytest.mark.usefixtures("_nccl")
def test_nccl_uses_streams_of_high_priority():
    backend = torch_group._create_backend(None, Comm(), torch.device("cuda", 0))
    assert isinstance(backend, Nccl)
    assert backend.options.is_high_priority_stream
    assert backend.options._timeout == torch_group._TIMEOUT


@pytest.mark.usefixtures("_nccl")
def test_groups_open_and_close_without_a_device_wide_wait(monkeypatch):
    """Another group may hold a receive, and its stream then waits for another rank."""
    monkeypatch.setattr(
        torch_group, "_create_backend", lambda store, comm, device: Nccl(*[None] * 4)
    )
    LATE.reset()
    summed = torch.ones(1, device="late") * 2
    p2p = NcclP2P(Comm(), torch.device("late"), (0, 1))
    assert unwrap(summed).item() == 2, "nobody waited for the current stream"
    p2p.free()
    assert LATE.device_wide == 0
    assert not torch_group._groups


class StreamPools:
    """Torch's pools of streams (c10/cuda/CUDAStream.cpp): 32 per priority, in turn.

    A priority outside of torch's range counts as the nearest in it. `torch.cuda.Stream` takes a
    stream of its priority's pool. A group of NCCL takes one of the highest priority.
    """

    SIZE = 32
    PRIORITIES = 4

    def __init__(self):
        self._next = [count() for _ in range(self.PRIORITIES)]

    def priority_range(self):
        return 0, 1 - self.PRIORITIES

    def __call__(self, device, priority=0):
        return self._take(min(max(-priority, 0), self.PRIORITIES - 1))

    def nccl_stream(self):
        return self._take(self.PRIORITIES - 1)

    def _take(self, priority):
        return next(self._next[priority]) % self.SIZE


def test_no_two_open_groups_share_a_stream_of_the_pool(monkeypatch, messages):
    """Otherwise a group's messages would wait behind a receive of another group."""
    pools = StreamPools()
    open_groups = {}
    monkeypatch.setattr(torch.cuda, "Stream", pools)
    monkeypatch.setattr(torch_group, "_dealt_streams", count())
    monkeypatch.setattr(torch_group, "_groups", open_groups)

    def open_group():
        expected = torch_group._find_own_stream(torch.device("cuda", 0))
        assert pools.nccl_stream() == expected
        return torch_group.TorchGroup(None, None, stream=expected)

    open_groups |= {0: open_group(), 1: open_group()}
    # The next group after these would get the stream of one that is still open.
    for _ in range(30):
        open_group()
    open_groups |= {number: open_group() for number in range(2, 32)}
    assert sorted(group.stream for group in open_groups.values()) == list(range(32))
    with messages.raises(torch_group.GroupError):
        open_group()


def make_gpu(uuid, bus):
    return SimpleNamespace(uuid=uuid, pci_domain_id=0, pci_bus_id=bus, pci_device_id=0)


@pytest.mark.usefixtures("_nccl")
@pytest.mark.parametrize("has_driver", [True, False], ids=["by the driver", "by torch"])
def test_identifies_gpus_like_nccl(monkeypatch, has_driver):
    """Instances of MIG have separate uuids and the PCI address of their GPU."""
    properties = {
        0: make_gpu("MIG-a", 0x41),
        1: make_gpu("MIG-b", 0x41),
        2: make_gpu("GPU-c", 0x81),
    }
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: properties[device.index]
    )
    addresses = {
        index: f"0000:{properties_of_gpu.pci_bus_id:02x}:00.0"
        for index, properties_of_gpu in properties.items()
    }
    driver = SimpleNamespace(
        read_pci_address=lambda index: addresses[index] if has_driver else None
    )
    monkeypatch.setattr(gpus, "load_driver", lambda: driver)
    names = [torch_group._identify_gpu(torch.device("cuda", index)) for index in range(3)]
    assert names[0] == names[1]
    assert names[2].endswith(" 0000:81:00.0")
    assert names[2] != names[0]


def test_a_gpu_has_the_address_that_identifies_it(monkeypatch):
    monkeypatch.setattr(gpus, "load_driver", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: make_gpu("x", 0x81))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert gpus.Gpu.from_device(torch.device("cuda", 0)).address == "0000:81:00.0"


def test_all_transports_of_a_device_share_one_copy_stream(monkeypatch):
    """torch has 32 streams per priority: a 33rd would be shared."""
    devices = []

    class Stream:
        def __init__(self, device):
            devices.append(device)

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing=False: None)
    device = torch.device("cuda", 3)
    streams.get_streams.cache_clear()
    wiring = TransportSpec(Comm(), 1, [], [], [], [], None, torch.float32, device)
    transports = [StagedTransport(wiring, direct=index % 2 == 0) for index in range(40)]
    streams.get_streams.cache_clear()
    assert len(transports) == 40
    assert devices == [device]
