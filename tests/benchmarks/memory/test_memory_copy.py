"""Copies between a device and the host: each byte is checked, each copy is waited for."""

import os
from types import SimpleNamespace

import pytest
import torch

from spbench_parallel.device import gpus
from spbench_parallel.device.gpus import NoDeviceError
from spbench_parallel.errors import CannotRunError
from spbench_workers import device_choice as choice
from spbench_workers.benchmarks.memory import copy
from spbench_workers.binding import numa
from standins.late_device import install
from unit.recorded import choice_of, context_of, said, value_of

pytestmark = pytest.mark.usefixtures("late")

LATE = install()
PLACE = torch.device("late", 0)
SMALL = {"size": 1000, "iterations": 2, "warmup": 1}


@pytest.fixture
def on_late(monkeypatch):
    """The case's device is the stand-in. No memory is pinned: torch has no GPU to pin it for."""
    made = []

    def zeros(size, *, dtype, device, pin_memory):
        made.append((torch.device(device).type, pin_memory))
        return torch.zeros(size, dtype=dtype, device=device)

    monkeypatch.setattr(copy, "choose_device", lambda context: PLACE)
    monkeypatch.setattr(copy, "torch", SimpleNamespace(**vars(torch) | {"zeros": zeros}))
    return made


def refused(**params):
    with pytest.raises(ExceptionGroup) as group:
        context_of("memory.copy", **params)
    (error,) = group.value.exceptions
    return error.param, str(error)


@pytest.mark.parametrize(
    ("params", "param", "words"),
    [
        ({"path": "to_host", "device": "cpu"}, "path", "path to_host needs a GPU"),
        ({"path": "peer", "device": "cpu"}, "path", "path peer needs a GPU"),
        ({"cores": "far", "device": "cpu"}, "cores", "cores far are those of a GPU"),
        ({"pinned": True}, "pinned", "path device has no side on the host"),
        ({"pinned": True, "path": "peer"}, "pinned", "path peer has no side on the host"),
    ],
)
def test_what_would_do_nothing_is_refused(params, param, words):
    found, text = refused(**params)
    assert found == param
    assert words in text


def test_copies_from_and_to_the_host_are_pinned_unless_they_are_not_to_be():
    pinned = {
        words: context_of("memory.copy", **dict(words)).params["pinned"]
        for words in (
            (("path", "device"),),
            (("path", "to_host"),),
            (("path", "to_device"),),
            (("path", "to_device"), ("pinned", False)),
        )
    }
    assert list(pinned.values()) == [False, True, True, False]


@pytest.mark.parametrize("path", ["to_host", "to_device", "peer"])
def test_a_path_to_a_gpu_without_one_is_refused_in_a_sentence(path, monkeypatch):
    monkeypatch.setattr(choice, "explain_missing_gpu", lambda: "there is no GPU")
    with pytest.raises(NoDeviceError, match=f"path {path} needs a GPU, and rank 0 on here"):
        copy.run(context_of("memory.copy", path=path, **SMALL))


def test_a_path_to_a_second_gpu_without_one_is_refused_in_a_sentence(on_late, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(NoDeviceError, match="path peer needs two GPUs, and rank 0 on here sees 1"):
        copy.run(context_of("memory.copy", path="peer", **SMALL))


@pytest.mark.parametrize("direct", [True, False])
def test_a_path_to_a_second_gpu_says_how_it_is_reached(monkeypatch, direct):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: direct)
    context = context_of("memory.copy", path="peer", **SMALL)
    ends = copy.choose_endpoints(context, torch.device("cuda", 3))
    assert ends == (torch.device("cuda", 3), torch.device("cuda", 0))
    value, reason = choice_of(context, "peer")
    assert value == "cuda:3 to cuda:0"
    assert reason == ("peer access" if direct else "no peer access: by way of the host")


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize(
    ("path", "ends"), [("to_host", ["late", "cpu"]), ("to_device", ["cpu", "late"])]
)
def test_every_byte_of_a_copy_between_host_and_device_is_checked(path, ends, pinned, on_late):
    context = context_of("memory.copy", path=path, pinned=pinned, **SMALL)
    copy.run(context)
    assert on_late == [(end, pinned and end == "cpu") for end in ends]
    (check,) = said(context, "check")
    assert check["passed"]
    assert value_of(context, "bandwidth_gb_s") > 0
    (limit,) = (
        one for one in said(context, "metric", name="bandwidth_gb_s") if "measured_by" in one
    )
    assert limit["value"] > 0


@pytest.mark.parametrize("path", ["device", "to_host", "to_device"])
def test_a_wrong_byte_is_found(path, on_late):
    context = context_of("memory.copy", "corrupt-copy", path=path, **SMALL)
    copy.run(context)
    (check,) = said(context, "check")
    assert not check["passed"]
    assert "byte 500 is" in check["detail"]


def test_a_copy_that_nobody_waits_for_is_found(on_late, monkeypatch):
    monkeypatch.setattr(copy, "synchronize_stream", lambda place: None)
    context = context_of("memory.copy", path="to_host", **SMALL)
    copy.run(context)
    assert not said(context, "check")[0]["passed"]


@pytest.fixture
def two_sockets(tmp_path, monkeypatch):
    """A host of two sockets and a far third node; the GPU is on node 1."""
    for name in ("PCI", "CPUS", "NODES"):
        monkeypatch.setattr(numa, name, tmp_path / name)
    here = sorted(os.sched_getaffinity(0))[0]
    for cpu, node in ((here, 0), (here + 1, 1), (5000, 3)):
        (tmp_path / f"CPUS/cpu{cpu}/node{node}").mkdir(parents=True)
    for node, distances in ((0, "10 21 31"), (1, "21 10 31"), (3, "31 31 10")):
        (tmp_path / f"NODES/node{node}").mkdir(parents=True)
        (tmp_path / f"NODES/node{node}/distance").write_text(distances)
    gpu = tmp_path / "PCI/0000:81:00.0"
    gpu.mkdir(parents=True)
    (gpu / "numa_node").write_text("1\n")
    return here


@pytest.fixture
def moved(monkeypatch):
    """The cores that were asked for; the process stays where it is."""
    asked = []
    here = os.sched_getaffinity(0)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: asked.append(set(cpus)))
    monkeypatch.setattr(
        gpus.Gpu,
        "from_device",
        lambda device: SimpleNamespace(address="0000:81:00.0"),
        raising=True,
    )
    return asked, here


def test_cores_and_nodes_are_those_of_the_system(two_sockets):
    here = two_sockets
    assert numa.cores_by_node() == {0: {here}, 1: {here + 1}, 3: {5000}}
    assert numa.farthest_node(1, {0, 1, 3}) == 3
    assert numa.farthest_node(1, {0, 1}) == 0
    assert numa.farthest_node(1, {1}) is None
    assert numa.farthest_node(7, {0, 1}) is None


@pytest.mark.parametrize(("asked", "node", "core"), [("near", 1, 1), ("far", 3, None)])
def test_a_rank_copies_from_the_cores_asked_for_and_comes_back(
    two_sockets, moved, on_late, asked, node, core
):
    taken, here = moved
    threads = torch.get_num_threads()
    context = context_of("memory.copy", path="to_host", cores=asked, **SMALL)
    copy.run(context)
    assert taken == [{5000} if core is None else {two_sockets + core}, here]
    assert choice_of(context, "cores")[0] == f"{asked}: NUMA node {node}"
    assert torch.get_num_threads() == threads
    assert said(context, "check")[0]["passed"]


def test_cores_that_the_rank_may_not_have_are_refused(two_sockets, moved, monkeypatch):
    def refuse(pid, cpus):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    context = context_of("memory.copy", path="to_host", cores="far", **SMALL)
    with (
        pytest.raises(CannotRunError, match=r"may not run on NUMA node 3 \(Invalid argument\)"),
        copy.bind_to_cores(context, PLACE),
    ):
        pass


def test_a_gpu_whose_node_nobody_knows_is_refused(two_sockets, moved):
    (numa.PCI / "0000:81:00.0/numa_node").write_text("-1\n")
    context = context_of("memory.copy", path="to_host", cores="near", **SMALL)
    with (
        pytest.raises(CannotRunError, match="the system does not tell on which NUMA node"),
        copy.bind_to_cores(context, PLACE),
    ):
        pass


def test_near_cores_without_a_gpu_are_refused():
    context = context_of("memory.copy", cores="near", **SMALL)
    with (
        pytest.raises(CannotRunError, match="cores near are those of a GPU, and the device is cpu"),
        copy.bind_to_cores(context, torch.device("cpu")),
    ):
        pass
