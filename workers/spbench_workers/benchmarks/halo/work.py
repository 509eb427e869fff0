"""Estimates of the work of halo exchanges and convolutions over tiles."""

from __future__ import annotations

from spbench_core.catalog.parameters import Params
from spbench_core.catalog.work import Work, image_values, item_bytes, loops
from spbench_core.layout.tiles import parse_pair

_TRIALS = 200
"""Exchanges and operators at set-up and in checks: transports and overlap are chosen by time."""


def exchange_work(params: Params, np: int) -> Work:
    """Return the work of ``halo.exchange``."""
    image = image_values(params) * item_bytes(params)
    # The image is drawn, cut and compared pixel by pixel.
    return Work(
        bytes=60.0 * image,
        messages=8.0 * (loops(params) + _TRIALS),
        memory=image,
    )


def _conv_flops(params: Params, layers: int) -> float:
    rows, cols = parse_pair(params["kernel"])
    down, right = parse_pair(params["stride"])
    outputs = image_values(params, "out_channels") / (down * right)
    flops = 2.0 * outputs * params["in_channels"] * rows * cols * layers
    return float(flops)


def convolution_work(params: Params, np: int) -> Work:
    """Return the work of ``halo.compute`` and ``halo.fused``."""
    layers = params.get("num_layers") or 1
    flops = _conv_flops(params, layers)
    values = image_values(params) + layers * image_values(params, "out_channels")
    # Timed alone, with its halos there, backward, and with an exchange for each layer.
    repeats = 4.0 * loops(params) + 20.0
    return Work(
        flops=flops * repeats,
        # The whole image on rank 0, as often; and checked in float64.
        single_flops=flops * repeats,
        bytes=200.0 * values * item_bytes(params),
        messages=8.0 * (repeats + _TRIALS),
        calls=np * (repeats + _TRIALS) * 10.0 * layers,
        memory=values * item_bytes(params),
    )
