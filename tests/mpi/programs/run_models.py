"""Runs networks over tiles on real ranks, and compares them with the whole image.

    mpirun -n 4 python -m mpi4py run_models.py CASES.json RESULTS.json

A case is ``{"model", "config", "image", "grid", "fault"}``. A result has an entry per rank: the
largest error by kind of tensor, relative to the largest value of the kind, or ``{"exception":
...}``. All is in float64. A fault is a faulty builder.
"""

import copy
import json
from functools import cache
from typing import Any

import torch
from torch import nn

from spbench_core.layout.tiles import Grid, parse_pair
from spbench_parallel.models.build import build_stage, free_operators
from spbench_parallel.models.builders import DenseBuilder, SpatialBuilder
from spbench_parallel.spatial.tiling import Tiling
from support.rank_cases import make_on_first_rank, return_exceptions, run_each_case
from support.trained_models import (
    CLASSES,
    compute_largest_error,
    copy_gradients,
    cut_tile,
    make_network,
    read_statistics,
)

BATCH = 2
OPTIONS: dict[str, Any] = {"seed": 1, "dtype": torch.float64}


class TileNormBuilder(SpatialBuilder):
    """Builds normalisations with the statistics of one tile only."""

    def norm(self, data):
        return nn.BatchNorm2d(data.channels)


class NoHaloBuilder(SpatialBuilder):
    """Builds convolutions that read zeros instead of the pixels of a neighbour."""

    def conv(self, conv, data):
        halves = conv.stride != 1 or conv.shifted
        return super().conv(conv, data) if halves else DenseBuilder().conv(conv, data)


class OwnGradientBuilder(SpatialBuilder):
    """Builds convolutions without a sum of weight gradients over tiles."""

    def conv(self, conv, data):
        module: Any = super().conv(conv, data)
        module.shared_parameters = lambda: (module.weight, *([module.bias] if conv.bias else []))
        return module


BUILDERS = {
    None: SpatialBuilder,
    "tile-batchnorm": TileNormBuilder,
    "no-halo": NoHaloBuilder,
    "own-gradients": OwnGradientBuilder,
}


def run_step(stage, image, gradient):
    """Return the results of a training step, and of an evaluation after it."""
    data = image.clone().requires_grad_()
    output = stage.train()(data)
    output.backward(gradient)
    results = {
        "output": {"output": output.detach()},
        "input": {"input": data.grad},
        "gradients": copy_gradients(stage),
        "statistics": read_statistics(stage),
    }
    with torch.no_grad():
        results["evaluation"] = {"output": stage.eval()(image)}
    return results


@cache
def run_whole_network(case_text):
    """Return initial state, batch, gradients of the logits and results of a network."""
    case = json.loads(case_text)
    network = make_network(case)
    stage = build_stage(network, 0, len(network.layers), DenseBuilder(), **OPTIONS)
    initial = copy.deepcopy(stage.state_dict())
    generator = torch.Generator().manual_seed(OPTIONS["seed"])
    shapes = (BATCH, *network.image.shape), (BATCH, CLASSES)
    batch = [torch.randn(shape, dtype=OPTIONS["dtype"], generator=generator) for shape in shapes]
    return initial, batch, run_step(stage, *batch)


def compare(case, comm):
    network = make_network(case)
    tiling = Tiling.of_grid(
        comm, Grid(*parse_pair(case["grid"])), *case["image"], transport="packed"
    )
    builder = BUILDERS[case["fault"]](tiling)
    tiled = build_stage(network, 0, len(network.layers), builder, **OPTIONS)
    case_text = json.dumps({key: case[key] for key in ("model", "config", "image")})
    reference = make_on_first_rank(comm, lambda: run_whole_network(case_text))
    initial, (image, gradient), expected = reference
    state = tiled.state_dict()
    if list(state) != list(initial) or not all(torch.equal(state[k], initial[k]) for k in state):
        raise AssertionError("the initial states differ")
    expected = expected | {"input": {"input": cut_tile(expected["input"]["input"], tiling.tile)}}
    results = run_step(tiled, cut_tile(image, tiling.tile).contiguous(), gradient)
    free_operators(tiled)
    for kind, reference in expected.items():
        if results[kind].keys() != reference.keys():
            raise AssertionError(f"{sorted(results[kind])} are not {sorted(reference)}")
    return {
        kind: compute_largest_error(results[kind], reference)
        for kind, reference in expected.items()
    }


def main():
    torch.set_num_threads(1)
    run_each_case(lambda case: Grid(*parse_pair(case["grid"])).size, return_exceptions(compare))


main()
