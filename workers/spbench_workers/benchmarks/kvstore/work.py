"""The estimate of the work of pushes and pulls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spbench_core.catalog.typed_params import require_value
from spbench_core.catalog.work import Work

if TYPE_CHECKING:
    from spbench_workers.benchmarks.kvstore.entry import PushPullParams


def store_work(params: PushPullParams, np: int) -> Work:
    """Return the work of ``kvstore.push_pull``: rounds, and results summed again by each rank."""
    from spbench_core.networks.registry import list_parameters, sum_megabytes

    arrays = list_parameters(
        params.network,
        params.num_layers,
        tuple(require_value(params.image_shape)),
        params.num_classes,
    )
    size = sum_megabytes(arrays) * 1e6 * np
    rounds = 1.0 + params.num_batches
    return Work(
        bytes=2.0 * size * (rounds + 15.0),
        messages=4.0 * rounds * len(arrays),
        calls=20.0 * np * len(arrays),
        seconds=0.1,
        memory=2.0 * size,
    )
