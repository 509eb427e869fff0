"""Times of layers: on a GPU, those of its work, which add up to the pass."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from spbench_core.catalog import BENCHMARKS
from spbench_core.models.registry import make_model
from spbench_parallel import layer_times
from spbench_parallel.device import streams
from spbench_parallel.layer_times import LapTimer
from spbench_parallel.precision.formats import BF16, FP32
from spbench_workers.benchmarks.model.profile import run as benchmark
from spbench_workers.benchmarks.model.profile.layer_sequence import LayerSequence, PassMemory
from spbench_workers.benchmarks.model.profile.subject import ProfiledModel, load_subject
from standins.late_device import install
from standins.tf32 import Tf32Products
from support.typed_params import TypedParams

LATE = install()
GPU = torch.device("late")
LAUNCH = 0.001
"""Seconds on the host for a layer before it launches the layer's work."""


@pytest.fixture(autouse=True)
def _late_clock(late, monkeypatch):
    monkeypatch.setattr(streams, "perf_counter", late.clock)


class Work(torch.autograd.Function):
    """Work of some seconds forward, and of twice as many back."""

    @staticmethod
    def forward(ctx, data, seconds):
        ctx.seconds = seconds
        LATE.host(LAUNCH)
        LATE.work(seconds)
        return data * 1.0

    @staticmethod
    def backward(ctx, gradient):
        LATE.host(LAUNCH)
        LATE.work(2 * ctx.seconds)
        return gradient, None


class Layer(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, data):
        return Work.apply(data, self.seconds)


SECONDS = (0.02, 0.05, 0.01)


def make_row(layers):
    network = nn.Sequential(*layers)
    names = tuple(map(str, range(len(layers))))
    return LayerSequence(
        ProfiledModel(names, tuple(layers), network, 0, Mock(), lambda outputs: outputs[0].sum())
    )


def test_a_layer_has_the_time_of_its_work():
    images = torch.ones(2, 3, device=GPU, requires_grad=True)
    start = LATE.clock()
    times = make_row([Layer(seconds) for seconds in SECONDS]).time_pass(images)
    # The first waits for the host, which launches the others while it works.
    assert times.forward == pytest.approx([0.02 + LAUNCH, 0.05, 0.01])
    assert times.backward == pytest.approx([2 * seconds for seconds in SECONDS])
    # The second pass, with deferred weight gradients, has none of them.
    assert times.data == pytest.approx(times.backward)
    assert times.weights == [0.0] * 3
    total = sum(times.forward + times.backward) + sum(times.forward + times.data)
    assert total == pytest.approx(LATE.clock() - start)
    assert LATE.device_wide == 0


class ConvolutionTimes(TorchDispatchMode):
    """Convolutions backward that take a second for data, four for weights and bias."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution_backward.default:
            data, *weights = args[-1]
            LATE.host(1.0 * data + 4.0 * any(weights))
        return func(*args, **(kwargs or {}))


def test_times_data_and_weights_of_a_layer_separately():
    row = make_row([nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Conv2d(2, 4, 3)])
    with ConvolutionTimes():
        times = row.time_pass(torch.ones(2, 3, 8, 8))
    # The images get no gradient, so the first convolution has only weight gradients.
    assert (times.forward, times.backward) == ([0.0] * 3, [4.0, 0.0, 5.0])
    assert (times.data, times.weights) == ([0.0, 0.0, 1.0], [4.0, 0.0, 4.0])


def test_layers_add_up_to_a_host_bound_pass():
    images = torch.ones(2, 3, device=GPU, requires_grad=True)
    start = LATE.clock()
    times = make_row([Layer(0.0) for _ in SECONDS]).time_pass(images)
    assert times.forward + times.backward == pytest.approx([LAUNCH] * 6)
    assert LATE.clock() - start == pytest.approx(2 * 6 * LAUNCH)


def test_earlier_work_does_not_count():
    LATE.work(1.0)
    laps = LapTimer(GPU)
    laps.measure(lambda: LATE.work(0.25))
    laps.skip()
    laps.measure(lambda: LATE.work(0.5))
    assert laps.seconds() == pytest.approx([0.25, 0.0, 0.5])


def test_times_each_piece_separately_on_the_host():
    laps = LapTimer(torch.device("cpu"))
    laps.measure(lambda: LATE.host(0.25))
    LATE.host(7.0)
    laps.skip()
    laps.measure(lambda: LATE.host(0.5))
    assert laps.seconds() == [0.25, 0.0, 0.5]


def test_a_balance_uses_the_work_of_the_layers(monkeypatch):
    network = make_model("resnet", image_size=(32, 32), num_classes=5, version=1, depth=8, width=4)
    count = len(network.layers)
    stages = [nn.Sequential(Layer(0.01 * (index + 1))) for index in range(count)]
    monkeypatch.setattr(layer_times, "build_stage", lambda _, first, *__, **___: stages[first])
    times = layer_times.measure_layer_times(network, 1, GPU, FP32, seed=0)
    for index, time in enumerate(times):
        # The host launches a round while the previous one works: its time has no launch.
        assert time.forward_ms == pytest.approx(10.0 * (index + 1))
        assert time.backward_ms == pytest.approx(20.0 * (index + 1))


class Formats(TorchDispatchMode):
    """Note the formats of convolutions."""

    def __init__(self):
        super().__init__()
        self.convolved = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function._schema.name == "aten::convolution":
            self.convolved.update(tensor.dtype for tensor in args[:2])
        return function(*args, **(kwargs or {}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "format_"), [("cpu", torch.float32), ("late", torch.bfloat16)], ids=str
)
def test_a_balance_uses_the_format_of_the_run(device, format_):
    network = make_model("resnet", image_size=(32, 32), num_classes=5, version=1, depth=8, width=4)
    with Formats() as formats:
        layer_times.measure_layer_times(network, 1, torch.device(device), BF16, seed=0)
    assert formats.convolved == {format_}


class Context(TypedParams):
    """A case of one rank, and its checks and metrics."""

    def __init__(self, **params):
        from mpi4py import MPI

        self.entry = BENCHMARKS["model.profile"]
        self.params = self.entry.complete(params)
        self.world = SimpleNamespace(comm=MPI.COMM_SELF, rank=0, size=1)
        self.seed = 0
        self.checks = {}
        self.metrics = []

    def planted(self, fault):
        return False

    def progress(self, *args):
        pass

    def check(self, name, error, tolerance=0.0, detail=""):
        self.checks[name] = error <= tolerance

    def check_worst(self, name, worst):
        self.check(name, worst.error, worst.tolerance, worst.detail)

    def metric(self, name, value, **labels):
        self.metrics.append((name, value))


def run_profile(monkeypatch, tf32):
    context = Context(depth=11, batch_sizes=[2], warmup=0, iterations=1)
    monkeypatch.setattr(benchmark, "choose_device", lambda *_, **__: GPU)
    monkeypatch.setattr(benchmark, "measure", lambda _, body: body())
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
    # The memory of the stand-in cannot be counted.
    no_memory = PassMemory([0] * 5, [0] * 5, [0] * 5)
    monkeypatch.setattr(LayerSequence, "measure_pass_memory", lambda *_: no_memory)
    with Tf32Products():
        benchmark.run(context)
    return context


@pytest.mark.slow
def test_profiles_a_device(monkeypatch):
    context = run_profile(monkeypatch, tf32=False)
    assert context.checks == {"parameters": True, "output": True, "products": True}
    names = [name for name, _ in context.metrics]
    assert names.count("forward_ms") == names.count("backward_ms") == 5


@pytest.mark.slow
def test_a_profile_in_tf32_fails_the_check_of_products(monkeypatch):
    context = run_profile(monkeypatch, tf32=True)
    assert context.checks == {"parameters": True, "output": True, "products": False}


def test_a_row_computes_equal_output_on_host_and_device():
    params = Context(depth=11).params
    outputs = []
    for device in (torch.device("cpu"), GPU):
        subject = load_subject(params, device, seed=3)
        outputs.append(
            [
                tensor.cpu()
                for tensor in LayerSequence(subject).compute_output(subject.make_images(2))
            ]
        )
    torch.testing.assert_close(*outputs)
