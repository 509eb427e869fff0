"""Stages that some tensors go past: together they do what the user's module does."""

from itertools import combinations

import pytest
import torch

from spbench_core.layout.balance import layer_ranges
from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.models.parts import Map
from spbench_parallel.models.build import build_reference, build_stage
from spbench_parallel.models.builders import DenseBuilder
from spbench_parallel.models.imported.model import import_network
from spbench_parallel.plan import ModelPlan

pytestmark = pytest.mark.slow

IMAGE = Map(3, 32, 32)


def plans(name, stages, straight):
    model = import_network(f"own_networks:{name}", {}, IMAGE, 0)
    count = len(model.layers)
    for ends in combinations(range(1, count), stages - 1):
        edges = (0, *ends, count)
        balance = tuple(edges[at + 1] - edges[at] for at in range(stages))
        layout = build_layout(stages)
        batches = split_batch(2, 1, mirrored=False)
        yield ModelPlan(model, layout, balance, batches, straight=frozenset(straight))


def through_stages(plan, images):
    """The logits of images that go through all stages, by the plan's routes."""
    routes = plan.routes()
    held = {0: images}
    for stage, (first, last) in enumerate(layer_ranges(plan.balance)):
        part = build_stage(
            plan.stage_model(stage), first, last, DenseBuilder(), seed=0, dtype=torch.float64
        )
        inputs = tuple(held[number] for number in routes.list_inputs(stage))
        made = part(inputs[0] if len(inputs) == 1 else inputs)
        outputs = (made,) if isinstance(made, torch.Tensor) else made
        held |= zip(routes.list_outputs(stage) or (-1,), outputs, strict=True)
    return held[-1]


@pytest.mark.parametrize("name", ["Levels", "UNet", "Dense", "Attention", "Many"])
@pytest.mark.parametrize(
    ("stages", "straight"),
    [(3, [(0, 2)]), (4, [(0, 2), (0, 3), (1, 3)]), (4, [(0, 3)]), (4, [(1, 3)])],
)
def test_stages_give_what_the_users_module_gives(name, stages, straight):
    images = torch.randn(2, *IMAGE.shape, dtype=torch.float64)
    for number, plan in enumerate(plans(name, stages, straight)):
        whole = build_reference(plan.model, seed=0, device="cpu")
        assert torch.equal(through_stages(plan, images), whole(images))
        if number == 8:
            break


def test_the_outermost_skip_of_a_u_net_goes_past_the_stages_between():
    (plan,) = (one for one in plans("Levels", 3, [(0, 2)]) if one.balance == (7, 3, 4))
    (skip,) = plan.routes().skips
    assert (skip.source, skip.target) == (0, 2)
    (data,) = plan.routes().table.select_flow(skip.tensors)
    assert (data.channels, data.height) == (4, 32)
    first, _ = layer_ranges(plan.balance)[1]
    assert len(plan.stage_model(1).flows[first]) == len(plan.model.flows[first]) - 1
