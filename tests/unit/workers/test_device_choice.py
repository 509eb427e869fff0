"""The choice of a rank's device, with simulated answers of torch about GPUs."""

import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch

from spbench_parallel.device import gpus
from spbench_parallel.device.gpus import NoDeviceError
from spbench_parallel.errors import CannotRunError
from spbench_workers import comm as comm_module
from spbench_workers import device_choice as choice
from spbench_workers.binding.local_rank import VARIABLES, RankLocation
from spbench_workers.comm import World, open_world
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device

HOST = "node01"


@dataclass(frozen=True)
class FakeComm:
    """The ranks of a job, of which one is simulated.

    `gathered` are the values of the other ranks.
    """

    rank: int = 0
    size: int = 1
    gathered: tuple = ()

    def allgather(self, value):
        values = list(self.gathered)
        values.insert(self.rank, value)
        return values

    def Split_type(self, kind):  # noqa: N802 - MPI's name
        """Answer like MVAPICH2 with ch3:sock: each rank is the only one of its host."""
        return FakeComm()

    def Free(self):  # noqa: N802 - MPI's name
        pass


class RecordingChannel:
    """A channel that keeps the events of a rank."""

    def __init__(self):
        self.events = []

    def send(self, event, **fields):
        self.events.append((event, fields))

    def select(self, event):
        return [fields for kind, fields in self.events if kind == event]


class Gpus:
    """GPUs that torch and the driver report."""

    def __init__(self, monkeypatch, count, capability=(9, 0), cuda="13.0"):
        self.selected = []
        self.addresses = [f"0000:{0x41 + index:x}:00.0" for index in range(count)]
        monkeypatch.setattr(torch.version, "cuda", cuda)
        for name, answer in {
            "is_available": lambda: count > 0,
            "device_count": lambda: count,
            "get_device_name": lambda device: "NVIDIA H200",
            "get_device_capability": lambda device: capability,
            "set_device": self.selected.append,
        }.items():
            monkeypatch.setattr(torch.cuda, name, answer)
        monkeypatch.setattr(
            gpus,
            "load_driver",
            lambda: SimpleNamespace(read_pci_address=self.addresses.__getitem__),
        )


@pytest.fixture(autouse=True)
def _restored_settings(monkeypatch):
    for name in (*VARIABLES, "CUDA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE"):
        monkeypatch.delenv(name, raising=False)
    flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = flags


def make_case(preference="cuda", local_rank=0, comm=None, **params):
    world = World(comm or FakeComm(), 0, 1, local_rank, HOST, (0,), 1)
    channel = RecordingChannel()
    context = Context(
        replace(world, rank=world.comm.rank, size=world.comm.size),
        channel,
        case="a",
        benchmark="memory.copy",
        params={"device": preference, **params},
    )
    return context, channel


# A torch without a GPU


@pytest.fixture
def torch_without_cuda(monkeypatch):
    """Simulate a build of torch without CUDA."""
    monkeypatch.setattr(torch.version, "cuda", None)


def test_reports_the_host_as_requested():
    context, channel = make_case("cpu")
    assert choose_device(context) == torch.device("cpu")
    (event,) = channel.select("device")
    assert (event["device"], event["reason"]) == ("cpu", "asked for")


def test_explains_auto_on_the_host(torch_without_cuda):
    context, channel = make_case("auto")
    assert choose_device(context).type == "cpu"
    (event,) = channel.select("choice")
    assert (event["name"], event["value"]) == ("device", "cpu")
    assert event["reason"].startswith("auto: torch 2.")
    assert event["reason"].endswith("is a build without CUDA")


def test_rejects_cuda_with_the_reason(torch_without_cuda):
    context, _ = make_case()
    with pytest.raises(NoDeviceError, match=r"device cuda: torch 2\..* is a build without CUDA; "):
        choose_device(context)
    assert NoDeviceError.missing


@pytest.mark.parametrize("shown", ["", " ", "-1", "NoDevFiles"])
def test_reports_hidden_gpus(monkeypatch, shown, messages):
    Gpus(monkeypatch, 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    with messages.raises(NoDeviceError):
        choose_device(make_case()[0])


def test_reports_a_driver_without_usable_gpus(monkeypatch):
    Gpus(monkeypatch, 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(NoDeviceError, match=r"counts 0 usable GPUs with CUDA_VISIBLE_DEVICES=7: "):
        choose_device(make_case()[0])


def test_a_rank_that_prefers_the_host_needs_no_gpu():
    assert choose_device(make_case()[0], preference="cpu").type == "cpu"


# GPUs, as reported by torch


@pytest.mark.parametrize(("local_rank", "index"), [(0, 0), (1, 1), (3, 1)])
def test_assigns_gpus_by_local_rank(monkeypatch, local_rank, index):
    gpus = Gpus(monkeypatch, 2)
    device = choose_device(make_case(local_rank=local_rank)[0])
    assert device == torch.device("cuda", index)
    assert gpus.selected == [device]


@pytest.mark.parametrize(("local_rank", "index"), [(0, 2), (1, 0), (3, 0)])
def test_assigns_requested_gpus_by_local_rank(monkeypatch, local_rank, index, messages):
    Gpus(monkeypatch, 3)
    context, _ = make_case(local_rank=local_rank, device_ids=[2, 0])
    assert choose_device(context) == torch.device("cuda", index)
    with messages.raises(NoDeviceError):
        choose_device(make_case(device_ids=[3])[0])


def test_reports_properties_of_the_gpu(monkeypatch, messages):
    Gpus(monkeypatch, 2)
    monkeypatch.setattr(choice, "read_driver_version", lambda: "580.82.07")
    context, channel = make_case(local_rank=1)
    choose_device(context)
    (event,) = channel.select("device")
    messages.check(event["device"])
    assert event["address"] == "0000:42:00.0"
    for part in ("PCI 0000:42:00.0", "capability 9.0", "CUDA 13.0", "driver 580.82.07"):
        assert part in event["reason"]
    messages.check(event["reason"])


def test_counts_ranks_of_one_gpu_on_its_host_only(monkeypatch, messages):
    Gpus(monkeypatch, 1)
    values = (("", HOST, "0000:41:00.0"), ("", "node02", "0000:41:00.0"), ("", HOST, None))
    context, channel = make_case(comm=FakeComm(1, 4, values), local_rank=1)
    choose_device(context)
    messages.check(channel.select("device")[0]["reason"])
    assert not channel.select("choice"), "the first rank with a GPU speaks for the case"


def test_a_rank_with_a_gpu_reports_the_choice(monkeypatch, messages):
    Gpus(monkeypatch, 1)
    context, channel = make_case(comm=FakeComm(1, 2, (("", HOST, None),)), local_rank=1)
    choose_device(context)
    messages.check([fields["value"] for fields in channel.select("choice")])
    context, channel = make_case(comm=FakeComm(0, 2, (("", HOST, "0000:41:00.0"),)))
    choose_device(context, preference="cpu")
    (event,) = channel.select("device")
    assert event["device"] == "cpu"
    assert "address" not in event
    messages.check(event["reason"])
    assert not channel.select("choice")


def test_all_ranks_raise_the_error_of_one(monkeypatch, messages):
    Gpus(monkeypatch, 1)
    values = (("device cuda: torch sees none; use cpu", "node02", None),)
    with messages.raises(NoDeviceError):
        choose_device(make_case(comm=FakeComm(0, 2, values))[0])


def test_warns_of_a_gpu_of_the_other_socket(monkeypatch):
    Gpus(monkeypatch, 1)
    far = "far from the rank's cores: it is on NUMA node 1, they on node 0"
    monkeypatch.setattr(choice, "describe_nearness", lambda address, cpus: (False, far))
    context, channel = make_case()
    choose_device(context)
    assert far in channel.select("device")[0]["reason"]
    (log,) = channel.select("log")
    assert (log["level"], far in log["message"]) == ("warning", True)


def test_rejects_a_conflict_of_local_ranks(monkeypatch, messages):
    Gpus(monkeypatch, 8)
    context, _ = make_case(local_rank=3)
    assert choose_device(context) == torch.device("cuda", 3)
    context.world = replace(
        context.world, local_rank_conflict="rank 1 is local rank 3 by one and 0 by another"
    )
    with messages.raises(CannotRunError):
        choose_device(context)


def test_allows_a_conflict_of_local_ranks_without_a_gpu():
    context, _ = make_case("auto")
    context.world = replace(
        context.world, local_rank_conflict="rank 1 is local rank 3 by one and 0 by another"
    )
    assert choose_device(context).type == "cpu"


def test_rejects_a_missing_gpu_number(monkeypatch, messages):
    Gpus(monkeypatch, 1)
    assert choose_device(make_case()[0], index=0) == torch.device("cuda", 0)
    with messages.raises(NoDeviceError):
        choose_device(make_case()[0], index=1)


# TF32


def test_fp32_disables_tf32(monkeypatch):
    Gpus(monkeypatch, 1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    choose_device(make_case()[0])
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


def test_tf32_enables_tf32(monkeypatch):
    Gpus(monkeypatch, 1)
    choose_device(make_case()[0], tf32=True)
    assert torch.backends.cudnn.allow_tf32
    assert torch.backends.cuda.matmul.allow_tf32


def test_rejects_tf32_without_a_suitable_gpu(monkeypatch, messages):
    with messages.raises(CannotRunError):
        choose_device(make_case("auto")[0], tf32=True)
    Gpus(monkeypatch, 1, capability=(7, 0))
    with messages.raises(CannotRunError):
        choose_device(make_case()[0], tf32=True)


@pytest.mark.parametrize(("forced", "tf32"), [("1", False), ("0", True)])
def test_rejects_an_environment_that_forces_a_format(monkeypatch, forced, tf32):
    Gpus(monkeypatch, 1)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", forced)
    with pytest.raises(CannotRunError, match=f"NVIDIA_TF32_OVERRIDE={forced} makes every product"):
        choose_device(make_case()[0], tf32=tf32)
    assert choose_device(make_case()[0], tf32=not tf32).type == "cuda"


# Ranks of a host if MPI reports each as the only one


def test_counts_ranks_of_a_host_by_its_name(monkeypatch, tmp_path):
    # A machine with the same name and another boot id is a different machine.
    names = (("node01", "one"), ("node02", "one"), ("node01", "two"), ("node01", "one"))
    locations = tuple(RankLocation(host, boot, None, (0, 1)) for host, boot in names)
    (tmp_path / "boot_id").write_text("one\n")
    monkeypatch.setattr(comm_module, "_BOOT", tmp_path / "boot_id")
    comm = FakeComm(4, 5, locations)
    fake = SimpleNamespace(COMM_WORLD=comm, COMM_TYPE_SHARED=0)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", fake)
    monkeypatch.setattr("mpi4py.MPI", fake, raising=False)
    monkeypatch.setattr("socket.gethostname", lambda: "node01")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    world = open_world()
    assert (world.local_rank, world.machine, world.threads) == (2, 0, 1)
