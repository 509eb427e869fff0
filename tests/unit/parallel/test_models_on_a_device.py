"""Model cases on a device that works late: results equal those of the host."""

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
from spbench_parallel.precision.loss_scale import INITIAL_SCALE
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
def _equal_products(monkeypatch):
    LATE.reset()
    # The stand-in has the kernels of the host, which differ for fp16.
    monkeypatch.setattr(formats, "has_fast_products", lambda *_: False)
    # A parameter of the stand-in cannot be converted to another format in place.
    previous = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    yield
    torch.__future__.set_overwrite_module_params_on_conversion(previous)
    LATE.streams.synchronize_device()


def make_engine(network, device, format_, learning):
    batches = split_batch(4, 2, mirrored=False, times=1)
    layers = (len(network.layers),)
    plan = ModelPlan(network, build_layout(1), layers, batches, device=device, precision=format_)
    images = SyntheticImages(network.image, 5, seed=3, dtype=plan.dtype, device=device)
    keeps = learning is not None
    return Engine(MPI.COMM_SELF, plan, images, learning, keeps_input_gradients=keeps), images


def train(network, device, format_, optimizer, path):
    """Return model and logits after two steps, a checkpoint, and one step from there."""
    engine, images = make_engine(network, device, format_, TrainingConfig(optimizer))
    tensors = {}
    (stage,) = engine.stages
    if engine.arithmetic.loss_scale is not None:
        engine.arithmetic.loss_scale.value = 256.0
    for step in range(2):
        images.set_step(step)
        engine.step()
        tensors[f"loss {step}"] = torch.tensor([engine.loss(), engine.accuracy()])
    checkpoint.save(path, engine, 2)
    images.set_step(2)
    engine.step()
    first_loss = engine.loss()
    assert checkpoint.load(path, engine) == 2
    engine.step()
    assert engine.loss() == first_loss
    tensors |= {name: tensor.detach() for name, tensor in stage.named_parameters()}
    tensors |= {f"gradient of {name}": tensor.grad for name, tensor in stage.named_parameters()}
    tensors |= dict(stage.named_buffers())
    tensors |= {
        f"images {key}": tensor for key, tensor in engine.runners[0].image_gradients.items()
    }
    tensors |= {f"logits {key}": tensor for key, tensor in engine.evaluate().items()}
    engine.free()
    return {name: tensor.cpu() for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("network", "format_", "optimizer"),
    [
        (RESNET, FP64, "adam"),
        (RESNET, FP32, "sgd"),
        (RESNET, FP16, "adamw"),
        (AMOEBANET, FP32, "sgd"),
    ],
    ids=lambda param: getattr(param, "name", param),
)
def test_trains_to_the_same_model_as_the_host(network, format_, optimizer, tmp_path):
    expected = train(network, CPU, format_, optimizer, tmp_path / "host")
    trained = train(network, GPU, format_, optimizer, tmp_path / "device")
    assert [name for name in expected if not torch.equal(expected[name], trained[name])] == []
    assert all(bool(tensor.isfinite().all()) for tensor in trained.values())
    host_file, device_file = ((tmp_path / name).read_bytes() for name in ("host", "device"))
    assert host_file == device_file


def test_infers_the_same_as_the_host():
    logits = []
    for device in (CPU, GPU):
        engine, _ = make_engine(RESNET, device, FP16, None)
        logits.append([tensor.cpu() for tensor in engine.evaluate().values()])
    assert all(map(torch.equal, *logits))


def test_skips_a_step_with_too_large_gradients():
    engine, _ = make_engine(RESNET, GPU, FP16, TrainingConfig())
    engine.arithmetic.loss_scale.value = 2.0**40
    before = [parameter.detach().cpu() for parameter in engine.stages[0].parameters()]
    engine.step()
    assert engine.arithmetic.skipped_steps == 1
    assert engine.arithmetic.scale == 2.0**39 > INITIAL_SCALE
    assert all(
        torch.equal(parameter, later.detach().cpu())
        for parameter, later in zip(before, engine.stages[0].parameters(), strict=True)
    )


def test_rejects_int8_on_a_device(messages):
    with messages.raises(ValueError):
        make_engine(RESNET, GPU, INT8, None)


class Channel:
    """The events of a case."""

    def __init__(self):
        self.events = []

    def send(self, kind, **fields):
        self.events.append((kind, fields))

    def select(self, kind):
        return [fields for event_kind, fields in self.events if event_kind == kind]


def run_case(monkeypatch, device, **params):
    world = World(MPI.COMM_SELF, 0, 1, 0, "here", tuple(os.sched_getaffinity(0)), 1)
    channel = Channel()
    name = "model.resnet"
    params = {"scheme": "sequential", "depth": 11, "batch_size": 4, "parts": 2} | params
    baseline = params.pop("baseline", None)
    limits = {"baseline": baseline, "baseline_max": 60.0}
    completed = BENCHMARKS[name].complete(params) | limits
    context = Context(world, channel, case="a", benchmark=name, params=completed)
    monkeypatch.setattr(case, "choose_device", lambda *_, **__: device)
    run_stage = StageRunner._run

    def run_slowly(runner, inputs):
        LATE.work(0.001)
        return run_stage(runner, inputs)

    monkeypatch.setattr(StageRunner, "_run", run_slowly)
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
def test_a_case_passes_with_the_losses_of_the_host(monkeypatch, params, tmp_path):
    channels = []
    for device in (CPU, GPU):
        more = {} if "enable_evaluation" in params else {"checkpoint": str(tmp_path / str(device))}
        channels.append(run_case(monkeypatch, device, **params, **more))
    host, gpu = (
        {event["name"]: event for event in channel.select("check")} for channel in channels
    )
    is_fp32 = params.get("precision", "fp32") == "fp32"
    assert gpu.keys() - host.keys() == ({"products"} if is_fp32 else set())
    assert all(event["passed"] for event in gpu.values()), gpu
    for name in host.keys() - {"operators"}:  # the bound of a GPU also allows Winograd's algorithm
        assert host[name]["max_abs_error"] == gpu[name]["max_abs_error"], name
    losses = [
        [event["value"] for event in channel.select("metric") if event["name"] == "loss"]
        for channel in channels
    ]
    assert losses[0] == losses[1]
    assert LATE.device_wide == 0


def test_frees_the_model_before_the_one_process_baseline(monkeypatch):
    engines = weakref.WeakSet()
    alive = []

    class TrackedEngine(Engine):
        def __init__(self, *args, **kwargs):
            engines.add(self)
            super().__init__(*args, **kwargs)

    def record_engines():
        gc.collect()
        alive.append(len(engines))

    monkeypatch.setattr(benchmark, "Engine", TrackedEngine)
    monkeypatch.setattr(benchmark, "release_memory", record_engines)
    more = {"validate": "off", "baseline": True, "iterations": 1, "warmup": 0}
    channel = run_case(monkeypatch, CPU, **more)
    assert alive == [0]
    assert "sequential_ms" in {event["name"] for event in channel.select("metric")}


def test_rank_0_releases_the_memory_of_the_reference(monkeypatch):
    released = []
    monkeypatch.setattr(validate, "release_memory", lambda: released.append("reference"))
    run_case(monkeypatch, CPU, iterations=1, warmup=0)
    assert released == ["reference"]
