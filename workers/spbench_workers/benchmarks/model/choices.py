"""Choices of a model case that its parameters leave open: balance, skips and memory format."""

from __future__ import annotations

from functools import partial

from spbench_core.catalog.typed_params import require_value
from spbench_core.layout.balance import Balance, read_balance
from spbench_core.models.parts import ModelError
from spbench_parallel.autotune.balance import (
    check_balance,
    choose_balance,
    estimate_balance,
    measure_costs,
)
from spbench_parallel.autotune.memory_format import choose_format
from spbench_parallel.autotune.skips import choose_skips
from spbench_parallel.device.formats import MemoryFormat
from spbench_parallel.errors import CannotRunError
from spbench_parallel.plan import ModelPlan
from spbench_parallel.progress import PhaseProgress
from spbench_workers.benchmarks.model.layout import ESTIMATED, MEASURED
from spbench_workers.benchmarks.model.params import ModelParams, OwnNetworkParams
from spbench_workers.context import Context


def select_balance(context: Context, plan: ModelPlan) -> Balance:
    """Return the layers of each stage: those of the parameters, or by times measured on rank 0.

    All ranks must call it.

    Raises:
        CannotRunError: The layers are not so many, or a stage has fewer pixels than tiles.
    """
    try:
        asked = require_value(context.read_params(ModelParams).balance)
        if asked == MEASURED:
            return _measured_balance(context, plan)
        balance = _given_balance(asked, plan)
        check_balance(plan, balance)
    except ModelError as error:
        raise CannotRunError(str(error)) from None
    return balance


def _measured_balance(context: Context, plan: ModelPlan) -> Balance:
    costs = None
    if context.world.rank == 0:
        progress = PhaseProgress(partial(context.progress, "balance"))
        costs = measure_costs(
            plan, progress, learns=not context.read_params(ModelParams).enable_evaluation
        )
        progress.finish()
    costs = context.world.comm.bcast(costs)
    assert costs is not None, "rank 0 has sent them"
    balance, reason = choose_balance(plan, costs)
    if context.world.rank == 0:
        context.choice("balance", ",".join(map(str, balance)), reason)
    return balance


def _given_balance(asked: str, plan: ModelPlan) -> Balance:
    """Return the balance by estimated cost, or by numbers.

    Raises:
        CannotRunError: The numbers are not those of the model's layers.
    """
    if asked == ESTIMATED:
        return estimate_balance(plan)
    try:
        return read_balance(asked, len(plan.layout.stages), len(plan.model.layers))
    except ValueError as error:
        raise CannotRunError(f"balance: {error}") from None


def select_straight_skips(context: Context, plan: ModelPlan) -> frozenset[tuple[int, int]]:
    """Return the stages between which skips go straight, and report why. All ranks must call it."""
    progress = PhaseProgress(partial(context.progress, "skips"))
    chosen = choose_skips(
        context.world.comm, plan, context.read_params(OwnNetworkParams).skips, progress
    )
    progress.finish()
    if chosen is None:
        return frozenset()
    if context.world.rank == 0:
        context.choice("skips", chosen.label, chosen.reason)
    return chosen.straight


def select_format(context: Context, plan: ModelPlan) -> MemoryFormat:
    """Return the memory format of the parameters, or for ``auto`` the faster one.

    All ranks must call it.
    """
    params = context.read_params(ModelParams)
    if params.memory_format != "auto":
        return params.memory_format or "contiguous"
    progress = PhaseProgress(partial(context.progress, "memory format"))
    learns = not params.enable_evaluation
    faster, reason = choose_format(plan, context.world.comm, progress, learns=learns)
    progress.finish()
    if context.world.rank == 0:
        context.choice("memory_format", faster, reason)
    return faster
