"""The phases of a step on a GPU, told by a device that does its work late.

The stand-in's clock counts what is put on it, and nothing else: what an operation of torch's takes
is none of it.
"""

import pytest
import torch
from mpi4py import MPI
from torch import nn
from torch.autograd import Function

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid
from spbench_core.models.registry import make_model
from spbench_parallel.engine import Engine
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.pipeline import phases as phases_module
from spbench_parallel.pipeline.phases import PHASES, Phases, StreamPhases, create_phases
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import PRECISIONS
from spbench_parallel.spatial import comm_stats
from spbench_parallel.spatial.comm_stats import COMM_STATS
from spbench_parallel.spatial.norm import SpatialBatchNorm2d
from spbench_parallel.spatial.tiling import Tiling
from spbench_workers.benchmarks.model.steps import describe_gradient_sum
from standins.late_device import install
from standins.twin import Twin

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
    """Keeps the device busy, there and back."""

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


def two_layers():
    """Two layers of work with an exchange between them, there and back."""
    tiling = Tiling.of_grid(Twin(sends=lambda: LATE.host(MESSAGE)), Grid(1, 2), 4, 8)
    norm = SpatialBatchNorm2d(3, tiling=tiling).to(DEVICE)
    return nn.Sequential(Layer(), norm, Layer())


def pixels():
    return torch.randn(2, 3, 4, 4).to(DEVICE).requires_grad_()


def idle(phases):
    """Seconds of the steps that belong to no phase."""
    return phases.total - sum(phases.seconds.values())


def learn(phases, module, images):
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


def test_work_counts_where_it_was_asked_for_and_not_where_it_is_waited_for():
    images = pixels()
    module = two_layers()
    phases = create_phases(DEVICE)
    LATE.reset()
    learn(phases, module, images)
    wanted = {
        "forward": 2 * LAYER,
        "backward": 2 * LAYER,
        "exchange": 2 * MESSAGE,
        "allreduce": 0.003,
        "optimizer": 0.002,
        "wait": 0.004,
        "join": 0.0,
    }
    assert phases.seconds == pytest.approx(wanted)
    assert phases.total == pytest.approx(LATE.now)


def test_phases_add_up_to_the_step():
    """Work of the host between them, meanwhile, is hidden behind the work that it asked for."""
    images = pixels()
    module = two_layers()
    phases = create_phases(DEVICE)
    for _ in range(3):
        start = LATE.now
        before = dict(phases.seconds)
        total = phases.total
        learn(phases, module, images)
        took = {name: phases.seconds[name] - before[name] for name in PHASES}
        assert phases.total - total == pytest.approx(LATE.now - start)
        assert sum(took.values()) == pytest.approx(LATE.now - start)
        assert sum(took[name] for name in WORK) == pytest.approx(LATE.now - start, rel=0.05)
    assert idle(phases) == pytest.approx(0.0)


def test_what_belongs_to_no_phase_is_idle():
    phases = create_phases(DEVICE)
    with phases.measure_step():
        with phases.measure("forward"):
            LATE.work(LAYER)
        LATE.work(0.005)
        with phases.measure("forward"):
            LATE.work(LAYER)
    assert idle(phases) == pytest.approx(0.005)
    assert phases.seconds["forward"] == pytest.approx(2 * LAYER)


def test_a_wait_for_other_ranks_costs_what_the_device_has_nothing_to_do():
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


def test_sums_over_tiles_in_other_phases_are_a_part_of_those():
    phases = create_phases(DEVICE)
    with phases.measure_step(), phases.measure("allreduce"), COMM_STATS.time_exchange():
        LATE.work(LAYER)
    assert phases.seconds["allreduce"] == pytest.approx(LAYER)
    assert phases.seconds["exchange"] == 0.0


def test_a_step_waits_for_the_device_once_at_its_end():
    phases = create_phases(DEVICE)
    LATE.reset()
    with phases.measure_step():
        for phase in PHASES:
            with phases.measure(phase):
                LATE.work(0.001)
        assert (LATE.waits, LATE.now) == (0, 0.0)
    assert (LATE.waits, LATE.device_wide) == (1, 0)
    assert pytest.approx(0.007) == LATE.now


def test_an_error_in_a_step_leaves_no_watch_behind():
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


def test_the_host_is_timed_by_its_own_clock(monkeypatch):
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


RESNET = make_model("resnet", image_size=(32, 32), num_classes=5, version=1, depth=8, width=4)


def engine_of(device, precision, learns=True):
    plan = ModelPlan(
        RESNET,
        build_layout(1),
        (len(RESNET.layers),),
        split_batch(6, 3),
        device=torch.device(device),
        precision=PRECISIONS[precision],
    )
    images = SyntheticImages(RESNET.image, 5, seed=1, dtype=plan.dtype, device=plan.device)
    engine = Engine(MPI.COMM_SELF, plan, images, TrainingConfig("adam") if learns else None)
    if engine.arithmetic.loss_scale is not None:
        engine.arithmetic.loss_scale.value = 256.0
    return engine, images


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "waits"), [("fp32", 1), ("bf16", 1), ("fp16", 2)])
def test_a_step_that_learns_waits_once_and_in_fp16_for_its_scale(precision, waits):
    engine, images = engine_of("late", precision)
    for step in range(3):
        images.set_step(step)
        LATE.waits = 0
        engine.step()
        assert (LATE.waits, LATE.device_wide) == (waits, 0)


def test_a_step_that_infers_waits_once():
    engine, images = engine_of("late", "fp32", learns=False)
    for step in range(3):
        images.set_step(step)
        LATE.waits = 0
        engine.evaluate()
        assert (LATE.waits, LATE.device_wide) == (1, 0)


def test_all_that_a_step_does_belongs_to_a_phase():
    """Its images too, which take a while to make or to read."""
    engine, images = engine_of("late", "fp32")
    right = images.pixels

    def slow(*words):
        LATE.work(LAYER)
        return right(*words)

    images.pixels = slow
    (stage,) = engine.stages
    for module in stage.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda *_: LATE.work(MESSAGE))
    engine.step()
    convolutions = sum(isinstance(one, nn.Conv2d) for one in stage.modules())
    assert engine.phases.seconds["forward"] == pytest.approx(3 * (LAYER + convolutions * MESSAGE))
    assert idle(engine.phases) == pytest.approx(0.0)
    assert engine.phases.total == pytest.approx(LATE.now)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_what_it_learns_is_what_the_host_learns(precision):
    found = []
    for device in ("cpu", "late"):
        engine, images = engine_of(device, precision)
        for step in range(3):
            images.set_step(step)
            engine.step()
            found.append((engine.loss(), engine.accuracy()))
        found.append([one.detach().cpu() for one in engine.stages[0].parameters()])
    assert found[:3] == found[4:7]
    torch.testing.assert_close(found[3], found[7], rtol=0.0, atol=0.0)


def test_the_loss_is_added_up_as_the_micro_batches_come():
    """Single shares in double precision, one after the other: the last digits are compared."""
    engine, _ = engine_of("cpu", "fp32")
    engine.step()
    (runner,) = engine.runners
    total = 0.0
    for share in runner._losses:
        total += float(share)
    assert engine.loss() == runner.loss == total
    assert len(runner._losses) == 3
    assert 0 <= runner.correct <= 6


def test_how_gradients_are_summed_is_said_of_gpus_alone():
    def plan_of(device, backend="mpi", master_comm=False, **layout):
        return ModelPlan(
            RESNET,
            build_layout(2, **layout),
            (4, len(RESNET.layers) - 4),
            split_batch(4, 2, mirrored=layout.get("mirrored", False)),
            device=torch.device(device),
            backend=backend,
            master_comm=master_comm,
        )

    assert describe_gradient_sum(plan_of("cpu", replicas=2)) == ""
    assert describe_gradient_sum(plan_of("late")) == ""
    for layout in ({"replicas": 2}, {"members": 2}, {"mirrored": True}):
        assert describe_gradient_sum(plan_of("late", **layout)) == "pinned memory and MPI"
        assert describe_gradient_sum(plan_of("late", "nccl", **layout)) == "NCCL"
    assert describe_gradient_sum(plan_of("late", master_comm=True, mirrored=True)) == ""
    assert type(create_phases(DEVICE)) is StreamPhases
