"""Steps of an epoch, and its mean loss and accuracy."""

from types import SimpleNamespace

import pytest
import torch

from spbench_parallel.losses import RunningSum
from spbench_workers.benchmarks.model.epochs import count_epoch_steps
from support.single_rank_engine import make_engine
from support.typed_params import fill_params


def test_a_running_sum_keeps_few_values():
    total = RunningSum(max_pending=4)
    assert total.read() == 0
    for number in range(23):
        total.add([torch.tensor(0.5), torch.tensor(number)])
        assert len(total._values) <= 6
    assert total.read() == 23 * 0.5 + 253
    total.clear()
    assert total.read() == 0


def test_means_of_an_epoch_cover_only_its_steps():
    engine, images = make_engine("cpu", "fp32")
    engine.step()
    engine.begin_epoch()
    results = []
    for step in range(1, 4):
        images.set_step(step)
        engine.step()
        results.append((engine.loss(), engine.accuracy()))
    losses, accuracies = zip(*results, strict=True)
    loss, accuracy = engine.epoch_means(3)
    assert loss == pytest.approx(sum(losses) / 3, rel=1e-12)
    assert accuracy == pytest.approx(sum(accuracies) / 3, rel=1e-12)
    assert losses[-1] != pytest.approx(loss, rel=1e-3)


@pytest.mark.parametrize(
    ("iterations", "count", "steps", "expected"),
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
def test_an_epoch_is_a_pass_unless_iterations_is_set(iterations, count, steps, expected):
    choices = []
    context = SimpleNamespace(
        read_params=lambda cls: fill_params(cls, {"iterations": iterations}),
        world=SimpleNamespace(rank=0),
        choice=lambda *choice: choices.append(choice),
    )
    assert count_epoch_steps(context, SimpleNamespace(count=count), 32) == steps
    assert choices == expected
