"""The phases of a step on a GPU, measured on a stand-in that does its work late.

The clock of the stand-in counts only the work that a test puts on it. Operations of torch take no
time.
"""

import pytest
import torch
from torch import nn
from torch.autograd import Function

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid
from spbench_parallel.pipeline import phases as phases_module
from spbench_parallel.pipeline.phases import PHASES, Phases, StreamPhases, create_phases
from spbench_parallel.plan import ModelPlan
from spbench_parallel.spatial import comm_stats
from spbench_parallel.spatial.comm_stats import COMM_STATS
from spbench_parallel.spatial.norm import SpatialBatchNorm2d
from spbench_parallel.spatial.tiling import Tiling
from spbench_workers.benchmarks.model.steps import describe_gradient_sum
from standins.late_device import install
from standins.twin import Twin
from support.single_rank_engine import RESNET, make_engine

LATE = install()
DEVICE = torch.device("late")
LAYER = 0.02
MESSAGE = 0.001
"""Seconds of a layer's work, and of a message to another rank."""
WORK = ("forward", "exchange", "backward", "allreduce", "optimizer")


@pytest.fixture(autouse=True)
def _same_numbers(late):
    torch.manual_seed(0)
    yield
    assert COMM_STATS.timer is None


class Work(Function):
    """Keep the device busy, forward and backward."""

    @staticmethod
    def forward(ctx, pixels):
        LATE.work(LAYER)
        return pixels.view_as(pixels)

    @staticmethod
    def backward(ctx, gradient):
        LATE.work(LAYER)
        return gradient


class Layer(nn.Module):
    def forward(self, pixels):
        return Work.apply(pixels)


def make_two_layers():
    """Return two layers of work with an exchange between them, forward and backward."""
    tiling = Tiling.of_grid(Twin(on_message=lambda: LATE.host(MESSAGE)), Grid(1, 2), 4, 8)
    norm = SpatialBatchNorm2d(3, tiling=tiling).to(DEVICE)
    return nn.Sequential(Layer(), norm, Layer())


def make_pixels():
    return torch.randn(2, 3, 4, 4).to(DEVICE).requires_grad_()


def idle_seconds(phases):
    """Return the seconds of the steps that belong to no phase."""
    return phases.total - sum(phases.seconds.values())


def run_step(phases, module, images):
    with phases.measure_step():
        with phases.measure("wait"):
            LATE.host(0.004)
        with phases.measure("forward"):
            output = module(images)
        with phases.measure("backward"):
            output.sum().backward()
        with phases.measure("allreduce"):
            LATE.work(0.003)
        LATE.host(0.001)
        with phases.measure("optimizer"):
            LATE.work(0.002)


def test_work_counts_in_the_phase_that_launched_it():
    images = make_pixels()
    module = make_two_layers()
    phases = create_phases(DEVICE)
    LATE.reset()
    run_step(phases, module, images)
    expected = {
        "forward": 2 * LAYER,
        "backward": 2 * LAYER,
        "exchange": 2 * MESSAGE,
        "allreduce": 0.003,
        "optimizer": 0.002,
        "wait": 0.004,
        "join": 0.0,
    }
    assert phases.seconds == pytest.approx(expected)
    assert phases.total == pytest.approx(LATE.now)


def test_phases_add_up_to_the_step():
    """Work of the host between phases is hidden behind the work that it launched."""
    images = make_pixels()
    module = make_two_layers()
    phases = create_phases(DEVICE)
    for _ in range(3):
        start = LATE.now
        before = dict(phases.seconds)
        total = phases.total
        run_step(phases, module, images)
        seconds = {name: phases.seconds[name] - before[name] for name in PHASES}
        assert phases.total - total == pytest.approx(LATE.now - start)
        assert sum(seconds.values()) == pytest.approx(LATE.now - start)
        assert sum(seconds[name] for name in WORK) == pytest.approx(LATE.now - start, rel=0.05)
    assert idle_seconds(phases) == pytest.approx(0.0)


def test_work_outside_of_phases_is_idle():
    phases = create_phases(DEVICE)
    with phases.measure_step():
        with phases.measure("forward"):
            LATE.work(LAYER)
        LATE.work(0.005)
        with phases.measure("forward"):
            LATE.work(LAYER)
    assert idle_seconds(phases) == pytest.approx(0.005)
    assert phases.seconds["forward"] == pytest.approx(2 * LAYER)


def test_a_wait_costs_the_idle_time_of_the_device():
    phases = create_phases(DEVICE)
    with phases.measure_step():
        with phases.measure("forward"):
            LATE.work(LAYER)
        with phases.measure("wait"):
            LATE.host(LAYER / 2)
        assert phases.seconds == dict.fromkeys(PHASES, 0.0)
        with phases.measure("wait"):
            LATE.host(LAYER)
        with phases.measure("backward"):
            LATE.work(LAYER)
    assert phases.seconds["wait"] == pytest.approx(LAYER / 2)
    work = [phases.seconds[name] for name in ("forward", "backward")]
    assert work == pytest.approx([LAYER, LAYER])
    assert phases.total == pytest.approx(2.5 * LAYER)


def test_sums_over_tiles_count_in_the_enclosing_phase():
    phases = create_phases(DEVICE)
    with phases.measure_step(), phases.measure("allreduce"), COMM_STATS.time_exchange():
        LATE.work(LAYER)
    assert phases.seconds["allreduce"] == pytest.approx(LAYER)
    assert phases.seconds["exchange"] == 0.0


def test_a_step_waits_once_for_the_device():
    phases = create_phases(DEVICE)
    LATE.reset()
    with phases.measure_step():
        for phase in PHASES:
            with phases.measure(phase):
                LATE.work(0.001)
        assert (LATE.waits, LATE.now) == (0, 0.0)
    assert (LATE.waits, LATE.device_wide) == (1, 0)
    assert pytest.approx(0.007) == LATE.now


def test_an_error_in_a_step_removes_the_timer():
    phases = create_phases(DEVICE)
    with (
        pytest.raises(RuntimeError, match="lost"),
        phases.measure_step(),
        phases.measure("forward"),
    ):
        raise RuntimeError("the device is lost")
    assert COMM_STATS.timer is None
    with phases.measure_step(), phases.measure("backward"):
        LATE.work(LAYER)
    assert (phases.seconds["backward"], phases.total) == pytest.approx((LAYER, LAYER))


def test_the_host_is_timed_by_the_clock_of_the_host(monkeypatch):
    for module in (phases_module, comm_stats):
        monkeypatch.setattr(module, "perf_counter", LATE.clock)
    phases = create_phases(torch.device("cpu"))
    assert type(phases) is Phases
    with phases.measure_step():
        with phases.measure("forward"):
            LATE.host(LAYER)
            with COMM_STATS.time_exchange():
                LATE.host(MESSAGE)
        with phases.measure("allreduce"), COMM_STATS.time_exchange():
            LATE.host(MESSAGE)
    assert phases.seconds["forward"] == pytest.approx(LAYER)
    sums = [phases.seconds[name] for name in ("exchange", "allreduce")]
    assert sums == pytest.approx([MESSAGE, MESSAGE])
    assert phases.total == pytest.approx(LAYER + 2 * MESSAGE)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "waits"), [("fp32", 1), ("bf16", 1), ("fp16", 2)])
def test_a_training_step_waits_once_and_in_fp16_twice(precision, waits):
    engine, images = make_engine("late", precision)
    for step in range(3):
        images.set_step(step)
        LATE.waits = 0
        engine.step()
        assert (LATE.waits, LATE.device_wide) == (waits, 0)


def test_an_inference_step_waits_once():
    engine, images = make_engine("late", "fp32", trains=False)
    for step in range(3):
        images.set_step(step)
        LATE.waits = 0
        engine.evaluate()
        assert (LATE.waits, LATE.device_wide) == (1, 0)


def test_all_work_of_a_step_belongs_to_a_phase():
    """Its images too, which take time to create or read."""
    engine, images = make_engine("late", "fp32")
    load_pixels = images.pixels

    def load_slowly(*args):
        LATE.work(LAYER)
        return load_pixels(*args)

    images.pixels = load_slowly
    (stage,) = engine.stages
    for module in stage.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda *_: LATE.work(MESSAGE))
    engine.step()
    convolutions = sum(isinstance(module, nn.Conv2d) for module in stage.modules())
    assert engine.phases.seconds["forward"] == pytest.approx(3 * (LAYER + convolutions * MESSAGE))
    assert idle_seconds(engine.phases) == pytest.approx(0.0)
    assert engine.phases.total == pytest.approx(LATE.now)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_trains_to_the_same_result_as_the_host(precision):
    results = []
    for device in ("cpu", "late"):
        engine, images = make_engine(device, precision)
        for step in range(3):
            images.set_step(step)
            engine.step()
            results.append((engine.loss(), engine.accuracy()))
        results.append([parameter.detach().cpu() for parameter in engine.stages[0].parameters()])
    assert results[:3] == results[4:7]
    torch.testing.assert_close(results[3], results[7], rtol=0.0, atol=0.0)


def test_adds_losses_in_the_order_of_micro_batches():
    """The shares are added one by one in double precision.

    The last digits are compared.
    """
    engine, _ = make_engine("cpu", "fp32")
    engine.step()
    (runner,) = engine.runners
    total = 0.0
    for share in runner._loss_shares:
        total += float(share)
    assert engine.loss() == runner.loss == total
    assert len(runner._loss_shares) == 3
    assert 0 <= runner.correct <= 6


def test_describes_gradient_sums_only_of_gpus(messages):
    def make_plan(device, backend="mpi", master_comm=False, **layout):
        return ModelPlan(
            RESNET,
            build_layout(2, **layout),
            (4, len(RESNET.layers) - 4),
            split_batch(4, 2, mirrored=layout.get("mirrored", False)),
            device=torch.device(device),
            backend=backend,
            master_comm=master_comm,
        )

    assert describe_gradient_sum(make_plan("cpu", replicas=2)) == ""
    assert describe_gradient_sum(make_plan("late")) == ""
    for layout in ({"replicas": 2}, {"members": 2}, {"mirrored": True}):
        messages.check(describe_gradient_sum(make_plan("late", **layout)))
        assert describe_gradient_sum(make_plan("late", "nccl", **layout)) == "NCCL"
    assert describe_gradient_sum(make_plan("late", master_comm=True, mirrored=True)) == ""
    assert type(create_phases(DEVICE)) is StreamPhases
