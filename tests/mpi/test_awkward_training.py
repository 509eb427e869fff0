"""Training of networks with awkward constructs over stages, tiles and members."""

from functools import cache
from typing import Any

import pytest
import torch
from torch.nn import functional

from mpi.programs import train_own
from mpi.programs.train_awkward import OPTIONS, SIZE, STEPS, make_network
from spbench_core.layout.tiles import Box
from spbench_parallel.models.imported.stochastic import DropBatch, DropByPositionMode
from support.networks.awkward_networks import ACCEPTED
from support.runs import run_cases_on_ranks

pytestmark = pytest.mark.mpi

WHOLE = Box((0, SIZE[0]), (0, SIZE[1]))
LAYOUTS: dict[str, Any] = {
    "stages": (2, {"stages": 2, "micro_batches": 2}),
    "three stages": (3, {"stages": 3, "micro_batches": 2}),
    "zero bubble": (2, {"stages": 2, "micro_batches": 2, "schedule": "zb-h1"}),
    "recomputed": (2, {"stages": 2, "micro_batches": 2, "recompute": "block"}),
    "tiles": (2, {"grids": ["1x2"]}),
    "members": (2, {"members": 2}),
    "tiles and a stage": (5, {"grids": ["2x2"], "stages": 2, "micro_batches": 2}),
}
EVERYTHING = "stages", "tiles"
"""Layouts in which long tests train all networks."""
OFTEN = {
    *("named_ConvDropoutNormReLU", "conv_named_reshape", "inplace_ReLU", "identity_written"),
    *(
        "counter_add",
        "detached_stream",
        "sum_in_place",
        "detached_skip",
        "autograd_function",
        "images_dropped",
    ),
    *("asks_for_tensor", "subclass_MyConv", "std_by_position", "chunks_without_gradients"),
}
"""Networks in all runs of the tests, over tiles; other pairs run in long tests only."""
BY_RANK = "subclass_BatchNormAct2d", "subclass_with_forward", "norm_without_momentum"
"""Functional batch normalisations, which members reject."""


def make_params(names):
    """Return pairs of a layout and a network as parameters of tests."""
    pairs = [(layout, name) for layout in LAYOUTS for name in names]
    return [
        pytest.param(
            *pair, marks=() if pair[1] in OFTEN and pair[0] == "tiles" else pytest.mark.long
        )
        for pair in pairs
        if (pair[1] in OFTEN or pair[0] in EVERYTHING)
        and not (pair[0] == "members" and pair[1] in BY_RANK)
    ]


@pytest.fixture(scope="module")
def train_in_layout(request, tmp_path_factory):
    """Return a function that trains the selected tests' networks in a layout once."""
    tests = [test for test in request.session.items if test.path == request.path]

    @cache
    def train(layout):
        """Return the results of the ranks of a layout, and the folder of its files."""
        ranks, options = LAYOUTS[layout]
        pairs = (test.callspec.params for test in tests)
        selected = {pair["name"] for pair in pairs if pair["layout"] == layout}
        names = [name for name in ACCEPTED if name in selected]
        folder = tmp_path_factory.mktemp("awkward")
        case = {"ranks": ranks, "options": options, "networks": names, "folder": str(folder)}
        (results,) = run_cases_on_ranks(ranks, "train_awkward.py", folder, [case], seconds=480)
        return results, folder

    return train


@cache
def train_with_torch(name, parts):
    """Return the losses and the state of plain torch, with the same micro-batches."""
    network = make_network(name).double()
    optimizer = torch.optim.SGD(network.parameters(), OPTIONS["learning_rate"], momentum=0.9)
    count = OPTIONS["batch_size"] // parts
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for part in range(parts):
            images = range(part * count, (part + 1) * count)
            draws = DropBatch(0, step, tuple((0, image) for image in images))
            with DropByPositionMode(draws):
                logits = network(train_own.pixels(step, images, WHOLE).double())
            targets = train_own.classes(step, images, WHOLE)
            loss = functional.cross_entropy(logits, targets) / parts
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        losses.append(total)
    return losses, network.state_dict()


@pytest.mark.timeout(500)
@pytest.mark.parametrize(("layout", "name"), make_params(ACCEPTED))
def test_losses_and_state_equal_plain_torch(train_in_layout, layout, name):
    rank_results, folder = train_in_layout(layout)
    losses, state = train_with_torch(name, LAYOUTS[layout][1].get("micro_batches", 1))
    for result in rank_results:
        assert result[name] == pytest.approx(losses, rel=1e-9)
    saved = torch.load(folder / f"{name}.pt", weights_only=True)
    assert saved.keys() == state.keys()
    for key, expected in state.items():
        assert saved[key].dtype.is_floating_point == expected.dtype.is_floating_point
        torch.testing.assert_close(saved[key].double(), expected.double(), rtol=1e-5, atol=1e-6)
