"""A case of a model benchmark: the plan and the training that its parameters ask for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from spbench_core.catalog.typed_params import require_value
from spbench_core.events.statuses import Activity
from spbench_core.layout.balance import Balance, read_balance
from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import ModelLayout
from spbench_core.models.layers import Model
from spbench_core.models.parts import ModelError
from spbench_core.models.reach import smallest_normalised_size
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
from spbench_parallel.models.imported.layouts import check_layout
from spbench_parallel.models.imported.model import ImportedModel
from spbench_parallel.models.imported.tile_strategies import (
    count_gathered_values,
    list_gathered_operators,
)
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import PRECISIONS
from spbench_parallel.progress import PhaseProgress
from spbench_parallel.same_operators import check_same_operators
from spbench_workers.benchmarks.model.layout import ESTIMATED, MEASURED, make_layout
from spbench_workers.benchmarks.model.network import load_network, make_batching
from spbench_workers.benchmarks.model.params import ModelParams, OwnNetworkParams
from spbench_workers.benchmarks.model.resolving import build_known_model
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device

MIN_VALUES = 8
"""Values of a channel in a micro-batch that is compared, where it is normalised."""


_NAMED = 8
"""Operators on gathered maps that are named, at most."""


@dataclass(frozen=True, slots=True)
class ModelCase:
    """A case of a model benchmark, ready to be computed.

    Attributes:
        plan: The model, its layout and its micro-batches.
        training: None for inference.
    """

    plan: ModelPlan
    training: TrainingConfig | None

    @property
    def images(self) -> int:
        """Images of a step, of all replicas."""
        return sum(batch.size for batch in self.plan.batches) * self.plan.layout.replicas

    def make_small_plan(self, batch_size: int) -> ModelPlan:
        """Return the plan of a batch that is as small as the layout lets it be.

        It has an image more where ``batch_size`` has, so that micro-batches are of unequal sizes.
        Each channel that is normalised has `LEAST_VALUES` values, even where ``batch_size`` images
        have fewer: few values, nearly equal, would make every rounding large. Where maps end as
        single pixels, each rank has two images, as batch normalisation needs them.
        """
        plan = self.plan
        members = max(stage.members for stage in plan.layout.stages)
        pairs = 1 + max(batch.pair for batch in plan.batches)
        parts = len(plan.batches) // (pairs * len(plan.layout.directions))
        pixels = smallest_normalised_size(plan.model) or MIN_VALUES
        images = max(members * (2 if pixels == 1 else 1), -(-MIN_VALUES // pixels))
        least = parts * len(plan.layout.directions) * images
        size = least + (batch_size > least)
        batches = split_batch(size, parts, mirrored=plan.layout.mirrored, times=pairs)
        return replace(plan, batches=batches)


def build_case(context: Context) -> ModelCase:
    """Return the case that the parameters ask for. All ranks must call it."""
    params = context.read_params(ModelParams)
    model = _model(context)
    layout = make_layout(context.params)
    precision = PRECISIONS[params.precision]
    place = choose_device(context, tf32=precision.tf32)
    plan = ModelPlan(
        model,
        layout,
        (len(model.layers),),
        split_batch(
            params.batch_size,
            params.parts,
            mirrored=layout.mirrored,
            times=params.times or 1,
        ),
        schedule=params.schedule or "1f1b",
        seed=context.seed,
        device=place,
        precision=precision,
        backend=params.backend or "mpi",
        master_comm=bool(params.enable_master_comm_opt),
        fused_layers=params.fused_layers or 0,
        statistics=_statistics(context),
        recompute=params.recompute,
        recompute_stages=_stages(params.recompute_stages),
        loss=context.read_params(OwnNetworkParams).loss or "cross_entropy",
    )
    if len(layout.stages) > 1:
        plan = replace(plan, balance=select_balance(context, plan))
        if isinstance(model, ImportedModel):
            # If the balance was measured, the stage of a layer was not known before the launch.
            check_layout(model, layout, plan.balance, make_batching(params, layout))
        plan = replace(plan, straight=select_straight_skips(context, plan))
    if isinstance(model, ImportedModel) and any(stage.spatial for stage in layout.stages):
        _tell_gathered(context, model, layout)
    plan = replace(plan, memory_format=select_format(context, plan))
    return ModelCase(plan, None if params.enable_evaluation else _training(context))


def _tell_gathered(context: Context, model: ImportedModel, layout: ModelLayout) -> None:
    """Say which operators of a network of the user's own are computed on gathered maps."""
    network = model.network
    found = list_gathered_operators(
        network, {stage.grid for stage in layout.stages if stage.spatial}
    )
    if context.world.rank == 0:
        values = count_gathered_values(network, found)
        reason = f"{len(found)} of {len(network.operators)} operators: on every rank alike, of "
        reason += f"{values / 1e6:.3g} million numbers of an image; gathered_ms is their time"
        names = ", ".join(node.name for node in found[:_NAMED])
        if len(found) > _NAMED:
            names += f" and {len(found) - _NAMED} more"
        context.choice("gathered", names or "nothing", reason if found else "all are over tiles")


def _model(context: Context) -> Model:
    """Return the model that the parameters name.

    Raises:
        CannotRunError: A network of the user's own cannot be imported, or differs by rank.
    """
    if "network" in context.params:
        context.progress(Activity.IMPORT, 0, 1)
        model = load_network(context.params, context.seed)
        check_same_operators(context.world.comm, model.network)
        return model
    return build_known_model(context.entry.name.removeprefix("model."), context.params)


def _stages(chosen: list[int] | None) -> tuple[int, ...] | None:
    return None if chosen is None else tuple(chosen)


def _statistics(context: Context) -> str:
    if context.planted_in_job("tile-batchnorm"):
        return "tile"
    return "replicas" if context.read_params(ModelParams).sync_batchnorm == "replicas" else "image"


def _training(context: Context) -> TrainingConfig:
    params = context.read_params(ModelParams)
    return TrainingConfig(
        require_value(params.optimizer),
        require_value(params.learning_rate),
        require_value(params.weight_decay),
        require_value(params.learning_rate_decay),
    )


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
