"""Whole model cases on a device that works late: all that comes of them is what the host gives."""

import gc
import os
import weakref

import pytest
import torch
from mpi4py import MPI

from spbench_core.catalog import BENCHMARKS
from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.models.registry import make_model
from spbench_parallel.checkpoints import checkpoint
from spbench_parallel.engine import Engine
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.pipeline.stage_runner import StageRunner
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision import formats
from spbench_parallel.precision.formats import FP16, FP32, FP64, INT8
from spbench_parallel.precision.loss_scale import START
from spbench_workers.benchmarks.model import case
from spbench_workers.benchmarks.model import run as benchmark
from spbench_workers.benchmarks.model import validation as validate
from spbench_workers.comm import World
from spbench_workers.context import Context
from standins.late_device import install

pytestmark = pytest.mark.slow
LATE = install()
GPU = torch.device("late")
CPU = torch.device("cpu")
RESNET = make_model("resnet", image_size=(32, 32), num_classes=5, version=2, depth=11)
AMOEBANET = make_model(
    "amoebanet", image_size=(64, 64), num_classes=5, num_layers=3, num_filters=16
)


@pytest.fixture(autouse=True)
def _one_way_to_multiply(monkeypatch):
    LATE.reset()
    # The stand-in's kernels are those of the host, and of fp16 those are others.
    monkeypatch.setattr(formats, "has_fast_products", lambda *_: False)
    # A parameter of the stand-in cannot become one of another format in its place.
    kept = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    yield
    torch.__future__.set_overwrite_module_params_on_conversion(kept)
    LATE.streams.synchronize_device()


def engine_of(network, device, format_, learning):
    batches = split_batch(4, 2, mirrored=False, times=1)
    layers = (len(network.layers),)
    plan = ModelPlan(network, build_layout(1), layers, batches, device=device, precision=format_)
    images = SyntheticImages(network.image, 5, seed=3, dtype=plan.dtype, device=device)
    keeps = learning is not None
    return Engine(MPI.COMM_SELF, plan, images, learning, keeps_input_gradients=keeps), images


def learnt(network, device, format_, optimizer, path):
    """A model after two steps, a checkpoint, and a step from there; and what it infers."""
    engine, images = engine_of(network, device, format_, TrainingConfig(optimizer))
    found = {}
    (stage,) = engine.stages
    if engine.arithmetic.loss_scale is not None:
        engine.arithmetic.loss_scale.value = 256.0
    for step in range(2):
        images.set_step(step)
        engine.step()
        found[f"loss {step}"] = torch.tensor([engine.loss(), engine.accuracy()])
    checkpoint.save(path, engine, 2)
    images.set_step(2)
    engine.step()
    once = engine.loss()
    assert checkpoint.load(path, engine) == 2
    engine.step()
    assert engine.loss() == once
    found |= {name: one.detach() for name, one in stage.named_parameters()}
    found |= {f"gradient of {name}": one.grad for name, one in stage.named_parameters()}
    found |= dict(stage.named_buffers())
    found |= {f"images {key}": one for key, one in engine.runners[0].image_gradients.items()}
    found |= {f"logits {key}": one for key, one in engine.evaluate().items()}
    engine.free()
    return {name: one.cpu() for name, one in found.items()}


@pytest.mark.parametrize(
    ("network", "format_", "optimizer"),
    [
        (RESNET, FP64, "adam"),
        (RESNET, FP32, "sgd"),
        (RESNET, FP16, "adamw"),
        (AMOEBANET, FP32, "sgd"),
    ],
    ids=lambda one: getattr(one, "name", one),
)
def test_what_is_learnt_is_what_the_host_learns(network, format_, optimizer, tmp_path):
    wanted = learnt(network, CPU, format_, optimizer, tmp_path / "host")
    found = learnt(network, GPU, format_, optimizer, tmp_path / "device")
    assert [name for name in wanted if not torch.equal(wanted[name], found[name])] == []
    assert all(bool(one.isfinite().all()) for one in found.values())
    of_host, of_device = ((tmp_path / name).read_bytes() for name in ("host", "device"))
    assert of_host == of_device


def test_what_is_inferred_is_what_the_host_infers():
    found = []
    for device in (CPU, GPU):
        engine, _ = engine_of(RESNET, device, FP16, None)
        found.append([one.cpu() for one in engine.evaluate().values()])
    assert all(map(torch.equal, *found))


def test_a_step_whose_gradients_are_too_large_is_skipped():
    engine, _ = engine_of(RESNET, GPU, FP16, TrainingConfig())
    engine.arithmetic.loss_scale.value = 2.0**40
    before = [one.detach().cpu() for one in engine.stages[0].parameters()]
    engine.step()
    assert engine.arithmetic.skipped_steps == 1
    assert engine.arithmetic.scale == 2.0**39 > START
    assert all(
        torch.equal(one, other.detach().cpu())
        for one, other in zip(before, engine.stages[0].parameters(), strict=True)
    )


def test_int8_is_for_the_host():
    with pytest.raises(ValueError, match="in int8 a model can infer, on a CPU"):
        engine_of(RESNET, GPU, INT8, None)


class Channel:
    """The events of a case."""

    def __init__(self):
        self.told = []

    def send(self, kind, **fields):
        self.told.append((kind, fields))

    def of(self, kind):
        return [fields for one, fields in self.told if one == kind]


def run_case(monkeypatch, device, **given):
    world = World(MPI.COMM_SELF, 0, 1, 0, "here", tuple(os.sched_getaffinity(0)), 1)
    channel = Channel()
    name = "model.resnet"
    given = {"scheme": "sequential", "depth": 11, "batch_size": 4, "parts": 2} | given
    baseline = given.pop("baseline", None)
    more = {"baseline": baseline, "baseline_max": 60.0}
    params = BENCHMARKS[name].complete(given) | more
    context = Context(world, channel, case="a", benchmark=name, params=params)
    monkeypatch.setattr(case, "choose_device", lambda *_, **__: device)
    kept = StageRunner._run

    def takes_time(runner, inputs):
        LATE.work(0.001)
        return kept(runner, inputs)

    monkeypatch.setattr(StageRunner, "_run", takes_time)
    benchmark.run(context)
    return channel


@pytest.mark.parametrize(
    "params",
    [
        pytest.param(
            {"num_classes": 5, "iterations": 2, "warmup": 1, "optimizer": "adam", "num_epochs": 2},
            marks=pytest.mark.long,
        ),
        pytest.param({"iterations": 1, "warmup": 0, "precision": "fp16"}, marks=pytest.mark.long),
        {"iterations": 1, "warmup": 0, "precision": "bf16", "enable_evaluation": True},
    ],
    ids=str,
)
def test_a_whole_case(monkeypatch, params, tmp_path):
    found = []
    for device in (CPU, GPU):
        more = {} if "enable_evaluation" in params else {"checkpoint": str(tmp_path / str(device))}
        found.append(run_case(monkeypatch, device, **params, **more))
    host, gpu = ({one["name"]: one for one in channel.of("check")} for channel in found)
    both = params.get("precision", "fp32") == "fp32"
    assert gpu.keys() - host.keys() == ({"products"} if both else set())
    assert all(one["passed"] for one in gpu.values()), gpu
    for name in host.keys() - {"operators"}:  # the bound of a GPU also allows Winograd's algorithm
        assert host[name]["max_abs_error"] == gpu[name]["max_abs_error"], name
    losses = [
        [one["value"] for one in channel.of("metric") if one["name"] == "loss"] for channel in found
    ]
    assert losses[0] == losses[1]
    assert LATE.device_wide == 0


def test_one_process_begins_when_the_model_of_all_is_gone(monkeypatch):
    engines = weakref.WeakSet()
    alive = []

    class Noted(Engine):
        def __init__(self, *words, **more):
            engines.add(self)
            super().__init__(*words, **more)

    def give_back():
        gc.collect()
        alive.append(len(engines))

    monkeypatch.setattr(benchmark, "Engine", Noted)
    monkeypatch.setattr(benchmark, "release_memory", give_back)
    more = {"validate": "off", "baseline": True, "iterations": 1, "warmup": 0}
    channel = run_case(monkeypatch, CPU, **more)
    assert alive == [0]
    assert "sequential_ms" in {one["name"] for one in channel.of("metric")}


def test_rank_0_gives_back_what_it_computed_alone(monkeypatch):
    given = []
    monkeypatch.setattr(validate, "release_memory", lambda: given.append("reference"))
    run_case(monkeypatch, CPU, iterations=1, warmup=0)
    assert given == ["reference"]
