"""An epoch's steps, and its loss and accuracy over all of them."""

from types import SimpleNamespace

import pytest
import torch

from spbench_parallel.pipeline import stage_runner
from spbench_parallel.pipeline.stage_runner import RunningSum
from spbench_workers.benchmarks.model.epochs import count_epoch_steps
from unit.parallel.test_phases import engine_of
from unit.typed_params import typed


def test_a_running_sum_of_many_values_keeps_few_of_them(monkeypatch):
    monkeypatch.setattr(stage_runner, "MAX_PENDING_VALUES", 4)
    total = RunningSum()
    assert total.read() == 0
    for number in range(23):
        total.add([torch.tensor(0.5), torch.tensor(number)])
        assert len(total._values) <= 6
    assert total.read() == 23 * 0.5 + 253
    total.clear()
    assert total.read() == 0


def test_an_epoch_s_means_are_over_its_steps_alone():
    engine, images = engine_of("cpu", "fp32")
    engine.step()
    engine.begin_epoch()
    said = []
    for step in range(1, 4):
        images.set_step(step)
        engine.step()
        said.append((engine.loss(), engine.accuracy()))
    losses, accuracies = zip(*said, strict=True)
    loss, accuracy = engine.epoch_means(3)
    assert loss == pytest.approx(sum(losses) / 3, rel=1e-12)
    assert accuracy == pytest.approx(sum(accuracies) / 3, rel=1e-12)
    assert losses[-1] != pytest.approx(loss, rel=1e-3)


@pytest.mark.parametrize(
    ("iterations", "count", "steps", "told"),
    [
        (10, None, 10, []),
        (None, 50_000, 1562, [("epoch", "1562 steps", "a pass over the 50000 images takes 1562")]),
        (
            7,
            50_000,
            7,
            [("epoch", "7 steps", "iterations; a pass over the 50000 images takes 1562")],
        ),
    ],
)
def test_an_epoch_is_a_pass_over_the_data_set_unless_iterations_says_otherwise(
    iterations, count, steps, told
):
    said = []
    context = SimpleNamespace(
        read_params=lambda cls: typed(cls, {"iterations": iterations}),
        world=SimpleNamespace(rank=0),
        choice=lambda *words: said.append(words),
    )
    assert count_epoch_steps(context, SimpleNamespace(count=count), 32) == steps
    assert said == told
