"""Regimes of verification of a model over many ranks, and their choice for a case.

Each regime compares with a different reference, and finds errors that the others cannot:

- `Regime.FLOAT64`: a small batch, or a small proxy, against plain torch in float64 on one process.
- `Regime.BITS`: a pipeline in 16 bits against one process in the same format, bit for bit.
- `Regime.PRODUCTS`: single products of a GPU, which may multiply fp32 in two ways.
- `Regime.FULL_SIZE`: one step of a small batch at full size, operator by operator.
- `Regime.LATENCY`: the latencies of an open load against the least that arrivals and work allow.
"""

from __future__ import annotations

from enum import StrEnum

from spbench_core.catalog.parameters import Params
from spbench_core.catalog.typed_params import read_params
from spbench_core.layout.stages import ModelLayout
from spbench_workers.benchmarks.model.layout import make_layout
from spbench_workers.benchmarks.model.params import ModelParams
from spbench_workers.benchmarks.model.resolving import may_use_tf32


class Regime(StrEnum):
    """A regime of verification."""

    FLOAT64 = "float64"
    PRODUCTS = "products"
    LATENCY = "latency"
    BITS = "bits"
    FULL_SIZE = "full size"


FULL_SIZE_CHECKS = ("operators", "scales", "joints", "sums", "updates")
"""Checks at full size, for which each rank needs only its part."""
CHECKS_OF_NETWORKS = ("state",)
"""Checks of a user's network: every entry of its ``state_dict``, under every name."""
_FLOAT64 = ("output", "loss", "input_grad", "grad", "running_stats", "weights", "slope")
_CHECKS: dict[Regime, tuple[str, ...]] = {
    Regime.FLOAT64: _FLOAT64,
    Regime.PRODUCTS: ("products",),
    Regime.LATENCY: ("latency",),
    Regime.BITS: ("bits",),
    Regime.FULL_SIZE: FULL_SIZE_CHECKS,
}
CHECKS = tuple(name for names in _CHECKS.values() for name in names)
"""The checks of all regimes, in the order of lists."""
_INFERENCE_CHECKS = ("output", "products", "latency", "bits", "operators", "scales", "joints")
"""Checks that do not need gradients."""
_HALF_PRECISIONS = ("fp16", "bf16")


def select_regimes(params: Params) -> frozenset[Regime]:
    """Return the regimes of a case with complete parameters.

    `Regime.PRODUCTS` is included only if the case requests a GPU, because with device ``auto`` it
    is unknown before the ranks start whether they have one.
    """
    return _choose_regimes(read_params(ModelParams, params), make_layout(params))


def _choose_regimes(params: ModelParams, layout: ModelLayout) -> frozenset[Regime]:
    if params.validate == "off":
        return frozenset()
    regimes = {Regime.FLOAT64}
    if may_use_tf32(params.device, params.precision):
        regimes.add(Regime.PRODUCTS)
    if params.arrival == "poisson":
        regimes.add(Regime.LATENCY)
    if _adds_in_one_order(params, layout):
        regimes.add(Regime.BITS)
    if params.validate == "auto" or params.precision in _HALF_PRECISIONS:
        regimes.add(Regime.FULL_SIZE)
    return frozenset(regimes)


def select_checks(checks: tuple[str, ...], params: Params) -> tuple[str, ...]:
    """Return the checks of a case with complete parameters, in their order."""
    model = read_params(ModelParams, params)
    layout = make_layout(params)
    regimes = _choose_regimes(model, layout)
    selected = {name for regime in regimes for name in _CHECKS[regime]}
    if Regime.FLOAT64 in regimes:
        selected.update(CHECKS_OF_NETWORKS)
    if model.scheme != "sequential":
        selected.discard("slope")  # needs the whole model on one process
    if len(layout.stages) == 1:
        selected.discard("joints")
    if not _checks_operators(model, layout, imported="network" in params):
        selected -= {"operators", "scales"}
    if model.enable_evaluation:
        selected &= set(_INFERENCE_CHECKS)
    return tuple(name for name in checks if name in selected)


def _checks_operators(params: ModelParams, layout: ModelLayout, *, imported: bool) -> bool:
    """Return whether operators are recomputed at full size.

    Training in more than 16 bits: all operators that multiply, because no other check at full size
    covers their gradients. Inference: only operators over several ranks. In 16 bits: all operators;
    in a user's network only those over several ranks, because the others may round differently.
    Layers fused by ``halo_D2`` are excluded.
    """
    if params.halo_D2 and all(stage.spatial for stage in layout.stages):
        return False
    is_half_precision = params.precision in _HALF_PRECISIONS
    if is_half_precision and not imported:
        return True
    if not is_half_precision and not params.enable_evaluation:
        return True
    spans_ranks = any(stage.rank_count > 1 for stage in layout.stages) or params.sync_batchnorm
    return bool(spans_ranks) and not params.halo_D2


def _adds_in_one_order(params: ModelParams, layout: ModelLayout) -> bool:
    """Return whether one process adds in the same order, with identical bits."""
    unshared = all(stage.rank_count == 1 for stage in layout.stages) and layout.replicas == 1
    return (
        params.precision in _HALF_PRECISIONS
        and unshared
        and not layout.mirrored
        and len(layout.stages) > 1
    )
