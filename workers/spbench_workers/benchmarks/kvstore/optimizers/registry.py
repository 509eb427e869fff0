"""The optimizers of a store by name."""

from __future__ import annotations

from collections.abc import Callable

from spbench_workers.benchmarks.kvstore.optimizers.adaptive import (
    AdaDelta,
    AdaGrad,
    Adam,
    Ftrl,
    RmsProp,
)
from spbench_workers.benchmarks.kvstore.optimizers.blocks import Optimizer
from spbench_workers.benchmarks.kvstore.optimizers.plain import (
    Momentum,
    Nag,
    Overwrite,
    Sgd,
    Signum,
)

OPTIMIZERS: dict[str, Callable[[int], Optimizer]] = {
    "none": Overwrite,
    "sgd": Sgd,
    "momentum": Momentum,
    "adam": Adam,
    "rmsprop": RmsProp,
    "adagrad": AdaGrad,
    "adadelta": AdaDelta,
    "nag": Nag,
    "ftrl": Ftrl,
    "signum": Signum,
}
"""``none`` is a store without an optimizer: the sum that was pushed takes the place of the
value."""


def create_optimizer(name: str, elements: int) -> Optimizer:
    """Return an optimizer for one key or shard of so many elements, its state all zeros.

    Raises:
        KeyError: There is no optimizer of that name in OPTIMIZERS.
    """
    return OPTIMIZERS[name](elements)
