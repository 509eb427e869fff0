"""Memory of a GPU between cases: what is collected, given back, and no longer counted."""

import gc
import weakref
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from spbench_parallel.device import memory
from spbench_parallel.device.memory import release_memory, resident_bytes
from spbench_parallel.errors import CannotRunError
from spbench_parallel.peak_memory import PeakMemory
from spbench_workers.benchmarks.model.profile.row import measure_memory
from spbench_workers.session import run

GPU = torch.device("cuda", 0)


class Held:
    """Something of 100 bytes that is there until the collector comes."""

    everything: ClassVar[weakref.WeakSet] = weakref.WeakSet()

    def __init__(self):
        self.itself = self
        self.blocks = []
        Held.everything.add(self)


class Cuda:
    """torch.cuda, as far as it counts memory: that of `Held`.

    Attributes:
        calls: What was asked of it, in order, with the bytes that were held then.
    """

    def __init__(self):
        self.calls = []
        self.peak = 0
        self.initialized = True

    def _called(self, name):
        self.calls.append((name, self.memory_allocated()))

    def is_initialized(self):
        return self.initialized

    def memory_allocated(self, device=None):
        return 100 * len(Held.everything)

    def max_memory_allocated(self, device=None):
        return max(self.peak, self.memory_allocated())

    def reset_peak_memory_stats(self, device=None):
        self._called("reset")
        self.peak = self.memory_allocated()

    def empty_cache(self):
        self._called("empty")


@pytest.fixture
def cuda(monkeypatch):
    Held.everything.clear()
    stand_in = Cuda()
    for name in dir(stand_in):
        if not name.startswith("_") and hasattr(torch.cuda, name):
            monkeypatch.setattr(torch.cuda, name, getattr(stand_in, name))
    # Only who collects is to collect.
    gc.disable()
    yield stand_in
    gc.enable()


def context():
    return SimpleNamespace(params={"image_size": "64", "precision": "fp32"})


def test_a_peak_begins_without_what_checks_have_left(cuda):
    Held()
    peak = PeakMemory(GPU)
    assert cuda.calls == [("empty", 0), ("reset", 0)]
    kept = Held()
    assert peak.megabytes() == 100 / 1e6
    assert kept


def test_a_layer_s_use_is_without_what_others_have_left(cuda):
    Held()
    with measure_memory(GPU) as use:
        kept = Held()
    assert (use.peak, use.remaining) == (100, 100)
    assert kept


def test_a_case_gives_back_what_it_has_left(cuda):
    run(lambda _: Held() and None, context())
    assert cuda.calls == [("empty", 0)]


def test_a_case_that_failed_gives_back_what_its_functions_had(cuda):
    def fail(_):
        kept = Held()
        raise ValueError(f"{kept} is wrong")

    with pytest.raises(ValueError, match="is wrong"):
        run(fail, context())
    assert cuda.calls == [("empty", 0)]


def test_a_small_case_without_a_gpu_gives_nothing_back(cuda):
    cuda.initialized = False
    run(lambda _: Held() and None, context())
    release_memory()
    assert cuda.calls == []
    assert cuda.memory_allocated() == 100


def test_a_large_process_without_a_gpu_gives_its_heap_back(cuda, monkeypatch):
    """Also what only a reference cycle holds, and what the C library would keep."""
    cuda.initialized = False
    monkeypatch.setattr(memory, "_MIN_RESIDENT_BYTES", 0)
    held = Held()
    held.blocks = [bytearray(64 << 10) for _ in range(2000)]
    last = held.blocks[-1]  # above the others, so that they do not end the heap
    del held
    before = resident_bytes()
    release_memory()
    assert cuda.calls == []
    assert cuda.memory_allocated() == 0
    assert resident_bytes() < before - 100e6
    assert len(last) == 64 << 10


def test_what_a_gpu_tells_at_last_is_the_case_s(cuda, monkeypatch):
    def lost():
        raise RuntimeError("CUDA error: unknown error")

    monkeypatch.setattr(torch.cuda, "empty_cache", lost)
    with pytest.raises(CannotRunError, match="the GPU is lost to this process"):
        run(lambda _: None, context())


def test_a_lost_gpu_that_gives_nothing_back_does_not_hide_why(cuda, monkeypatch):
    def lost():
        raise RuntimeError("CUDA error: unknown error")

    def fail(_):
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

    monkeypatch.setattr(torch.cuda, "empty_cache", lost)
    with pytest.raises(CannotRunError, match="uncorrectable ECC error: take it out of service"):
        run(fail, context())
