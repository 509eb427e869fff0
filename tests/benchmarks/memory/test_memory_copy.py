"""Copies between a device and the host: each byte is checked.

The benchmark waits for each copy.
"""

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
from support.recording_context import find_events, get_choice, get_metric, make_context

pytestmark = pytest.mark.usefixtures("late")

LATE = install()
DEVICE = torch.device("late", 0)
SMALL = {"size": 1000, "iterations": 2, "warmup": 1}


@pytest.fixture
def allocations(monkeypatch):
    """Put the case on the stand-in, and return its allocations.

    No memory is pinned, because torch has no GPU to pin it for.
    """
    allocated = []

    def zeros(size, *, dtype, device, pin_memory):
        allocated.append((torch.device(device).type, pin_memory))
        return torch.zeros(size, dtype=dtype, device=device)

    monkeypatch.setattr(copy, "choose_device", lambda context: DEVICE)
    monkeypatch.setattr(copy, "torch", SimpleNamespace(**vars(torch) | {"zeros": zeros}))
    return allocated


def catch_param_error(**params):
    with pytest.raises(ExceptionGroup) as group:
        make_context("memory.copy", **params)
    (error,) = group.value.exceptions
    return error.param, str(error)


@pytest.mark.parametrize(
    ("params", "param", "expected"),
    [
        ({"path": "to_host", "device": "cpu"}, "path", "path to_host needs a GPU"),
        ({"path": "peer", "device": "cpu"}, "path", "path peer needs a GPU"),
        ({"cores": "far", "device": "cpu"}, "cores", "cores far are those of a GPU"),
        ({"pinned": True}, "pinned", "path device has no side on the host"),
        ({"pinned": True, "path": "peer"}, "pinned", "path peer has no side on the host"),
    ],
)
def test_rejects_ineffective_parameters(params, param, expected):
    error_param, text = catch_param_error(**params)
    assert error_param == param
    assert expected in text


def test_copies_of_the_host_are_pinned_by_default():
    pinned = {
        params: make_context("memory.copy", **dict(params)).params["pinned"]
        for params in (
            (("path", "device"),),
            (("path", "to_host"),),
            (("path", "to_device"),),
            (("path", "to_device"), ("pinned", False)),
        )
    }
    assert list(pinned.values()) == [False, True, True, False]


@pytest.mark.parametrize("path", ["to_host", "to_device", "peer"])
def test_rejects_a_path_to_a_gpu_without_one(path, monkeypatch):
    monkeypatch.setattr(choice, "explain_missing_gpu", lambda: "there is no GPU")
    with pytest.raises(NoDeviceError, match=f"path {path} needs a GPU, and rank 0 on here"):
        copy.run(make_context("memory.copy", path=path, **SMALL))


def test_rejects_a_path_to_a_missing_second_gpu(allocations, monkeypatch, messages):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with messages.raises(NoDeviceError):
        copy.run(make_context("memory.copy", path="peer", **SMALL))


@pytest.mark.parametrize("direct", [True, False])
def test_reports_the_path_to_a_second_gpu(monkeypatch, direct, messages):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda device, peer: direct)
    context = make_context("memory.copy", path="peer", **SMALL)
    ends = copy.choose_endpoints(context, torch.device("cuda", 3))
    assert ends == (torch.device("cuda", 3), torch.device("cuda", 0))
    value, reason = get_choice(context, "peer")
    messages.check(value)
    assert reason == ("peer access" if direct else "no peer access: by way of the host")


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize(
    ("path", "ends"), [("to_host", ["late", "cpu"]), ("to_device", ["cpu", "late"])]
)
def test_checks_every_byte_between_host_and_device(path, ends, pinned, allocations):
    context = make_context("memory.copy", path=path, pinned=pinned, **SMALL)
    copy.run(context)
    assert allocations == [(end, pinned and end == "cpu") for end in ends]
    (check,) = find_events(context, "check")
    assert check["passed"]
    assert get_metric(context, "bandwidth_gb_s") > 0
    (limit,) = (
        event
        for event in find_events(context, "metric", name="bandwidth_gb_s")
        if "measured_by" in event
    )
    assert limit["value"] > 0


@pytest.mark.parametrize("path", ["device", "to_host", "to_device"])
def test_detects_a_wrong_byte(path, allocations, messages):
    context = make_context("memory.copy", "corrupt-copy", path=path, **SMALL)
    copy.run(context)
    (check,) = find_events(context, "check")
    assert not check["passed"]
    messages.check(check["detail"])


def test_detects_a_missing_wait(allocations, monkeypatch):
    monkeypatch.setattr(copy, "synchronize_stream", lambda device: None)
    context = make_context("memory.copy", path="to_host", **SMALL)
    copy.run(context)
    assert not find_events(context, "check")[0]["passed"]


@pytest.fixture
def two_sockets(tmp_path, monkeypatch):
    """Create a host of two sockets and a far third node; the GPU is on node 1."""
    for name in ("PCI", "CPUS", "NODES"):
        monkeypatch.setattr(numa, name, tmp_path / name)
    core = sorted(os.sched_getaffinity(0))[0]
    for cpu, node in ((core, 0), (core + 1, 1), (5000, 3)):
        (tmp_path / f"CPUS/cpu{cpu}/node{node}").mkdir(parents=True)
    for node, distances in ((0, "10 21 31"), (1, "21 10 31"), (3, "31 31 10")):
        (tmp_path / f"NODES/node{node}").mkdir(parents=True)
        (tmp_path / f"NODES/node{node}/distance").write_text(distances)
    gpu = tmp_path / "PCI/0000:81:00.0"
    gpu.mkdir(parents=True)
    (gpu / "numa_node").write_text("1\n")
    return core


@pytest.fixture
def requested_cores(monkeypatch):
    """Return the requested cores and those of the process, which stay the same."""
    requests = []
    own_cores = os.sched_getaffinity(0)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: requests.append(set(cpus)))
    monkeypatch.setattr(
        gpus.Gpu,
        "from_device",
        lambda device: SimpleNamespace(address="0000:81:00.0"),
        raising=True,
    )
    return requests, own_cores


def test_reads_cores_and_nodes_of_the_system(two_sockets):
    core = two_sockets
    assert numa.list_cores_by_node() == {0: {core}, 1: {core + 1}, 3: {5000}}
    assert numa.find_farthest_node(1, {0, 1, 3}) == 3
    assert numa.find_farthest_node(1, {0, 1}) == 0
    assert numa.find_farthest_node(1, {1}) is None
    assert numa.find_farthest_node(7, {0, 1}) is None


@pytest.mark.parametrize(("cores", "node", "offset"), [("near", 1, 1), ("far", 3, None)])
def test_a_rank_copies_on_requested_cores_and_returns(
    two_sockets, requested_cores, allocations, cores, node, offset
):
    requests, own_cores = requested_cores
    threads = torch.get_num_threads()
    context = make_context("memory.copy", path="to_host", cores=cores, **SMALL)
    copy.run(context)
    assert requests == [{5000} if offset is None else {two_sockets + offset}, own_cores]
    assert get_choice(context, "cores")[0] == f"{cores}: NUMA node {node}"
    assert torch.get_num_threads() == threads
    assert find_events(context, "check")[0]["passed"]


def test_rejects_cores_that_the_rank_may_not_use(
    two_sockets, requested_cores, monkeypatch, messages
):
    def refuse(pid, cpus):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    context = make_context("memory.copy", path="to_host", cores="far", **SMALL)
    with (
        messages.raises(CannotRunError),
        copy.bind_to_cores(context, DEVICE),
    ):
        pass


def test_rejects_a_gpu_without_a_known_node(two_sockets, requested_cores, messages):
    (numa.PCI / "0000:81:00.0/numa_node").write_text("-1\n")
    context = make_context("memory.copy", path="to_host", cores="near", **SMALL)
    with (
        messages.raises(CannotRunError),
        copy.bind_to_cores(context, DEVICE),
    ):
        pass


def test_rejects_near_cores_without_a_gpu(messages):
    context = make_context("memory.copy", cores="near", **SMALL)
    with (
        messages.raises(CannotRunError),
        copy.bind_to_cores(context, torch.device("cpu")),
    ):
        pass
