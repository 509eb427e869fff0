"""Compares operators over tiles with torch on the whole image, case by case.

    mpirun -n 6 python -m mpi4py serve_spatial.py PORT

Rank 0 reads one case per line from the loopback port, and writes a line with the results of the
ranks of the case: the largest error of each tensor, and the error that rounding allows; or
``{"exception": ...}``. The ranks end when the connection ends.

Rounding: the error of a sum of n products, in any order, is at most n * eps * (sum of their
magnitudes). A linear operator computes these sums from the magnitudes of its data, and n from ones.
If all data are whole numbers and no sum of magnitudes exceeds 2 / eps, no value is rounded, and
no error is allowed.
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

# Narrow bands, so that the inner outputs of small images have several bands too.
interior_split.MIN_BAND = 3
DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
PIXELWISE = {"relu": nn.ReLU, "tanh": nn.Tanh}
CLOSE = 1e-10
"""The largest error of chains in fp64, relative to the largest value."""


@dataclass(frozen=True)
class OperatorPair:
    """An operator on the whole image, in fp64, and over tiles.

    Attributes:
        reference: The operator on the whole image.
        tiled: The operator over tiles.
        sums: Computes the sums of the magnitudes.
        counts: Computes the number of terms of these sums.
        roundings: Returns the allowed error of each tensor in eps, without ``sums``.
        copies: Names of tensors that are never rounded.
        divides: Whether the sums are divided by the number of pixels.
    """

    reference: nn.Module
    tiled: nn.Module
    sums: nn.Module | None = None
    counts: nn.Module | None = None
    roundings: Callable | None = None
    copies: frozenset = frozenset()
    divides: bool = False


def build_conv(case, tiling, dtype):
    arguments = get_arguments(case)
    gradient_dtype = DTYPES.get(arguments.pop("gradient_dtype", None))
    tiled = SpatialConv2d(
        case["channels"], tiling=tiling, gradient_dtype=gradient_dtype, dtype=dtype, **arguments
    )
    reference = fill(case, nn.Conv2d(case["channels"], dtype=torch.float64, **arguments), dtype)
    return OperatorPair(
        reference,
        tiled,
        change_parameters(reference, torch.abs),
        change_parameters(reference, torch.ones_like),
    )


def build_max_pool(case, tiling, dtype):
    arguments = get_arguments(case)
    sums = make_window_sums(case["channels"], **arguments)
    reference = nn.MaxPool2d(**arguments)
    tiled = SpatialMaxPool2d(tiling=tiling, **arguments)
    return OperatorPair(reference, tiled, sums, sums, copies=frozenset({"output"}))


def build_avg_pool(case, tiling, dtype):
    arguments = get_arguments(case)
    reference = nn.AvgPool2d(**arguments)
    tiled = SpatialAvgPool2d(tiling=tiling, **arguments)
    arguments.pop("count_include_pad")
    return OperatorPair(
        reference, tiled, reference, make_window_sums(case["channels"], **arguments), divides=True
    )


def build_global_pool(case, tiling, dtype):
    reference = nn.AdaptiveAvgPool2d(1)
    tiled = SpatialGlobalAvgPool2d(tiling=tiling)
    counts = make_window_sums(case["channels"], (case["height"], case["width"]))
    return OperatorPair(reference, tiled, reference, counts, divides=True)


def build_batch_norm(case, tiling, dtype):
    arguments = get_arguments(case)
    training = arguments.pop("training")
    reference = nn.BatchNorm2d(case["channels"], dtype=torch.float64, **arguments)
    tiled = SpatialBatchNorm2d(case["channels"], tiling=tiling, dtype=dtype, **arguments)
    reference = fill(case, reference, dtype).train(training)
    return OperatorPair(
        reference,
        tiled.train(training),
        roundings=lambda *data: bound_norm_errors(reference, *data),
    )


def build_redistribute(case, tiling, dtype):
    target = make_partition(case | case["arguments"], tiling.comm.size)
    redistribution = Redistribute(tiling, target)
    return OperatorPair(nn.Identity(), redistribution, copies=frozenset({"output", "input"}))


def build_chain(case, tiling, dtype):
    """Return a chain of layers; its tiles have fused blocks with wide halos."""
    reference_layers = []
    sums = []
    tiled = []
    layers = case["arguments"]["layers"]
    layer_tiling = tiling
    channels = case["channels"]
    for kind, arguments in layers:
        layer_case = {**case, "channels": channels, "arguments": arguments}
        if kind in PIXELWISE:
            reference_layers.append(PIXELWISE[kind]())
            sums.append(nn.Identity())
            tiled.append(PIXELWISE[kind]())
            continue
        pair = OPERATORS[kind](layer_case, layer_tiling, dtype)
        reference_layers.append(pair.reference)
        sums.append(pair.sums)
        tiled.append(pair.tiled)
        channels = arguments.get("out_channels", channels)
        layer_tiling = pair.tiled.output
    chain = fuse(tiled, tiling, case["arguments"]["fused_layers"])
    reference = nn.Sequential(*reference_layers)
    if case["dtype"] == "fp64":
        return OperatorPair(reference, chain, roundings=bound_by_magnitude)
    linear = nn.Sequential(*sums)
    return OperatorPair(reference, chain, linear, change_parameters(linear, torch.ones_like))


OPERATORS = {
    "conv": build_conv,
    "max_pool": build_max_pool,
    "avg_pool": build_avg_pool,
    "global_pool": build_global_pool,
    "batch_norm": build_batch_norm,
    "redistribute": build_redistribute,
    "fused": build_chain,
}


def get_arguments(case):
    """Return the arguments with tuples, which JSON does not have."""
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in case["arguments"].items()
    }


def fill(case, module, dtype):
    """Fill parameters and running statistics with exactly representable values."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(draw_values(case, parameter.shape, dtype))
        for name, buffer in module.named_buffers():
            if name.startswith("running"):
                buffer.copy_((torch.rand(buffer.shape) + 0.5).to(dtype))
    return module


def change_parameters(module, change):
    """Return a copy of the module with changed parameters."""
    other = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.copy_(change(parameter))
    return other


def make_window_sums(channels, kernel_size, stride=None, padding=0, dilation=1):
    """Return a convolution that sums over the windows of a pooling."""
    stride = kernel_size if stride is None else stride
    arguments = {"groups": channels, "bias": False, "dtype": torch.float64}
    sums = nn.Conv2d(channels, channels, kernel_size, stride, padding, dilation, **arguments)
    return change_parameters(sums, torch.ones_like).requires_grad_(False)


def bound_norm_errors(module, image, gradient, expected):
    """Return the bounds of a normalisation in eps.

    Dividing by the deviation enlarges the error of pixels. The errors of the terms of a mean are
    independent, so their sum grows like the root of their number.
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


def bound_by_magnitude(image, gradient, expected):
    """Return bounds in eps from the largest value, because sums may cancel out."""
    eps = torch.finfo(torch.float64).eps
    largest = max(float(value.abs().max()) for value in expected.values())
    return dict.fromkeys(expected, CLOSE / eps * max(1.0, largest))


def draw_values(case, shape, dtype):
    """Return values that are equal on all ranks, which have the same seed."""
    if case["data"] == "whole":
        return torch.randint(-1, 2, tuple(shape)).to(dtype)
    return torch.randn(tuple(shape)).to(dtype)


def make_partition(case, size):
    grid = Grid(*case["grid"])
    return Partition.from_grid(grid, case["height"], case["width"], ranks=case["owners"], size=size)


def extract_box(tensor, box, layout="view"):
    part = tensor[:, :, slice(*box.rows), slice(*box.cols)]
    if layout == "view":
        return part
    formats = {"plain": torch.contiguous_format, "channels_last": torch.channels_last}
    return part.clone(memory_format=formats[layout])


def compute_derivatives(module, image, gradient, input_gradient=True):
    """Return output, gradients of image and parameters, and running statistics."""
    module.zero_grad(set_to_none=True)
    image = image.detach().requires_grad_(input_gradient)
    output = module(image)
    if output.requires_grad:
        output.backward(gradient)
    results = {"output": output.detach()}
    if input_gradient:
        results["input"] = image.grad
    results |= {name: value.grad for name, value in module.named_parameters()}
    running = {name: value for name, value in module.named_buffers() if "running" in name}
    return results | copy.deepcopy(running)


def compute_allowed_errors(case, pair, image, gradient, expected):
    """Return the largest error that rounding allows, by tensor."""
    eps = torch.finfo(DTYPES[case["dtype"]]).eps
    gradient_dtype = DTYPES.get(case["arguments"].get("gradient_dtype"), torch.float64)
    gradient_eps = max(eps, torch.finfo(gradient_dtype).eps)
    if pair.roundings is not None:
        roundings = pair.roundings(image, gradient, expected)
        return {name: eps * roundings[name] for name in expected}
    if pair.sums is None:
        return dict.fromkeys(expected, 0.0)
    sums = compute_derivatives(pair.sums, image.abs(), gradient.abs())
    counts = compute_derivatives(pair.counts, torch.ones_like(image), torch.ones_like(gradient))
    allowed = {}
    for name in expected:
        term_eps = eps if name in ("output", "input") else gradient_eps
        largest = float(sums[name].max())
        is_exact_sum = case["data"] == "whole" and not pair.divides and largest <= 2.0 / term_eps
        exact = is_exact_sum or name in pair.copies
        # Dividing by the number of pixels takes some more steps.
        steps = float(counts[name].max()) + (3 if pair.divides else 0)
        allowed[name] = 0.0 if exact else term_eps * steps * largest
    return allowed


def compute_largest_error(tensor, expected, dtype):
    if tensor is None or tensor.shape != expected.shape or tensor.dtype != dtype:
        raise AssertionError(f"got {tensor}, expected {expected.shape} of {dtype}")
    return float((tensor.double() - expected).abs().max()) if expected.numel() else 0.0


def run_round(case, pair, tiling, data):
    """Return the errors and the allowed errors of this rank, by tensor."""
    image, gradient = (tensor.double() for tensor in data)
    dtype = data[0].dtype
    expected = compute_derivatives(pair.reference, image, gradient, case["input_gradient"])
    allowed = compute_allowed_errors(case, pair, image, gradient, expected)
    output_box = pair.tiled.output.tile if hasattr(pair.tiled, "output") else Box((0, 1), (0, 1))
    results = compute_derivatives(
        pair.tiled,
        extract_box(data[0], tiling.tile, case["layout"]),
        extract_box(data[1], output_box),
        case["input_gradient"],
    )
    expected["output"] = extract_box(expected["output"], output_box)
    if "input" in expected:
        expected["input"] = extract_box(expected["input"], tiling.tile)
    return {
        name: (compute_largest_error(results[name], expected[name], dtype), allowed[name])
        for name in expected
    }


def find_gather(module, tile):
    if isinstance(module, Redistribute):
        return module.gathers.get(tile)
    execution = module.tiled.executions[module.tiled.tiling.overlap]
    return execution.gathers.get(tile)


def change_received_value(case, pair, tiling, dtype):
    """Change one value that the last receiving rank receives."""
    shape = (case["batch"], case["channels"], case["height"], case["width"])
    tile = extract_box(torch.zeros(shape, dtype=dtype), tiling.tile, case["layout"])
    gather = find_gather(pair.tiled, tile)
    direction = case["change"]["direction"]
    list_pieces = (
        gather.transfers.list_received if direction == "forward" else gather.transfers.list_sent
    )
    victim = max(rank for rank in range(tiling.comm.size) if list_pieces(rank))
    exchange = getattr(gather, direction)
    original_wait = exchange.wait

    def wait():
        original_wait()
        piece = exchange.received[-1]
        piece[0, 0, piece.shape[2] // 2, piece.shape[3] // 2] *= float(case["change"]["factor"])

    if tiling.comm.rank == victim:
        exchange.wait = wait


def free(module):
    for resource in (module, getattr(module, "tiled", None)):
        if hasattr(resource, "free"):
            resource.free()


def compare(case, comm):
    """Return the largest errors of all rounds, which have different data."""
    dtype = DTYPES[case["dtype"]]
    tiling = Tiling(comm, make_partition(case, comm.size), case["transport"], case["overlap"])
    torch.manual_seed(case["seed"])
    pair = OPERATORS[case["operator"]](case, tiling, dtype)
    pair.tiled.load_state_dict(pair.reference.state_dict())
    if case["change"]:
        change_received_value(case, pair, tiling, dtype)
    shape = (case["batch"], case["channels"], case["height"], case["width"])
    with torch.no_grad():
        probe = copy.deepcopy(pair.reference).eval()(torch.zeros(shape, dtype=torch.float64))
    rounds = {}
    for _ in range(case["rounds"]):
        image, gradient = (draw_values(case, size, dtype) for size in (shape, probe.shape))
        if case["gradient"] == "ones":
            gradient = gradient.new_ones(1).expand(gradient.shape)
        for name, (error, allowed) in run_round(case, pair, tiling, (image, gradient)).items():
            rounds.setdefault(name, []).append({"error": error, "allowed": allowed})
    free(pair.tiled)
    return {name: max(errors, key=compute_severity) for name, errors in rounds.items()}


def compute_severity(row):
    """Return the excess of an error, which is infinite for NaN."""
    return row["error"] - row["allowed"] if row["error"] == row["error"] else float("inf")


def check_adjoint(case, comm):
    """Return <Gx, y> and <x, G'y> over all ranks, and whether Gx is correct."""
    partition = make_partition(case, comm.size)
    torch.manual_seed(case["seed"])
    shape = (case["batch"], case["channels"], case["height"], case["width"])
    image = torch.randint(-9, 10, shape).to(DTYPES[case["dtype"]])
    parts = [[Box(*map(tuple, box)) for box in boxes] for boxes in case["parts"]]
    needed = tuple(
        compute_hull([box.intersect(partition.image) for box in boxes]) for boxes in parts
    )
    tile = extract_box(image, partition.tile(comm.rank), case["layout"]).detach().requires_grad_()
    own_boxes = parts[comm.rank]
    table = Transfers(partition, needed)
    gather = Gather(comm, table, own_boxes, sample=tile, transport=case["transport"])
    torch.manual_seed(case["seed"] + comm.rank)
    flight = gather.start(tile)
    gathered = [flight.tile, *gather.finish(flight)]
    weights = [torch.randint(-9, 10, part.shape).to(part.dtype) for part in gathered]
    # The last part is not used, so it has no gradient.
    used = list(zip(gathered, weights, strict=True))[: max(1, len(own_boxes))]
    sum((part * weight).sum() for part, weight in used).backward()
    product = sum(float((part * weight).sum()) for part, weight in used)
    expected = [extract_padded_box(image, box) for box in own_boxes]
    same = all(map(torch.equal, gathered[1:], expected))
    result = {
        "same": same,
        "forward": comm.allreduce(product),
        "backward": comm.allreduce(float((tile * tile.grad).sum())),
    }
    gather.free()
    return result


class Block(bytearray):
    """Memory that allows weak references."""


def check_tile_is_freed(case, comm):
    """Return whether the memory of a tile is kept after its last use."""
    dtype = DTYPES[case["dtype"]]
    tiling = Tiling(comm, make_partition(case, comm.size), case["transport"], case["overlap"])
    tiled = build_conv(case, tiling, dtype).tiled
    shape = (case["batch"], case["channels"], *tiling.tile.shape)
    block = Block(math.prod(shape) * dtype.itemsize)
    reference = weakref.ref(block)
    tile = torch.frombuffer(block, dtype=dtype).view(shape).requires_grad_()
    del block
    tiled(tile).sum().backward()
    del tile
    result = {"kept": reference() is not None}
    free(tiled)
    return result


def compute_hull(boxes):
    """Return the smallest box that contains all boxes."""
    boxes = [box for box in boxes if not box.empty]
    if not boxes:
        return EMPTY_BOX
    tops, bottoms = zip(*(box.rows for box in boxes), strict=True)
    lefts, rights = zip(*(box.cols for box in boxes), strict=True)
    return Box((min(tops), max(bottoms)), (min(lefts), max(rights)))


def extract_padded_box(image, box):
    """Return a box of the image, with zeros beyond the border."""
    padding = 20
    padded = nn.functional.pad(image, (padding,) * 4)
    rows, cols = ((first + padding, last + padding) for first, last in (box.rows, box.cols))
    return extract_box(padded, Box(rows, cols))


def run_case(world, case):
    """Return the result of this rank, or None if it takes no part."""
    ranks = case["ranks"]
    member = world.rank in ranks
    comm = world.Split(0 if member else MPI.UNDEFINED, ranks.index(world.rank) if member else 0)
    if not member:
        return None
    try:
        special = {"adjoint": check_adjoint, "kept": check_tile_is_freed}
        return special.get(case["operator"], compare)(case, comm)
    except Exception as error:
        # Print at once: if the other ranks wait for this one, no result is ever written.
        traceback.print_exc()
        sys.stderr.flush()
        return {"exception": f"{type(error).__name__}: {error}"}
    finally:
        comm.Free()


def serve(world, lines):
    """Run cases until there are no more lines."""
    while True:
        line = lines.readline() if world.rank == 0 else None
        sleep_at_barrier(world)
        case = world.bcast(json.loads(line) if line else None)
        if case is None:
            return
        result = run_case(world, case)
        sleep_at_barrier(world)
        results = world.gather(result)
        if world.rank == 0:
            member_results = [results[rank] for rank in case["ranks"]]
            lines.write(json.dumps(member_results) + "\n")
            lines.flush()


def main():
    torch.set_num_threads(1)
    # NNPACK convolves with Fourier transforms, which round whole numbers too.
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
