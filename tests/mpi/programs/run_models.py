"""Runs networks over tiles on real ranks, and says how far they are from the whole image.

    mpirun -n 4 python -m mpi4py run_models.py CASES.json RESULTS.json

A case is ``{"model", "config", "image", "grid", "fault"}``. A result has one answer a rank: by kind
of tensor the largest error, over the largest value of its kind; or ``{"exception": ...}``. All is
in float64. A fault is a builder that does something wrong.
"""

import copy
import json
from functools import cache
from typing import Any

import torch
from torch import nn

from spbench_core.layout.tiles import Grid, parse_pair
from spbench_parallel.models.build import build_stage, free
from spbench_parallel.models.builders import DenseBuilder, SpatialBuilder
from spbench_parallel.spatial.tiling import Tiling
from support.rank_cases import make_on_first_rank, return_exceptions, run_each_case
from support.trained_models import (
    CLASSES,
    copy_gradients,
    cut_tile,
    largest_error,
    make_network,
    read_statistics,
)

BATCH = 2
WORDS: dict[str, Any] = {"seed": 1, "dtype": torch.float64}


class TileNormBuilder(SpatialBuilder):
    """Statistics of each tile alone."""

    def norm(self, data):
        return nn.BatchNorm2d(data.channels)


class NoHaloBuilder(SpatialBuilder):
    """Convolutions that see zeros where a neighbour's pixels should be."""

    def conv(self, conv, data):
        halves = conv.stride != 1 or conv.shifted
        return super().conv(conv, data) if halves else DenseBuilder().conv(conv, data)


class OwnGradientBuilder(SpatialBuilder):
    """Gradients of the weights that are this tile's share only."""

    def conv(self, conv, data):
        made: Any = super().conv(conv, data)
        made.shared_parameters = lambda: (made.weight, *([made.bias] if conv.bias else []))
        return made


KITS = {
    None: SpatialBuilder,
    "tile-batchnorm": TileNormBuilder,
    "no-halo": NoHaloBuilder,
    "own-gradients": OwnGradientBuilder,
}


def results_of(stage, image, gradient):
    """Results of a step of training, and of an evaluation after it."""
    data = image.clone().requires_grad_()
    output = stage.train()(data)
    output.backward(gradient)
    found = {
        "output": {"output": output.detach()},
        "input": {"input": data.grad},
        "gradients": copy_gradients(stage),
        "statistics": read_statistics(stage),
    }
    with torch.no_grad():
        found["evaluation"] = {"output": stage.eval()(image)}
    return found


@cache
def whole(words):
    """The initial state of a network, one batch with the gradients of its logits, and results."""
    case = json.loads(words)
    network = make_network(case)
    stage = build_stage(network, 0, len(network.layers), DenseBuilder(), **WORDS)
    initial = copy.deepcopy(stage.state_dict())
    generator = torch.Generator().manual_seed(WORDS["seed"])
    shapes = (BATCH, *network.image.shape), (BATCH, CLASSES)
    batch = [torch.randn(shape, dtype=WORDS["dtype"], generator=generator) for shape in shapes]
    return initial, batch, results_of(stage, *batch)


def compare(case, comm):
    network = make_network(case)
    tiling = Tiling.of_grid(
        comm, Grid(*parse_pair(case["grid"])), *case["image"], transport="packed"
    )
    builder = KITS[case["fault"]](tiling)
    tiled = build_stage(network, 0, len(network.layers), builder, **WORDS)
    words = {key: case[key] for key in ("model", "config", "image")}
    made = make_on_first_rank(comm, lambda: whole(json.dumps(words)))
    initial, (image, gradient), expected = made
    state = tiled.state_dict()
    if list(state) != list(initial) or not all(torch.equal(state[k], initial[k]) for k in state):
        raise AssertionError("the initial states differ")
    expected = expected | {"input": {"input": cut_tile(expected["input"]["input"], tiling.tile)}}
    found = results_of(tiled, cut_tile(image, tiling.tile).contiguous(), gradient)
    free(tiled)
    for kind, wanted in expected.items():
        if found[kind].keys() != wanted.keys():
            raise AssertionError(f"{sorted(found[kind])} are not {sorted(wanted)}")
    return {kind: largest_error(found[kind], wanted) for kind, wanted in expected.items()}


def main():
    torch.set_num_threads(1)
    run_each_case(lambda case: Grid(*parse_pair(case["grid"])).size, return_exceptions(compare))


main()
