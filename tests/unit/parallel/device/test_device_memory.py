"""Memory of a GPU between cases: collected, released and no longer counted."""

import gc
import weakref
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from spbench_parallel.device.memory import read_resident_bytes, release_memory
from spbench_parallel.errors import CannotRunError
from spbench_parallel.peak_memory import PeakMemory
from spbench_workers.benchmarks.model.profile.layer_sequence import measure_memory
from spbench_workers.session import run

GPU = torch.device("cuda", 0)


class Allocation:
    """An allocation of 100 bytes that lives until the collector runs."""

    instances: ClassVar[weakref.WeakSet] = weakref.WeakSet()

    def __init__(self):
        self.cycle = self
        self.blocks = []
        Allocation.instances.add(self)


class Cuda:
    """The part of torch.cuda that counts memory: that of `Allocation`.

    Attributes:

    calls: Names of calls in order, with the bytes that were allocated then.
    """

    def __init__(self):
        self.calls = []
        self.peak = 0
        self.initialized = True

    def _record(self, name):
        self.calls.append((name, self.memory_allocated()))

    def is_initialized(self):
        return self.initialized

    def memory_allocated(self, device=None):
        return 100 * len(Allocation.instances)

    def max_memory_allocated(self, device=None):
        return max(self.peak, self.memory_allocated())

    def reset_peak_memory_stats(self, device=None):
        self._record("reset")
        self.peak = self.memory_allocated()

    def empty_cache(self):
        self._record("empty")


@pytest.fixture
def cuda(monkeypatch):
    Allocation.instances.clear()
    stand_in = Cuda()
    for name in dir(stand_in):
        if not name.startswith("_") and hasattr(torch.cuda, name):
            monkeypatch.setattr(torch.cuda, name, getattr(stand_in, name))
    # Only the code under test may collect.
    gc.disable()
    yield stand_in
    gc.enable()


def make_context():
    return SimpleNamespace(params={"image_size": "64", "precision": "fp32"})


def test_a_peak_excludes_garbage_of_checks(cuda):
    Allocation()
    peak = PeakMemory(GPU)
    assert cuda.calls == [("empty", 0), ("reset", 0)]
    allocation = Allocation()
    assert peak.megabytes() == 100 / 1e6
    assert allocation


def test_the_memory_of_a_layer_excludes_earlier_garbage(cuda):
    Allocation()
    with measure_memory(GPU) as use:
        allocation = Allocation()
    assert (use.peak, use.remaining) == (100, 100)
    assert allocation


def test_a_case_releases_its_memory(cuda):
    run(lambda _: Allocation() and None, make_context())
    assert cuda.calls == [("empty", 0)]


def test_a_failed_case_releases_the_memory_of_its_frames(cuda):
    def fail(_):
        allocation = Allocation()
        raise ValueError(f"{allocation} is wrong")

    with pytest.raises(ValueError, match="is wrong"):
        run(fail, make_context())
    assert cuda.calls == [("empty", 0)]


def test_a_small_case_without_a_gpu_releases_nothing(cuda, monkeypatch, request):
    # The process that runs the tests may be larger than one of a small case.
    monkeypatch.setattr("spbench_parallel.device.memory.read_resident_bytes", lambda: 0)
    request.addfinalizer(gc.enable)
    gc.disable()  # Python itself may release the cycle at any time
    cuda.initialized = False
    run(lambda _: Allocation() and None, make_context())
    release_memory()
    assert cuda.calls == []
    assert cuda.memory_allocated() == 100


def test_a_large_process_without_a_gpu_releases_its_heap(cuda):
    """Also memory of reference cycles, and memory that the C library would keep."""
    cuda.initialized = False
    allocation = Allocation()
    allocation.blocks = [bytearray(64 << 10) for _ in range(2000)]
    last = allocation.blocks[-1]  # above the others, so that they do not end the heap
    del allocation
    before = read_resident_bytes()
    release_memory(min_resident_bytes=0)
    assert cuda.calls == []
    assert cuda.memory_allocated() == 0
    assert read_resident_bytes() < before - 100e6
    assert len(last) == 64 << 10


def test_an_error_while_releasing_memory_fails_the_case(cuda, monkeypatch, messages):
    def raise_unknown_error():
        raise RuntimeError("CUDA error: unknown error")

    monkeypatch.setattr(torch.cuda, "empty_cache", raise_unknown_error)
    with messages.raises(CannotRunError):
        run(lambda _: None, make_context())


def test_an_error_while_releasing_does_not_hide_the_first(cuda, monkeypatch, messages):
    def raise_unknown_error():
        raise RuntimeError("CUDA error: unknown error")

    def fail(_):
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

    monkeypatch.setattr(torch.cuda, "empty_cache", raise_unknown_error)
    with messages.raises(CannotRunError):
        run(fail, make_context())
