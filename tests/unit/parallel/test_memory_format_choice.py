"""The memory format that is taken: the faster one by the layers' times."""

import pytest
import torch

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.autotune import memory_format
from spbench_parallel.device.formats import convert_maps, set_memory_format
from spbench_workers.benchmarks.model.case import build_case
from unit.recorded import choice_of, context_of, said

SMALL = {"scheme": "sequential", "depth": 20, "image_size": 32, "batch_size": 2, "num_classes": 5}


def lies_last(tensor):
    return tensor.is_contiguous(memory_format=torch.channels_last)


def test_maps_and_weights_are_laid_out_and_all_else_stays():
    maps = torch.ones(2, 3, 4, 4)
    vector = torch.ones(5)
    found = convert_maps((maps, vector), "channels_last")
    assert lies_last(found[0])
    assert torch.equal(found[0], maps)
    assert found[1] is vector
    assert convert_maps((maps,), "contiguous")[0] is maps
    convolution = torch.nn.Conv2d(3, 8, 3)
    set_memory_format(convolution, "contiguous")
    assert not lies_last(convolution.weight)
    set_memory_format(convolution, "channels_last")
    assert lies_last(convolution.weight)
    assert lies_last(convolution(maps))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_layers_are_timed_in_both_formats(precision):
    context = context_of("model.resnet", memory_format="auto", precision=precision, **SMALL)
    chosen = build_case(context).plan.memory_format
    value, reason = choice_of(context, "memory_format")
    assert value == chosen
    assert reason.startswith("layers of a micro-batch, on the slowest rank: channels_last ")
    told = [event for event in said(context, "progress") if event["phase"] == "memory format"]
    done = [event["done"] for event in told]
    assert done == sorted(done)
    assert done[-1] == told[-1]["total"]


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [((1.0, 0.9), "channels_last"), ((1.0, 0.98), "contiguous"), ((1.0, 1.2), "contiguous")],
)
def test_the_faster_one_is_taken_where_it_is_more_than_noise(monkeypatch, seconds, taken):
    monkeypatch.setattr(memory_format, "_time_formats", lambda *_, **__: seconds)
    context = context_of("model.resnet", memory_format="auto", **SMALL)
    assert build_case(context).plan.memory_format == taken


def test_layers_that_are_alike_are_timed_once(monkeypatch):
    timed = []

    def of_section(plan, section, tell, *, learns):
        timed.append((section.layers, learns))
        return 1.0, 2.0

    monkeypatch.setattr(memory_format, "_time_section", of_section)
    context = context_of("model.resnet", memory_format="auto", **SMALL | {"depth": 56})
    plan = build_case(context).plan
    # The stem, of each of three stacks the first block and the others, and the head.
    assert len(timed) == 8
    _, reason = choice_of(context, "memory_format")
    count = len(plan.model.layers)
    assert f"contiguous {count}.0 s" in reason


def test_unless_it_is_asked_for_nothing_is_timed():
    context = context_of("model.resnet", **SMALL)
    assert build_case(context).plan.memory_format == "contiguous"
    assert not said(context, "choice", name="memory_format")
    params = BENCHMARKS["model.resnet"].complete({"memory_format": "channels_last"})
    assert params["memory_format"] == "channels_last"
