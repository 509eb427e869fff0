"""The start of CUDA before a rank is ready."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from spbench_parallel.device import warm_up
from spbench_workers import session


@pytest.fixture
def two_gpus(monkeypatch):
    """Two GPUs as torch counts them; returns those that were started."""
    started = []
    monkeypatch.setattr(warm_up, "explain_missing_gpu", lambda: "")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    monkeypatch.setattr(warm_up, "load_libraries", started.append)
    return started


def test_the_gpu_of_the_local_rank_is_started(two_gpus):
    warm_up.start_gpu(3)
    assert two_gpus == [torch.device("cuda", 1)]


@pytest.mark.parametrize("error", [RuntimeError, torch.cuda.DeferredCudaCallError, OSError])
def test_a_gpu_that_fails_is_left_to_the_case(two_gpus, monkeypatch, error):
    def fail(device):
        raise error("CUDA error: out of memory")

    monkeypatch.setattr(warm_up, "load_libraries", fail)
    warm_up.start_gpu(0)


def test_without_a_gpu_nothing_is_started(two_gpus, monkeypatch):
    monkeypatch.setattr(warm_up, "explain_missing_gpu", lambda: "no driver")
    warm_up.start_gpu(0)
    assert two_gpus == []


class Operators(TorchDispatchMode):
    """Keeps the names of operators."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function._schema.name)
        return function(*args, **(kwargs or {}))


def test_the_libraries_are_used():
    with Operators() as operators:
        warm_up.load_libraries(torch.device("cpu"))
    assert {"aten::mm", "aten::convolution", "aten::convolution_backward"} <= operators.names


@pytest.fixture
def served(monkeypatch):
    """Serve a case with doubles for channel, world and benchmark; return the steps in order."""

    def served(device, environ=None, benchmark="compute.gemm", **params):
        happened = []
        channel = SimpleNamespace(
            receive_cases=lambda: [
                {"benchmark": benchmark, "params": {"device": device, **params}}
            ],
            send=lambda event, **fields: happened.append(event),
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
        monkeypatch.setattr(session, "start_reporting", lambda *_: happened.append("ready"))
        monkeypatch.setattr(session, "load_runners", lambda names: dict.fromkeys(names))
        monkeypatch.setattr(session, "run_case", lambda *_, **__: happened.append("case"))
        monkeypatch.setattr(session, "finalize_mpi", lambda: None)
        monkeypatch.setattr(warm_up, "start_gpu", lambda local_rank: happened.append("started"))
        session.serve()
        return happened

    return served


def test_a_job_that_needs_gpus_starts_them_before_it_is_ready(served):
    assert served("cuda", "cuda") == ["started", "ready", "log", "case"]


def test_a_job_that_may_use_gpus_starts_them_as_it_loads(served):
    assert served("auto") == ["ready", "log", "started", "case"]


def test_ranks_that_use_other_gpus_or_none_start_none(served):
    assert served("auto", benchmark="kvstore.push_pull") == ["ready", "log", "case"]
    assert served("auto", device_ids=[1]) == ["ready", "log", "case"]


def test_a_job_on_the_host_starts_none(served):
    assert served("cpu") == ["ready", "log", "case"]
