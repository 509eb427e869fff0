"""The images that the steps of a model take."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from spbench_core.models.parts import Map
from spbench_parallel.pipeline.phases import PHASES
from spbench_workers.benchmarks.model.steps import Steps


class TurnedImages(list):
    """The steps whose images were asked for."""

    def set_step(self, step):
        self.append(step)


def engine(trainer):
    phases = SimpleNamespace(seconds=dict.fromkeys(PHASES, 0.0), total=0.0)
    phases.measure_step = nullcontext
    phases.measure = lambda name: nullcontext()
    nothing = {name: lambda: None for name in ("begin_epoch", "evaluate", "step")}
    world = SimpleNamespace(Barrier=lambda: None)
    sent = {"bytes_sent": 0, "messages_sent": 0, "stages": ()}
    plan = SimpleNamespace(
        model=SimpleNamespace(flows=[(Map(10, 1, 1),)]), batches=(), dtype=torch.float32
    )
    return SimpleNamespace(
        phases=phases, world=world, trainer=trainer, plan=plan, **nothing, **sent
    )


TRAINER = SimpleNamespace(
    traffic=SimpleNamespace(sum_bytes=0, master_comm_bytes=0, sums=0, master_comm_messages=0)
)


@pytest.mark.parametrize(
    ("trainer", "taken"), [(TRAINER, [7, 8, 9, 10, 11]), (None, [7, 7, 7, 8, 9])]
)
def test_inference_is_timed_from_the_first_images_on_and_learning_goes_on(trainer, taken):
    images = TurnedImages()
    steps = Steps(engine(trainer), images, trained_before=7, warmup=2)
    for _ in range(5):
        steps.run_step()
    assert images == taken
    if trainer is None:
        assert [step for step, _ in steps.list_answers(3)] == [7, 8, 9]
