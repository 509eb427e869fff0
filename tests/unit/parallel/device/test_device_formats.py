"""The format in which a GPU multiplies fp32: the case decides.

Neither the defaults of torch nor the previous case matter.
"""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.device import gpus
from spbench_parallel.device.formats import autotune_convolutions, set_fp32_precision, torch_dtype
from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.model.case import build_case
from support.typed_params import TypedParams

GPU = torch.device("cuda", 0)


class Comm:
    def allgather(self, value):
        return [value]


class Context(TypedParams):
    """A case of one rank."""

    def __init__(self, name, **params):
        self.entry = BENCHMARKS[name]
        self.params = self.entry.complete(params)
        self.world = SimpleNamespace(
            rank=0,
            size=1,
            local_rank=0,
            local_rank_conflict="",
            host="here",
            cpus=(0,),
            comm=Comm(),
        )
        self.seed = 0
        self.reports = []

    def planted_in_job(self, fault):
        return False

    def device(self, name, reason, *, speaks, near=None, address=None):
        self.reports.append(name)

    def log(self, message, level):
        self.reports.append(message)


def get_tf32_flags():
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


@pytest.fixture(autouse=True)
def _settings(monkeypatch):
    previous = get_tf32_flags()
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = previous


@pytest.fixture
def gpu(monkeypatch):
    """Simulate a GPU that torch reports. No tensor is put there."""
    for name, answer in {
        "is_available": True,
        "device_count": 1,
        "set_device": None,
        "get_device_name": "NVIDIA stand-in",
        "get_device_capability": (9, 0),
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(gpus, "read_pci_address", lambda _: "0000:41:00.0")
    return monkeypatch


@pytest.mark.parametrize(
    ("precision", "expected"), [("fp32", False), ("tf32", True), ("bf16", False)]
)
@pytest.mark.parametrize("before", [True, False])
def test_each_model_case_sets_the_format(gpu, precision, expected, before, messages):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = before
    context = Context("model.resnet", scheme="sequential", depth=11, precision=precision)
    plan = build_case(context).plan
    messages.check(context.reports)
    assert (plan.device, plan.precision.name) == (GPU, precision)
    assert plan.precision.weights == torch.float32
    assert get_tf32_flags() == (expected, expected)


@pytest.mark.slow
def test_replaces_tf32_defaults_of_torch():
    code = (
        "import torch; from spbench_parallel.device.formats import set_fp32_precision\n"
        "flags = lambda: (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)\n"
        "torch.cuda.get_device_capability = lambda _: (8, 0)\n"
        "print(flags()); set_fp32_precision(torch.device('cuda', 0)); print(flags())"
    )
    completed = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.split("\n")[:2] == ["(True, True)", "(False, False)"]


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_an_old_gpu_has_no_tf32(gpu, device, messages):
    gpu.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    params = {"scheme": "sequential", "depth": 11, "precision": "tf32", "device": device}
    with messages.raises(CannotRunError):
        build_case(Context("model.resnet", **params))


def test_the_host_has_no_tf32(messages):
    params = {"scheme": "sequential", "depth": 11, "precision": "tf32"}
    with messages.raises(CannotRunError):
        build_case(Context("model.resnet", **params))


@pytest.mark.parametrize(("forced", "tf32"), [("0", True), ("1", False)])
def test_rejects_a_format_that_the_environment_forbids(gpu, forced, tf32):
    gpu.setenv("NVIDIA_TF32_OVERRIDE", forced)
    with pytest.raises(CannotRunError, match=f"NVIDIA_TF32_OVERRIDE={forced} makes .* unset it"):
        set_fp32_precision(GPU, tf32=tf32)
    set_fp32_precision(GPU, tf32=not tf32)
    assert get_tf32_flags() == (not tf32, not tf32)


@pytest.mark.parametrize("tf32", [True, False])
def test_autotuned_convolutions_restore_the_settings(tf32):
    set_fp32_precision(torch.device("cpu"))
    with autotune_convolutions(tf32=tf32):
        assert torch.backends.cudnn.enabled
        assert torch.backends.cudnn.benchmark
        assert torch.backends.cudnn.allow_tf32 == tf32
    assert get_tf32_flags() == (False, False)


def test_tf32_is_fp32_in_memory():
    assert torch_dtype("tf32") == torch.float32
