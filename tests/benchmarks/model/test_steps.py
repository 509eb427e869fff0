"""The images of the steps of a model."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from spbench_core.models.parts import MapShape
from spbench_parallel.pipeline.phases import PHASES
from spbench_workers.benchmarks.model.steps import Steps


class RecordedImages(list):
    """The steps of requested images."""

    def set_step(self, step):
        self.append(step)


def make_engine(trainer):
    phases = SimpleNamespace(seconds=dict.fromkeys(PHASES, 0.0), total=0.0)
    phases.measure_step = nullcontext
    phases.measure = lambda name: nullcontext()
    methods = {name: lambda: None for name in ("begin_epoch", "evaluate", "step")}
    world = SimpleNamespace(Barrier=lambda: None)
    traffic = {"bytes_sent": 0, "messages_sent": 0, "stages": ()}
    plan = SimpleNamespace(
        model=SimpleNamespace(flows=[(MapShape(10, 1, 1),)]), batches=(), dtype=torch.float32
    )
    return SimpleNamespace(
        phases=phases, world=world, trainer=trainer, plan=plan, **methods, **traffic
    )


TRAINER = SimpleNamespace(
    traffic=SimpleNamespace(sum_bytes=0, master_comm_bytes=0, sums=0, master_comm_messages=0)
)


@pytest.mark.parametrize(
    ("trainer", "expected"), [(TRAINER, [7, 8, 9, 10, 11]), (None, [7, 7, 7, 8, 9])]
)
def test_inference_starts_at_the_first_images(trainer, expected):
    images = RecordedImages()
    steps = Steps(make_engine(trainer), images, trained_before=7, warmup=2)
    for _ in range(5):
        steps.run_step()
    assert images == expected
    if trainer is None:
        assert [step for step, _ in steps.list_answers(3)] == [7, 8, 9]
