"""Convolutions of benchmarks use cuDNN with autotuning, which torch does not."""

import importlib

import pytest
import torch
from torch.nn import functional

from spbench_core.catalog import BENCHMARKS
from support.recording_context import find_events, make_context

SMALL = {"image_size": 12, "warmup": 1, "iterations": 1, "device": "cpu"}
CASES = {
    "compute.conv": {"in_channels": 2, "out_channels": 2},
    "halo.compute": {"in_channels": 2, "out_channels": 2, "grid": "1x1"},
    "halo.fused": {"in_channels": 2, "out_channels": 2, "num_layers": 2, "grid": "1x1"},
}


@pytest.mark.parametrize("name", CASES)
def test_benchmarks_convolve_with_tuned_cudnn_in_fp32(name, monkeypatch):
    cudnn = torch.backends.cudnn
    settings = []
    convolve = functional.conv2d
    before = cudnn.enabled, cudnn.benchmark

    def convolve_and_record(*args, **kwargs):
        settings.append((cudnn.enabled, cudnn.benchmark, cudnn.allow_tf32))
        return convolve(*args, **kwargs)

    monkeypatch.setattr(functional, "conv2d", convolve_and_record)
    context = make_context(name, **SMALL, **CASES[name])
    importlib.import_module(BENCHMARKS[name].module).run(context)
    assert settings
    assert set(settings) == {(True, True, False)}
    assert (cudnn.enabled, cudnn.benchmark) == before
    assert all(check["passed"] for check in find_events(context, "check"))
