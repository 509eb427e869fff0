"""Numbers of halo.compute: exact in fp32, and wrong with products in TF32."""

import pytest
import torch

from spbench_parallel.device.formats import autotune_convolutions
from spbench_parallel.spatial.pixels import IntegerImage
from spbench_workers.benchmarks.halo import compute
from spbench_workers.exact_numbers import compute_largest_convolved_sum
from standins.tf32 import Tf32Products
from support.recording_context import find_events, make_context

CASES = [
    {"kernel": 3, "in_channels": 2, "out_channels": 3},
    {"kernel": 5, "padding": 2, "in_channels": 8, "out_channels": 4, "channels_last": True},
    {"kernel": 4, "stride": 2, "padding": 1, "in_channels": 3, "out_channels": 3},
    {"kernel": 3, "dilation": 3, "padding": 0, "in_channels": 1, "out_channels": 2},
    {"kernel": 1, "padding": 0, "in_channels": 16, "out_channels": 16},
    {"kernel": 3, "in_channels": 64, "out_channels": 64},
]
FORMATS = ["fp64", "fp32", "fp16", "bf16"]


def make_compute_context(**params):
    defaults = {"image_size": 24, "grid": "1x1", "iterations": 1, "warmup": 0, "device": "cpu"}
    return make_context("halo.compute", **defaults | params)


def list_failed_checks(context):
    assert len(find_events(context, "check")) == 4
    return {check["name"] for check in find_events(context, "check") if not check["passed"]}


@pytest.fixture
def tf32(monkeypatch):
    """Simulate a device that multiplies fp32 in TF32, and a benchmark that allows it."""
    monkeypatch.setattr(compute, "autotune_convolutions", lambda: autotune_convolutions(tf32=True))
    monkeypatch.setattr(compute, "choose_device", lambda _: torch.device("cpu"))
    for name in ("report_parts", "report_speedup", "report_backward"):
        monkeypatch.setattr(compute, name, lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize("params", CASES, ids=str)
def test_fp32_passes_and_tf32_fails(params, tf32):
    context = make_compute_context(**params)
    compute.run(context)
    assert not list_failed_checks(context)
    with Tf32Products() as products:
        context = make_compute_context(**params)
        compute.run(context)
    assert products.products > 0
    assert list_failed_checks(context) == {"conv", "grad"}


@pytest.mark.parametrize("params", CASES, ids=str)
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("gpu", [False, True])
def test_all_sums_are_exact(params, dtype, gpu, monkeypatch):
    """Sums of outputs, and of input gradients for output gradients of 1 or -1."""
    monkeypatch.setattr(compute, "is_gpu", lambda _: gpu)
    with torch.no_grad():
        convolution, case = compute._open_case(make_compute_context(dtype=dtype, **params))
    limit = compute_largest_convolved_sum(
        case.template.dtype, convolution.module.kernel_size, gpu=gpu
    )
    plain = case.plain
    plain.weight.data.abs_()
    plain.bias.data.zero_()
    image = case.image.make_box(case.input_tiling.tile, 1, torch.float64).abs()
    gradient = case.gradient.make_box(case.output_tiling.tile, 1, torch.float64).abs()
    assert isinstance(case.image, IntegerImage)
    if case.image.share == 1 << 16:
        # The worst case; if most numbers are zero, the drawn values.
        image.fill_(case.image.largest)
        gradient.fill_(1.0)
    output = plain(image.requires_grad_())
    output.backward(gradient)
    assert 0 < output.max().item() <= limit
    assert 0 < image.grad.max().item() <= limit
