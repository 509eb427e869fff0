"""The start of CUDA before a rank is ready."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from spbench_parallel.device import gpus
from spbench_workers import session


@pytest.fixture
def started_gpus(monkeypatch):
    """Provide two GPUs to torch; return the started ones."""
    devices = []
    monkeypatch.setattr(gpus, "explain_missing_gpu", lambda: "")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    monkeypatch.setattr(gpus, "load_libraries", devices.append)
    return devices


def test_starts_the_gpu_of_the_local_rank(started_gpus):
    gpus.start_gpu(3)
    assert started_gpus == [torch.device("cuda", 1)]


@pytest.mark.parametrize("error", [RuntimeError, torch.cuda.DeferredCudaCallError, OSError])
def test_ignores_a_gpu_that_fails_to_start(started_gpus, monkeypatch, error):
    def fail(device):
        started_gpus.append(device)
        raise error("CUDA error: out of memory")

    monkeypatch.setattr(gpus, "load_libraries", fail)
    gpus.start_gpu(0)
    assert started_gpus == [torch.device("cuda", 0)]


def test_starts_nothing_without_a_gpu(started_gpus, monkeypatch):
    monkeypatch.setattr(gpus, "explain_missing_gpu", lambda: "no driver")
    gpus.start_gpu(0)
    assert started_gpus == []


class Operators(TorchDispatchMode):
    """Keep the names of operators."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function._schema.name)
        return function(*args, **(kwargs or {}))


def test_loading_calls_the_libraries():
    with Operators() as operators:
        gpus.load_libraries(torch.device("cpu"))
    assert {"aten::mm", "aten::convolution", "aten::convolution_backward"} <= operators.names


@pytest.fixture
def serve_case(monkeypatch):
    """Serve a case with doubles for channel, world and benchmark; return its steps."""

    def serve_case(device, environ=None, benchmark="compute.gemm", **params):
        steps = []
        channel = SimpleNamespace(
            receive_cases=lambda: [
                {"benchmark": benchmark, "params": {"device": device, **params}}
            ],
            send=lambda event, **fields: steps.append(event),
            guarded_by_kernel=nullcontext,
            close=lambda: None,
        )
        comm = SimpleNamespace(bcast=lambda value: value, Barrier=lambda: None)
        world = SimpleNamespace(comm=comm, rank=0, local_rank_conflict="", local_rank=0)
        if environ:
            monkeypatch.setenv("SPBENCH_DEVICE", environ)
        else:
            monkeypatch.delenv("SPBENCH_DEVICE", raising=False)
        monkeypatch.setattr(session, "connect_or_exit", lambda: channel)
        monkeypatch.setattr(session, "open_world", lambda guard: world)
        monkeypatch.setattr(session, "mpi_versions", dict)
        monkeypatch.setattr(session, "start_reporting", lambda *_: steps.append("ready"))
        monkeypatch.setattr(session, "load_runners", lambda names: dict.fromkeys(names))
        monkeypatch.setattr(session, "run_case", lambda *_, **__: steps.append("case"))
        monkeypatch.setattr(session, "finalize_mpi", lambda: None)
        monkeypatch.setattr(gpus, "start_gpu", lambda local_rank: steps.append("started"))
        session.serve()
        return steps

    return serve_case


def test_starts_required_gpus_before_ready(serve_case):
    assert serve_case("cuda", "cuda") == ["started", "ready", "log", "case"]


def test_starts_optional_gpus_while_loading(serve_case):
    assert serve_case("auto") == ["ready", "log", "started", "case"]


def test_starts_no_gpu_for_other_devices_or_benchmarks(serve_case):
    assert serve_case("auto", benchmark="kvstore.push_pull") == ["ready", "log", "case"]
    assert serve_case("auto", device_ids=[1]) == ["ready", "log", "case"]


def test_starts_no_gpu_for_a_job_on_the_host(serve_case):
    assert serve_case("cpu") == ["ready", "log", "case"]
