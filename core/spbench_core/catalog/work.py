"""Estimates of the work of a case, from its parameters and its number of ranks.

They serve to tell seconds from hours before a run, and to see that a case needs more memory than a
machine has. Times are right within a factor of about 5. Memory is what the ranks need at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from spbench_core.catalog.parameters import Params
from spbench_core.layout.tiles import parse_pair

_ITEM_BYTES = {"fp64": 8, "int64": 8, "fp16": 2, "bf16": 2}
"""Bytes of a number by its format; 4 for the others."""


WITHOUT_TORCH = frozenset(["link", "program"])
"""Families of benchmarks whose ranks do not import torch, if their data is on the host."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one repeat of a case: timed iterations, warm-up, checks and set-up.

    Attributes:
        flops: Floating-point operations of all ranks together.
        single_flops: The same of work that one rank does while the others wait.
        bytes: Bytes that all ranks together copy or send.
        messages: Messages or barriers one after another, on the rank with the most.
        calls: Calls of torch's operators on all ranks together.
        seconds: Time that does not depend on the machine, or waiting.
        memory: Bytes that the data of all ranks together needs at least.
    """

    flops: float = 0.0
    single_flops: float = 0.0
    bytes: float = 0.0
    messages: float = 0.0
    calls: float = 0.0
    seconds: float = 0.0
    memory: float = 0.0


WorkEstimate = Callable[[Params, int], "Work | None"]
"""From complete parameters and the number of ranks to the work; None if it is unknown."""


def _item(params: Params) -> int:
    return _ITEM_BYTES.get(params.get("dtype") or "fp32", 4)


def _loops(params: Params) -> int:
    return int(params["iterations"] + params["warmup"])


# Halos


_TRIALS = 200
"""Exchanges and operators at set-up and in checks: transports and overlap are chosen by time."""


def _image_values(params: Params, channels: str = "in_channels") -> float:
    height, width = parse_pair(params["image_size"])
    return float(height * width * params[channels] * params["batch_size"])


def exchange_work(params: Params, np: int) -> Work:
    """Return the work of ``halo.exchange``."""
    image = _image_values(params) * _item(params)
    # The image is drawn, cut and compared pixel by pixel.
    return Work(
        bytes=60.0 * image,
        messages=8.0 * (_loops(params) + _TRIALS),
        memory=image,
    )


def _conv_flops(params: Params, layers: int) -> float:
    rows, cols = parse_pair(params["kernel"])
    down, right = parse_pair(params["stride"])
    outputs = _image_values(params, "out_channels") / (down * right)
    flops = 2.0 * outputs * params["in_channels"] * rows * cols * layers
    return float(flops)


def convolution_work(params: Params, np: int) -> Work:
    """Return the work of ``halo.compute`` and ``halo.fused``."""
    layers = params.get("num_layers") or 1
    flops = _conv_flops(params, layers)
    values = _image_values(params) + layers * _image_values(params, "out_channels")
    # Timed alone, with its halos there, backward, and with an exchange for each layer.
    loops = 4.0 * _loops(params) + 20.0
    return Work(
        flops=flops * loops,
        # The whole image on rank 0, as often; and checked in float64.
        single_flops=flops * loops,
        bytes=200.0 * values * _item(params),
        messages=8.0 * (loops + _TRIALS),
        calls=np * (loops + _TRIALS) * 10.0 * layers,
        memory=values * _item(params),
    )


# Links, memory and compute


def pingpong_work(params: Params, np: int) -> Work:
    """Return the work of ``link.pingpong``: pairs one after another, or in rounds."""
    pairs = np - 1 if params["pairs"] == "neighbours" else np * (np - 1) // 2
    at_once = params["at_once"] or (1 if pairs <= 28 else np // 2)
    rounds = math.ceil(pairs / max(1, at_once))
    loops = _loops(params) + 2.0
    sizes = params["sizes"]
    return Work(
        bytes=2.0 * pairs * loops * sum(sizes),
        messages=2.0 * rounds * loops * len(sizes),
        memory=2.0 * np * max(sizes),
    )


def _all_ranks_work(patterns: int, sizes: list[int], params: Params, np: int) -> Work:
    loops = _loops(params) + 2.0
    return Work(
        bytes=2.0 * np * patterns * loops * sum(sizes),
        messages=2.0 * patterns * loops * len(sizes),
        memory=2.0 * np * max(sizes),
    )


def rings_work(params: Params, np: int) -> Work:
    """Return the work of ``link.ring`` and ``link.effective``."""
    return _all_ranks_work(1 + params["rings"], params["sizes"], params, np)


def bisection_work(params: Params, np: int) -> Work:
    """Return the work of ``link.bisection``."""
    return _all_ranks_work(1 + params["cuts"], [params["size"]], params, np)


def barrier_work(params: Params, np: int) -> Work:
    """Return the work of ``link.barrier``; its check leaves ranks waiting."""
    return Work(messages=2.0 * _loops(params) * math.ceil(math.log2(max(2, np))), seconds=0.1)


def copy_work(params: Params, np: int) -> Work:
    """Return the work of ``memory.copy``."""
    size = float(params["size"]) * np
    # A copy reads and writes; the buffer is filled and compared.
    return Work(bytes=size * (2.0 * _loops(params) + 20.0), memory=2.0 * size)


def gemm_work(params: Params, np: int) -> Work:
    """Return the work of ``compute.gemm``, with a check in float64."""
    n = float(params["n"])
    flops = 2.0 * n**3
    return Work(
        flops=np * flops * (_loops(params) + 4.0),
        bytes=40.0 * np * n**2 * _item(params),
        calls=np * _loops(params),
        memory=3.0 * np * n**2 * _item(params),
    )


def conv_work(params: Params, np: int) -> Work:
    """Return the work of ``compute.conv``, with a check in float64."""
    values = _image_values(params) + _image_values(params, "out_channels")
    outputs = _image_values(params, "out_channels")
    flops = 2.0 * outputs * params["in_channels"] * params["kernel"] ** 2
    return Work(
        flops=np * flops * (_loops(params) + 4.0),
        bytes=20.0 * np * values * _item(params),
        calls=np * _loops(params),
        memory=np * values * _item(params),
    )


def burn_work(params: Params, np: int) -> Work:
    """Return the work of ``compute.burn``: its own time, and the last round and its check."""
    n = float(params["n"])
    return Work(
        flops=np * 2.0 * n**3 * (_loops(params) + 4.0),
        seconds=float(params["seconds"]),
        memory=3.0 * np * n**2 * _item(params),
    )


def noise_work(params: Params, np: int) -> Work:
    """Return the work of ``compute.noise``; ranks that share a core take it in turn."""
    quantum = params["quantum_us"] * 1e-6
    return Work(seconds=quantum * (_loops(params) + 500.0))


# Collectives and stores


_CHECKED = 60
"""Iterations' worth of set-up and checks of a collective: links are fitted, results compared."""


def collective_work(params: Params, np: int) -> Work:
    """Return the work of ``allreduce.sweep``: the algorithm, the MPI's own, and their checks."""
    size = float(params["size"] or 0)
    loops = 2.0 * _loops(params) + _CHECKED
    steps = max(1.0, math.log2(max(2, np)))
    return Work(
        bytes=4.0 * np * size * loops,
        messages=4.0 * steps * loops,
        calls=1000.0 * np,
        seconds=0.05,
        memory=3.0 * np * size,
    )


def store_work(params: Params, np: int) -> Work:
    """Return the work of ``kvstore.push_pull``: rounds, and results summed again by each rank."""
    from spbench_core.networks.registry import parameters, total_mb

    arrays = parameters(
        params["network"], params["num_layers"], tuple(params["image_shape"]), params["num_classes"]
    )
    size = total_mb(arrays) * 1e6 * np
    rounds = 1.0 + params["num_batches"]
    return Work(
        bytes=2.0 * size * (rounds + 15.0),
        messages=4.0 * rounds * len(arrays),
        calls=20.0 * np * len(arrays),
        seconds=0.1,
        memory=2.0 * size,
    )
