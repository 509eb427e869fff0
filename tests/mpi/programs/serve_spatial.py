"""Holds operators over tiles against torch on the whole image, case by case, as a test asks.

    mpirun -n 6 python -m mpi4py serve_spatial.py PORT

Rank 0 reads a case a line from the loopback port and writes a line of answers, one for each rank of
the case: by the name of a tensor its largest error and the error that rounding explains; or
``{"exception": ...}``. The ranks end when the connection does.

Rounding: a sum of n products, in whatever order, is wrong by n * eps * (sum of their magnitudes) at
most. Those sums are what a linear operator makes of the magnitudes of its data, and n is what it
makes of ones. Where all data are whole numbers and no sum of magnitudes is larger than 2 / eps,
nothing is rounded, and no error is allowed.
"""

import copy
import json
import math
import socket
import sys
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.partition import EMPTY_BOX, Partition, Transfers
from spbench_core.layout.tiles import Box, Grid
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.spatial import interior_split
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.fused.blocks import fuse
from spbench_parallel.spatial.gather import Gather
from spbench_parallel.spatial.norm import SpatialBatchNorm2d
from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
from spbench_parallel.spatial.redistribute import Redistribute
from spbench_parallel.spatial.replicated import SpatialGlobalAvgPool2d
from spbench_parallel.spatial.tiling import Tiling

# So narrow that the inner outputs of small images come in several bands too.
interior_split.MIN_BAND = 3
DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
PIXELWISE = {"relu": nn.ReLU, "tanh": nn.Tanh}
CLOSE = 1e-10
"""The largest error of chains in fp64, as a share of the largest value."""


@dataclass(frozen=True)
class Trial:
    """An operator on the whole image, in fp64, and over tiles.

    ``sums`` makes the sums of magnitudes and ``counts`` their terms. An operator without them says
    in ``roundings`` by how many eps each tensor may be wrong. ``copies`` are never rounded.
    """

    alone: nn.Module
    tiled: nn.Module
    sums: nn.Module | None = None
    counts: nn.Module | None = None
    roundings: Callable | None = None
    copies: frozenset = frozenset()
    divides: bool = False


def conv(case, tiling, dtype):
    words = words_of(case)
    wire = DTYPES.get(words.pop("gradient_dtype", None))
    tiled = SpatialConv2d(
        case["channels"], tiling=tiling, gradient_dtype=wire, dtype=dtype, **words
    )
    alone = filled(case, nn.Conv2d(case["channels"], dtype=torch.float64, **words), dtype)
    return Trial(alone, tiled, changed(alone, torch.abs), changed(alone, torch.ones_like))


def max_pool(case, tiling, dtype):
    words = words_of(case)
    sums = window_sums(case["channels"], **words)
    alone = nn.MaxPool2d(**words)
    tiled = SpatialMaxPool2d(tiling=tiling, **words)
    return Trial(alone, tiled, sums, sums, copies=frozenset({"output"}))


def avg_pool(case, tiling, dtype):
    words = words_of(case)
    alone = nn.AvgPool2d(**words)
    tiled = SpatialAvgPool2d(tiling=tiling, **words)
    words.pop("count_include_pad")
    return Trial(alone, tiled, alone, window_sums(case["channels"], **words), divides=True)


def global_pool(case, tiling, dtype):
    alone = nn.AdaptiveAvgPool2d(1)
    tiled = SpatialGlobalAvgPool2d(tiling=tiling)
    counts = window_sums(case["channels"], (case["height"], case["width"]))
    return Trial(alone, tiled, alone, counts, divides=True)


def batch_norm(case, tiling, dtype):
    words = words_of(case)
    training = words.pop("training")
    alone = nn.BatchNorm2d(case["channels"], dtype=torch.float64, **words)
    tiled = SpatialBatchNorm2d(case["channels"], tiling=tiling, dtype=dtype, **words)
    alone = filled(case, alone, dtype).train(training)
    return Trial(alone, tiled.train(training), roundings=lambda *data: of_norm(alone, *data))


def redistribute(case, tiling, dtype):
    target = partition_of(case | case["arguments"], tiling.comm.size)
    moved = Redistribute(tiling, target)
    return Trial(nn.Identity(), moved, copies=frozenset({"output", "input"}))


def fused(case, tiling, dtype):
    """A chain of layers, once with halos of their own and once in blocks with wide ones."""
    alone = []
    sums = []
    tiled = []
    layers = case["arguments"]["layers"]
    at = tiling
    channels = case["channels"]
    for kind, words in layers:
        one = {**case, "channels": channels, "arguments": words}
        if kind in PIXELWISE:
            alone.append(PIXELWISE[kind]())
            sums.append(nn.Identity())
            tiled.append(PIXELWISE[kind]())
            continue
        trial = OPERATORS[kind](one, at, dtype)
        alone.append(trial.alone)
        sums.append(trial.sums)
        tiled.append(trial.tiled)
        channels, at = words.get("out_channels", channels), trial.tiled.output
    chain = fuse(tiled, tiling, case["arguments"]["fused_layers"])
    whole = nn.Sequential(*alone)
    if case["dtype"] == "fp64":
        return Trial(whole, chain, roundings=of_magnitude)
    linear = nn.Sequential(*sums)
    return Trial(whole, chain, linear, changed(linear, torch.ones_like))


OPERATORS = {
    "conv": conv,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "global_pool": global_pool,
    "batch_norm": batch_norm,
    "redistribute": redistribute,
    "fused": fused,
}


def words_of(case):
    """Arguments as torch wants them: JSON knows no tuples."""
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in case["arguments"].items()
    }


def filled(case, module, dtype):
    """The module with parameters, and running statistics, that the dtype holds exactly."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(random_values(case, parameter.shape, dtype))
        for name, buffer in module.named_buffers():
            if name.startswith("running"):
                buffer.copy_((torch.rand(buffer.shape) + 0.5).to(dtype))
    return module


def changed(module, change):
    """The module with other parameters."""
    other = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.copy_(change(parameter))
    return other


def window_sums(channels, kernel_size, stride=None, padding=0, dilation=1):
    """Sums over the windows of a pooling."""
    stride = kernel_size if stride is None else stride
    words = {"groups": channels, "bias": False, "dtype": torch.float64}
    sums = nn.Conv2d(channels, channels, kernel_size, stride, padding, dilation, **words)
    return changed(sums, torch.ones_like).requires_grad_(False)


def of_norm(module, image, gradient, expected):
    """Pixels are wrong by eps times their size; dividing by the deviation enlarges that.

    The errors of a mean's terms point anywhere: together they grow as the root of their number.
    """
    axes = (0, 2, 3)
    count = image.numel() // image.shape[1]
    terms = 8 + count**0.5
    if module.training or module.running_mean is None:
        mean = image.mean(axes)
        variance = image.var(axes, correction=0)
    else:
        mean = module.running_mean
        variance = module.running_var
    inverse = (variance + module.eps).rsqrt()
    normal = float(((image.abs().amax(axes) + mean.abs()) * inverse).max()) + 1.0
    weight = float(module.weight.abs().max()) if module.affine else 1.0
    largest = float(gradient.abs().max())
    return {
        "output": terms * (weight * normal**2 + float(expected["output"].abs().max())),
        "input": terms * weight * float(inverse.max()) * largest * normal**3,
        "weight": terms * count * largest * normal**2,
        "bias": terms * count * largest,
        "running_mean": terms * float(image.abs().max() + 2.0),
        "running_var": terms * float(image.abs().max() + 2.0) ** 2,
    }


def of_magnitude(image, gradient, expected):
    """A sum may cancel out: what it may be wrong by follows from the largest value of all."""
    eps = torch.finfo(torch.float64).eps
    largest = max(float(value.abs().max()) for value in expected.values())
    return dict.fromkeys(expected, CLOSE / eps * max(1.0, largest))


def random_values(case, shape, dtype):
    """Equal on all ranks, which have the same seed."""
    if case["data"] == "whole":
        return torch.randint(-1, 2, tuple(shape)).to(dtype)
    return torch.randn(tuple(shape)).to(dtype)


def partition_of(case, size):
    grid = Grid(*case["grid"])
    return Partition.from_grid(grid, case["height"], case["width"], ranks=case["owners"], size=size)


def cut(tensor, box, layout="view"):
    part = tensor[:, :, slice(*box.rows), slice(*box.cols)]
    if layout == "view":
        return part
    formats = {"plain": torch.contiguous_format, "channels_last": torch.channels_last}
    return part.clone(memory_format=formats[layout])


def derivatives(module, image, gradient, input_gradient=True):
    """The output, the gradients of all that it depends on, and the running statistics."""
    module.zero_grad(set_to_none=True)
    image = image.detach().requires_grad_(input_gradient)
    output = module(image)
    if output.requires_grad:
        output.backward(gradient)
    found = {"output": output.detach()}
    if input_gradient:
        found["input"] = image.grad
    found |= {name: value.grad for name, value in module.named_parameters()}
    running = {name: value for name, value in module.named_buffers() if "running" in name}
    return found | copy.deepcopy(running)


def rounding(case, trial, image, gradient, expected):
    """By the name of a tensor, the largest error that rounding explains."""
    eps = torch.finfo(DTYPES[case["dtype"]]).eps
    wire = DTYPES.get(case["arguments"].get("gradient_dtype"), torch.float64)
    coarse = max(eps, torch.finfo(wire).eps)
    if trial.roundings is not None:
        roundings = trial.roundings(image, gradient, expected)
        return {name: eps * roundings[name] for name in expected}
    if trial.sums is None:
        return dict.fromkeys(expected, 0.0)
    sums = derivatives(trial.sums, image.abs(), gradient.abs())
    counts = derivatives(trial.counts, torch.ones_like(image), torch.ones_like(gradient))
    allowed = {}
    for name in expected:
        of_one = eps if name in ("output", "input") else coarse
        largest = float(sums[name].max())
        whole = case["data"] == "whole" and not trial.divides and largest <= 2.0 / of_one
        exact = whole or name in trial.copies
        # Dividing by the number of pixels takes a few steps more.
        steps = float(counts[name].max()) + (3 if trial.divides else 0)
        allowed[name] = 0.0 if exact else of_one * steps * largest
    return allowed


def largest_error(found, expected, dtype):
    if found is None or found.shape != expected.shape or found.dtype != dtype:
        raise AssertionError(f"found {found}, expected {expected.shape} of {dtype}")
    return float((found.double() - expected).abs().max()) if expected.numel() else 0.0


def one_round(case, trial, tiling, data):
    """Errors and allowed errors of this rank, by the name of a tensor."""
    image, gradient = (tensor.double() for tensor in data)
    dtype = data[0].dtype
    expected = derivatives(trial.alone, image, gradient, case["input_gradient"])
    allowed = rounding(case, trial, image, gradient, expected)
    outputs = trial.tiled.output.tile if hasattr(trial.tiled, "output") else Box((0, 1), (0, 1))
    found = derivatives(
        trial.tiled,
        cut(data[0], tiling.tile, case["layout"]),
        cut(data[1], outputs),
        case["input_gradient"],
    )
    expected["output"] = cut(expected["output"], outputs)
    if "input" in expected:
        expected["input"] = cut(expected["input"], tiling.tile)
    return {
        name: (largest_error(found[name], expected[name], dtype), allowed[name])
        for name in expected
    }


def gather_of(module, tile):
    if isinstance(module, Redistribute):
        return module.gathers.get(tile)
    way = module.tiled.executions[module.tiled.tiling.overlap]
    return way.gathers.get(tile)


def spoil(case, trial, tiling, dtype):
    """Change one value that the last rank of those who receive something has received."""
    shape = (case["batch"], case["channels"], case["height"], case["width"])
    tile = cut(torch.zeros(shape, dtype=dtype), tiling.tile, case["layout"])
    gather = gather_of(trial.tiled, tile)
    way = case["spoil"]["way"]
    pieces_of = gather.table.list_received if way == "forward" else gather.table.list_sent
    victim = max(rank for rank in range(tiling.comm.size) if pieces_of(rank))
    exchange = getattr(gather, way)
    wait = exchange.wait

    def spoiled():
        wait()
        piece = exchange.received[-1]
        piece[0, 0, piece.shape[2] // 2, piece.shape[3] // 2] *= float(case["spoil"]["factor"])

    if tiling.comm.rank == victim:
        exchange.wait = spoiled


def free(module):
    for one in (module, getattr(module, "tiled", None)):
        if hasattr(one, "free"):
            one.free()


def compare(case, comm):
    """The largest errors of all rounds, each with data of its own."""
    dtype = DTYPES[case["dtype"]]
    tiling = Tiling(comm, partition_of(case, comm.size), case["transport"], case["overlap"])
    torch.manual_seed(case["seed"])
    trial = OPERATORS[case["operator"]](case, tiling, dtype)
    trial.tiled.load_state_dict(trial.alone.state_dict())
    if case["spoil"]:
        spoil(case, trial, tiling, dtype)
    shape = (case["batch"], case["channels"], case["height"], case["width"])
    with torch.no_grad():
        probe = copy.deepcopy(trial.alone).eval()(torch.zeros(shape, dtype=torch.float64))
    answer = {}
    for _ in range(case["rounds"]):
        image, gradient = (random_values(case, of, dtype) for of in (shape, probe.shape))
        if case["gradient"] == "ones":
            gradient = gradient.new_ones(1).expand(gradient.shape)
        for name, (error, allowed) in one_round(case, trial, tiling, (image, gradient)).items():
            answer.setdefault(name, []).append({"error": error, "allowed": allowed})
    free(trial.tiled)
    return {name: max(rounds, key=severity) for name, rounds in answer.items()}


def severity(one):
    """NaN is the worst."""
    return one["error"] - one["allowed"] if one["error"] == one["error"] else float("inf")


def adjoint(case, comm):
    """<Gx, y> and <x, G'y> over all ranks, in whole numbers, and whether Gx is right."""
    partition = partition_of(case, comm.size)
    torch.manual_seed(case["seed"])
    shape = (case["batch"], case["channels"], case["height"], case["width"])
    image = torch.randint(-9, 10, shape).to(DTYPES[case["dtype"]])
    parts = [[Box(*map(tuple, box)) for box in boxes] for boxes in case["parts"]]
    needed = tuple(hull([box.intersect(partition.image) for box in boxes]) for boxes in parts)
    tile = cut(image, partition.tile(comm.rank), case["layout"]).detach().requires_grad_()
    mine = parts[comm.rank]
    table = Transfers(partition, needed)
    gather = Gather(comm, table, mine, sample=tile, transport=case["transport"])
    torch.manual_seed(case["seed"] + comm.rank)
    flight = gather.start(tile)
    gathered = [flight.tile, *gather.finish(flight)]
    weights = [torch.randint(-9, 10, part.shape).to(part.dtype) for part in gathered]
    # Of the last part nothing is used: its gradient does not exist.
    used = list(zip(gathered, weights, strict=True))[: max(1, len(mine))]
    sum((part * weight).sum() for part, weight in used).backward()
    found = sum(float((part * weight).sum()) for part, weight in used)
    wanted = [beyond(image, box) for box in mine]
    same = all(map(torch.equal, gathered[1:], wanted))
    answer = {
        "same": same,
        "forward": comm.allreduce(found),
        "backward": comm.allreduce(float((tile * tile.grad).sum())),
    }
    gather.free()
    return answer


class Block(bytearray):
    """Memory whose end can be watched."""


def kept(case, comm):
    """Whether the memory of a tile is still there when nobody needs it any more."""
    dtype = DTYPES[case["dtype"]]
    tiling = Tiling(comm, partition_of(case, comm.size), case["transport"], case["overlap"])
    tiled = conv(case, tiling, dtype).tiled
    shape = (case["batch"], case["channels"], *tiling.tile.shape)
    block = Block(math.prod(shape) * dtype.itemsize)
    watched = weakref.ref(block)
    tile = torch.frombuffer(block, dtype=dtype).view(shape).requires_grad_()
    del block
    tiled(tile).sum().backward()
    del tile
    answer = {"kept": watched() is not None}
    free(tiled)
    return answer


def hull(boxes):
    """The smallest box that holds all of these."""
    boxes = [box for box in boxes if not box.empty]
    if not boxes:
        return EMPTY_BOX
    tops, bottoms = zip(*(box.rows for box in boxes), strict=True)
    lefts, rights = zip(*(box.cols for box in boxes), strict=True)
    return Box((min(tops), max(bottoms)), (min(lefts), max(rights)))


def beyond(image, box):
    """A box of the image, with zeros where it reaches beyond."""
    around = 20
    padded = nn.functional.pad(image, (around,) * 4)
    rows, cols = ((first + around, last + around) for first, last in (box.rows, box.cols))
    return cut(padded, Box(rows, cols))


def answer_of(world, case):
    """The answer of this rank; None where it takes no part."""
    ranks = case["ranks"]
    member = world.rank in ranks
    comm = world.Split(0 if member else MPI.UNDEFINED, ranks.index(world.rank) if member else 0)
    if not member:
        return None
    try:
        return {"adjoint": adjoint, "kept": kept}.get(case["operator"], compare)(case, comm)
    except Exception as error:
        # At once: where the others go on, they wait for this rank and nobody answers.
        traceback.print_exc()
        sys.stderr.flush()
        return {"exception": f"{type(error).__name__}: {error}"}
    finally:
        comm.Free()


def serve(world, lines):
    """Answer until there are no more cases."""
    while True:
        line = lines.readline() if world.rank == 0 else None
        sleep_at_barrier(world)
        case = world.bcast(json.loads(line) if line else None)
        if case is None:
            return
        answer = answer_of(world, case)
        sleep_at_barrier(world)
        answers = world.gather(answer)
        if world.rank == 0:
            said = [answers[rank] for rank in case["ranks"]]
            lines.write(json.dumps(said) + "\n")
            lines.flush()


def main():
    torch.set_num_threads(1)
    # NNPACK convolves by Fourier transforms, which round whole numbers too.
    torch.backends.nnpack.set_flags(False)
    world = MPI.COMM_WORLD
    if world.rank > 0:
        serve(world, None)
        return
    with (
        socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection,
        connection.makefile("rw") as lines,
    ):
        serve(world, lines)


main()
