"""The choice of a rank's device. torch sees no GPU here: what it would say is put in place."""

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
    """The ranks of a job, of which one is played; ``gathered`` are the others' words."""

    rank: int = 0
    size: int = 1
    gathered: tuple = ()

    def allgather(self, mine):
        others = list(self.gathered)
        others.insert(self.rank, mine)
        return others

    def Split_type(self, kind):  # noqa: N802 - MPI's word
        """As MVAPICH2 with ch3:sock answers: each rank is alone."""
        return FakeComm()

    def Free(self):  # noqa: N802 - MPI's word
        pass


class Heard:
    """A channel that keeps what a rank says."""

    def __init__(self):
        self.said = []

    def send(self, event, **fields):
        self.said.append((event, fields))

    def of(self, event):
        return [fields for kind, fields in self.said if kind == event]


class Gpus:
    """GPUs that torch and the driver tell of."""

    def __init__(self, monkeypatch, count, capability=(9, 0), cuda="13.0"):
        self.taken = []
        self.addresses = [f"0000:{0x41 + index:x}:00.0" for index in range(count)]
        monkeypatch.setattr(torch.version, "cuda", cuda)
        for name, answer in {
            "is_available": lambda: count > 0,
            "device_count": lambda: count,
            "get_device_name": lambda device: "NVIDIA H200",
            "get_device_capability": lambda device: capability,
            "set_device": self.taken.append,
        }.items():
            monkeypatch.setattr(torch.cuda, name, answer)
        monkeypatch.setattr(
            gpus,
            "load_driver",
            lambda: SimpleNamespace(read_pci_address=self.addresses.__getitem__),
        )


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch):
    for name in (*VARIABLES, "CUDA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE"):
        monkeypatch.delenv(name, raising=False)
    flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = flags


def a_case(preference="cuda", local_rank=0, comm=None, **params):
    world = World(comm or FakeComm(), 0, 1, local_rank, HOST, (0,), 1)
    heard = Heard()
    context = Context(
        replace(world, rank=world.comm.rank, size=world.comm.size),
        heard,
        case="a",
        benchmark="memory.copy",
        params={"device": preference, **params},
    )
    return context, heard


# A torch without a GPU


@pytest.fixture
def without_cuda(monkeypatch):
    """A build of torch without CUDA, whichever is installed."""
    monkeypatch.setattr(torch.version, "cuda", None)


def test_the_host_is_recorded_as_asked_for():
    context, heard = a_case("cpu")
    assert choose_device(context) == torch.device("cpu")
    (said,) = heard.of("device")
    assert (said["device"], said["reason"]) == ("cpu", "asked for")


def test_auto_on_the_host_says_why(without_cuda):
    context, heard = a_case("auto")
    assert choose_device(context).type == "cpu"
    (said,) = heard.of("choice")
    assert (said["name"], said["value"]) == ("device", "cpu")
    assert said["reason"].startswith("auto: torch 2.")
    assert said["reason"].endswith("is a build without CUDA")


def test_cuda_is_refused_with_what_was_found(without_cuda):
    context, _ = a_case()
    with pytest.raises(NoDeviceError, match=r"device cuda: torch 2\..* is a build without CUDA; "):
        choose_device(context)
    assert NoDeviceError.missing


@pytest.mark.parametrize("shown", ["", " ", "-1", "NoDevFiles"])
def test_hidden_gpus_are_named(monkeypatch, shown):
    Gpus(monkeypatch, 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    with pytest.raises(NoDeviceError, match=r"CUDA_VISIBLE_DEVICES is '.*', which hides every GPU"):
        choose_device(a_case()[0])


def test_a_driver_that_serves_none_is_named(monkeypatch):
    Gpus(monkeypatch, 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(NoDeviceError, match=r"counts 0 usable GPUs with CUDA_VISIBLE_DEVICES=7: "):
        choose_device(a_case()[0])


def test_a_rank_without_work_for_it_needs_no_gpu():
    assert choose_device(a_case()[0], preference="cpu").type == "cpu"


# GPUs, as torch would tell of them


@pytest.mark.parametrize(("local_rank", "index"), [(0, 0), (1, 1), (3, 1)])
def test_gpus_are_dealt_out_by_local_rank(monkeypatch, local_rank, index):
    gpus = Gpus(monkeypatch, 2)
    device = choose_device(a_case(local_rank=local_rank)[0])
    assert device == torch.device("cuda", index)
    assert gpus.taken == [device]


@pytest.mark.parametrize(("local_rank", "index"), [(0, 2), (1, 0), (3, 0)])
def test_named_gpus_are_dealt_out_by_local_rank(monkeypatch, local_rank, index):
    Gpus(monkeypatch, 3)
    context, _ = a_case(local_rank=local_rank, device_ids=[2, 0])
    assert choose_device(context) == torch.device("cuda", index)
    with pytest.raises(NoDeviceError, match=r"GPU 3 is asked for on .*, and this rank sees 3"):
        choose_device(a_case(device_ids=[3])[0])


def test_what_is_known_of_the_gpu_is_recorded(monkeypatch):
    Gpus(monkeypatch, 2)
    monkeypatch.setattr(choice, "read_driver_version", lambda: "580.82.07")
    context, heard = a_case(local_rank=1)
    choose_device(context)
    (said,) = heard.of("device")
    assert said["device"] == "cuda:1 NVIDIA H200"
    for word in ("PCI 0000:42:00.0", "capability 9.0", "CUDA 13.0", "driver 580.82.07"):
        assert word in said["reason"]
    assert "this rank's alone" in said["reason"]


def test_ranks_of_one_gpu_are_counted_and_those_of_other_hosts_are_not(monkeypatch):
    Gpus(monkeypatch, 1)
    others = (("", HOST, "0000:41:00.0"), ("", "node02", "0000:41:00.0"), ("", HOST, None))
    context, heard = a_case(comm=FakeComm(1, 4, others), local_rank=1)
    choose_device(context)
    assert "shared by 2 ranks" in heard.of("device")[0]["reason"]
    assert not heard.of("choice"), "the first rank with a GPU speaks for the case"


def test_a_rank_with_a_gpu_speaks_for_those_without(monkeypatch):
    Gpus(monkeypatch, 1)
    context, heard = a_case(comm=FakeComm(1, 2, (("", HOST, None),)), local_rank=1)
    choose_device(context)
    assert [one["value"] for one in heard.of("choice")] == ["cuda:0 NVIDIA H200"]
    context, heard = a_case(comm=FakeComm(0, 2, (("", HOST, "0000:41:00.0"),)))
    choose_device(context, preference="cpu")
    (said,) = heard.of("device")
    assert (said["device"], said["reason"]) == ("cpu", "this rank needs no GPU")
    assert not heard.of("choice")


def test_a_problem_of_one_rank_is_raised_by_all(monkeypatch):
    Gpus(monkeypatch, 1)
    others = (("device cuda: torch sees none; use cpu", "node02", None),)
    with pytest.raises(NoDeviceError, match="rank 1 on node02: device cuda: torch sees none"):
        choose_device(a_case(comm=FakeComm(0, 2, others))[0])


def test_a_gpu_of_the_other_socket_is_told(monkeypatch):
    Gpus(monkeypatch, 1)
    far = "far from the rank's cores: it is on NUMA node 1, they on node 0"
    monkeypatch.setattr(choice, "describe_nearness", lambda address, cpus: (False, far))
    context, heard = a_case()
    choose_device(context)
    assert far in heard.of("device")[0]["reason"]
    (log,) = heard.of("log")
    assert (log["level"], far in log["message"]) == ("warning", True)


def test_a_launcher_that_counts_otherwise_is_an_error(monkeypatch):
    Gpus(monkeypatch, 8)
    context, _ = a_case(local_rank=3)
    assert choose_device(context) == torch.device("cuda", 3)
    context.world = replace(
        context.world, local_rank_conflict="rank 1 is local rank 3 by one and 0 by another"
    )
    with pytest.raises(CannotRunError, match=r"^rank 1 is local rank 3 by one"):
        choose_device(context)


def test_what_does_not_touch_a_gpu_may_be_in_doubt():
    context, _ = a_case("auto")
    context.world = replace(
        context.world, local_rank_conflict="rank 1 is local rank 3 by one and 0 by another"
    )
    assert choose_device(context).type == "cpu"


def test_a_gpu_by_its_number_must_be_there(monkeypatch):
    Gpus(monkeypatch, 1)
    assert choose_device(a_case()[0], index=0) == torch.device("cuda", 0)
    with pytest.raises(NoDeviceError, match="GPU 1 is asked for on node01, and this rank sees 1"):
        choose_device(a_case()[0], index=1)


# TF32


def test_fp32_is_multiplied_as_fp32(monkeypatch):
    Gpus(monkeypatch, 1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    choose_device(a_case()[0])
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


def test_tf32_is_a_format_of_its_own(monkeypatch):
    Gpus(monkeypatch, 1)
    choose_device(a_case()[0], tf32=True)
    assert torch.backends.cudnn.allow_tf32
    assert torch.backends.cuda.matmul.allow_tf32


def test_tf32_needs_a_gpu_that_has_it(monkeypatch):
    with pytest.raises(CannotRunError, match="tf32 needs a GPU, and the device is cpu"):
        choose_device(a_case("auto")[0], tf32=True)
    Gpus(monkeypatch, 1, capability=(7, 0))
    with pytest.raises(CannotRunError, match=r"8\.0 or newer, and cuda:0 has 7\.0; take fp32"):
        choose_device(a_case()[0], tf32=True)


@pytest.mark.parametrize(("forced", "tf32"), [("1", False), ("0", True)])
def test_an_environment_that_forces_the_other_format_is_an_error(monkeypatch, forced, tf32):
    Gpus(monkeypatch, 1)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", forced)
    with pytest.raises(CannotRunError, match=f"NVIDIA_TF32_OVERRIDE={forced} makes every product"):
        choose_device(a_case()[0], tf32=tf32)
    assert choose_device(a_case()[0], tf32=not tf32).type == "cuda"


# Ranks of a host, where MPI says that each is alone


def test_ranks_of_a_host_are_counted_by_its_name(monkeypatch, tmp_path):
    # A machine of the same name that was started by itself is another one.
    names = (("node01", "one"), ("node02", "one"), ("node01", "two"), ("node01", "one"))
    every = tuple(RankLocation(host, boot, None, (0, 1)) for host, boot in names)
    (tmp_path / "boot_id").write_text("one\n")
    monkeypatch.setattr(comm_module, "_BOOT", tmp_path / "boot_id")
    comm = FakeComm(4, 5, every)
    fake = SimpleNamespace(COMM_WORLD=comm, COMM_TYPE_SHARED=0)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", fake)
    monkeypatch.setattr("mpi4py.MPI", fake, raising=False)
    monkeypatch.setattr("socket.gethostname", lambda: "node01")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    world = open_world()
    assert (world.local_rank, world.machine, world.threads) == (2, 0, 1)
