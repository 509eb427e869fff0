"""Stages that tensors skip: together they compute the module of the user."""

from itertools import combinations

import pytest
import torch

from spbench_core.layout.balance import list_layer_ranges
from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.models.parts import MapShape
from spbench_parallel.models.build import build_reference, build_stage
from spbench_parallel.models.builders import DenseBuilder
from spbench_parallel.models.imported.model import import_network
from spbench_parallel.plan import ModelPlan

pytestmark = pytest.mark.slow

IMAGE = MapShape(3, 32, 32)


def list_plans(name, stages, straight):
    model = import_network(f"support.networks.own_networks:{name}", {}, IMAGE, 0)
    count = len(model.layers)
    for ends in combinations(range(1, count), stages - 1):
        edges = (0, *ends, count)
        balance = tuple(edges[index + 1] - edges[index] for index in range(stages))
        layout = build_layout(stages)
        batches = split_batch(2, 1, mirrored=False)
        yield ModelPlan(model, layout, balance, batches, straight=frozenset(straight))


def run_stages(plan, images):
    """Return the logits of images after all stages, by the routes of the plan."""
    routes = plan.routes()
    tensors = {0: images}
    for stage, (first, last) in enumerate(list_layer_ranges(plan.balance)):
        part = build_stage(
            plan.stage_model(stage), first, last, DenseBuilder(), seed=0, dtype=torch.float64
        )
        inputs = tuple(tensors[number] for number in routes.list_inputs(stage))
        output = part(inputs[0] if len(inputs) == 1 else inputs)
        outputs = (output,) if isinstance(output, torch.Tensor) else output
        tensors |= zip(routes.list_outputs(stage) or (-1,), outputs, strict=True)
    return tensors[-1]


@pytest.mark.parametrize("name", ["Levels", "UNet", "Dense", "Attention", "ManyOperators"])
@pytest.mark.parametrize(
    ("stages", "straight"),
    [(3, [(0, 2)]), (4, [(0, 2), (0, 3), (1, 3)]), (4, [(0, 3)]), (4, [(1, 3)])],
)
def test_stages_equal_the_module_of_the_user(name, stages, straight):
    images = torch.randn(2, *IMAGE.shape, dtype=torch.float64)
    for number, plan in enumerate(list_plans(name, stages, straight)):
        reference = build_reference(plan.model, seed=0, device="cpu")
        assert torch.equal(run_stages(plan, images), reference(images))
        if number == 8:
            break


def test_the_outermost_skip_of_a_unet_bypasses_stages():
    (plan,) = (
        candidate
        for candidate in list_plans("Levels", 3, [(0, 2)])
        if candidate.balance == (7, 3, 4)
    )
    (skip,) = plan.routes().skips
    assert (skip.source, skip.target) == (0, 2)
    (data,) = plan.routes().table.select_flow(skip.tensors)
    assert (data.channels, data.height) == (4, 32)
    first, _ = list_layer_ranges(plan.balance)[1]
    assert len(plan.stage_model(1).flows[first]) == len(plan.model.flows[first]) - 1
