"""The small batch of a compared case: the fewest images that suffice."""

import pytest

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.models.reach import find_smallest_normalised_size
from spbench_core.models.registry import make_model
from spbench_parallel.plan import ModelPlan
from spbench_workers.benchmarks.model.case import MIN_NORMALISED_VALUES, ModelCase

RESNET = {"version": 1, "depth": 8}
AMOEBANET = {"num_layers": 3, "num_filters": 16}


def make_small_batches(name, side, batch_size, parts=1, **config):
    network = make_model(name, image_size=(side, side), num_classes=5, **config)
    batches = split_batch(batch_size, parts, mirrored=False, times=1)
    plan = ModelPlan(network, build_layout(1), (len(network.layers),), batches)
    return network, [
        batch.size for batch in ModelCase(plan, None).make_small_plan(batch_size).batches
    ]


@pytest.mark.parametrize(
    ("name", "config", "side", "batch_size", "parts", "expected"),
    [
        ("resnet", RESNET, 32, 1, 1, [1]),
        ("resnet", RESNET, 32, 9, 2, [2, 1]),
        ("amoebanet", AMOEBANET, 96, 1, 1, [1]),
        # Maps of 2x2 pixels: a single image has four values, which can be nearly equal.
        ("amoebanet", AMOEBANET, 64, 1, 1, [2]),
        ("amoebanet", AMOEBANET, 64, 9, 2, [3, 2]),
    ],
)
def test_a_micro_batch_has_enough_values_to_normalise(
    name, config, side, batch_size, parts, expected
):
    network, sizes = make_small_batches(name, side, batch_size, parts, **config)
    assert sizes == expected
    assert min(sizes) * find_smallest_normalised_size(network) >= MIN_NORMALISED_VALUES
