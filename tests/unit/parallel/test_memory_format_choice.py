"""The choice of a memory format: the faster one by the times of the layers."""

import pytest
import torch

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.autotune import memory_format
from spbench_parallel.device.formats import convert_maps, set_memory_format
from spbench_workers.benchmarks.model.case import build_case
from support.recording_context import find_events, get_choice, make_context

SMALL = {"scheme": "sequential", "depth": 20, "image_size": 32, "batch_size": 2, "num_classes": 5}


def is_channels_last(tensor):
    return tensor.is_contiguous(memory_format=torch.channels_last)


def test_converts_only_maps_and_weights():
    maps = torch.ones(2, 3, 4, 4)
    vector = torch.ones(5)
    converted = convert_maps((maps, vector), "channels_last")
    assert is_channels_last(converted[0])
    assert torch.equal(converted[0], maps)
    assert converted[1] is vector
    assert convert_maps((maps,), "contiguous")[0] is maps
    convolution = torch.nn.Conv2d(3, 8, 3)
    set_memory_format(convolution, "contiguous")
    assert not is_channels_last(convolution.weight)
    set_memory_format(convolution, "channels_last")
    assert is_channels_last(convolution.weight)
    assert is_channels_last(convolution(maps))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_times_layers_in_both_formats(precision):
    context = make_context("model.resnet", memory_format="auto", precision=precision, **SMALL)
    chosen = build_case(context).plan.memory_format
    value, reason = get_choice(context, "memory_format")
    assert value == chosen
    assert reason.startswith("layers of a micro-batch, on the slowest rank: channels_last ")
    events = [
        event for event in find_events(context, "progress") if event["phase"] == "memory format"
    ]
    done = [event["done"] for event in events]
    assert done == sorted(done)
    assert done[-1] == events[-1]["total"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [((1.0, 0.9), "channels_last"), ((1.0, 0.98), "contiguous"), ((1.0, 1.2), "contiguous")],
)
def test_chooses_the_faster_format_above_noise(monkeypatch, seconds, expected):
    monkeypatch.setattr(memory_format, "_time_formats", lambda *_, **__: seconds)
    context = make_context("model.resnet", memory_format="auto", **SMALL)
    assert build_case(context).plan.memory_format == expected


def test_times_equal_layers_once(monkeypatch):
    timed = []

    def time_section(plan, section, report, *, learns):
        timed.append((section.layers, learns))
        return 1.0, 2.0

    monkeypatch.setattr(memory_format, "_time_section", time_section)
    context = make_context("model.resnet", memory_format="auto", **SMALL | {"depth": 56})
    plan = build_case(context).plan
    # The stem, the first block and the others of each of three stacks, and the head.
    assert len(timed) == 8
    _, reason = get_choice(context, "memory_format")
    count = len(plan.model.layers)
    assert f"contiguous {count}.0 s" in reason


def test_times_nothing_unless_format_is_auto():
    context = make_context("model.resnet", **SMALL)
    assert build_case(context).plan.memory_format == "contiguous"
    assert not find_events(context, "choice", name="memory_format")
    params = BENCHMARKS["model.resnet"].complete({"memory_format": "channels_last"})
    assert params["memory_format"] == "channels_last"
