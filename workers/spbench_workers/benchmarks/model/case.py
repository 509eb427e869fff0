"""Case of a model benchmark: plan and training, with measured choices."""

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
from spbench_core.models.reach import find_smallest_normalised_size
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
from spbench_workers.benchmarks.model.network import load_network, make_step_settings
from spbench_workers.benchmarks.model.params import ModelParams, OwnNetworkParams
from spbench_workers.benchmarks.model.resolving import build_known_model
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device

MIN_NORMALISED_VALUES = 8
"""Least values of a normalised channel in a compared micro-batch."""


_MAX_NAMED = 8
"""Most operators on gathered maps that are named in a choice."""


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
        """Return the plan with the smallest batch that the layout allows.

        If ``batch_size`` is larger, the batch has one more image, so that micro-batches have
        unequal sizes. Each normalised channel has at least `MIN_ESD_VALUES` values, even if
        ``batch_size`` images have fewer, because few nearly equal values amplify rounding. If maps
        end as single pixels, each rank has the two images that batch normalisation needs.
        """
        plan = self.plan
        max_members = max(stage.members for stage in plan.layout.stages)
        pair_count = 1 + max(batch.pair for batch in plan.batches)
        parts_per_pipeline = len(plan.batches) // (pair_count * len(plan.layout.directions))
        min_pixels = find_smallest_normalised_size(plan.model) or MIN_NORMALISED_VALUES
        min_images = max(
            max_members * (2 if min_pixels == 1 else 1), -(-MIN_NORMALISED_VALUES // min_pixels)
        )
        min_batch_size = parts_per_pipeline * len(plan.layout.directions) * min_images
        small_batch_size = min_batch_size + (batch_size > min_batch_size)
        batches = split_batch(
            small_batch_size, parts_per_pipeline, mirrored=plan.layout.mirrored, times=pair_count
        )
        return replace(plan, batches=batches)


def build_case(context: Context) -> ModelCase:
    """Return the case of the parameters. All ranks must call it."""
    params = context.read_params(ModelParams)
    model = _make_model(context)
    layout = make_layout(context.params)
    precision = PRECISIONS[params.precision]
    device = choose_device(context, tf32=precision.tf32)

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
        device=device,
        precision=precision,
        backend=params.backend or "mpi",
        master_comm=bool(params.enable_master_comm_opt),
        fused_layers=params.fused_layers or 0,
        statistics=_choose_statistics(context),
        recompute=params.recompute,
        recompute_stages=_as_tuple(params.recompute_stages),
        loss=context.read_params(OwnNetworkParams).loss or "cross_entropy",
    )

    if len(layout.stages) > 1:
        plan = replace(plan, balance=select_balance(context, plan))
        if isinstance(model, ImportedModel):
            # With a measured balance, the stage of a layer was unknown before the launch.
            check_layout(model, layout, plan.balance, make_step_settings(params, layout))
        plan = replace(plan, straight=select_straight_skips(context, plan))

    if isinstance(model, ImportedModel) and any(stage.spatial for stage in layout.stages):
        _report_gathered(context, model, layout)
    plan = replace(plan, memory_format=select_format(context, plan))
    return ModelCase(plan, None if params.enable_evaluation else _make_training(context))


def _report_gathered(context: Context, model: ImportedModel, layout: ModelLayout) -> None:
    """Report which operators of a user's network are computed on gathered maps."""
    network = model.network
    operators = list_gathered_operators(
        network, {stage.grid for stage in layout.stages if stage.spatial}
    )
    if context.world.rank == 0:
        values_per_image = count_gathered_values(network, operators)
        reason = f"{len(operators)} of {len(network.operators)} operators: on every rank alike, of "
        reason += (
            f"{values_per_image / 1e6:.3g} million numbers of an image; gathered_ms is their time"
        )
        names = ", ".join(node.name for node in operators[:_MAX_NAMED])
        if len(operators) > _MAX_NAMED:
            names += f" and {len(operators) - _MAX_NAMED} more"
        context.choice(
            "gathered", names or "nothing", reason if operators else "all are over tiles"
        )


def _make_model(context: Context) -> Model:
    """Return the model of the parameters.

    Raises:
        CannotRunError: A user's network cannot be imported, or differs between ranks.
    """
    if "network" in context.params:
        context.progress(Activity.IMPORT, 0, 1)
        model = load_network(context.params, context.seed)
        check_same_operators(context.world.comm, model.network)
        return model
    return build_known_model(context.entry.name.removeprefix("model."), context.params)


def _as_tuple(chosen: list[int] | None) -> tuple[int, ...] | None:
    return None if chosen is None else tuple(chosen)


def _choose_statistics(context: Context) -> str:
    if context.planted_in_job("tile-batchnorm"):
        return "tile"
    return "replicas" if context.read_params(ModelParams).sync_batchnorm == "replicas" else "image"


def _make_training(context: Context) -> TrainingConfig:
    params = context.read_params(ModelParams)
    return TrainingConfig(
        require_value(params.optimizer),
        require_value(params.learning_rate),
        require_value(params.weight_decay),
        require_value(params.learning_rate_decay),
    )


def select_balance(context: Context, plan: ModelPlan) -> Balance:
    """Return the layers of each stage from the parameters or measured times.

    All ranks must call it. Times are measured on rank 0.

    Raises:
        CannotRunError: The balance does not fit the layers, or a stage has fewer pixels than tiles.
    """
    try:
        requested = require_value(context.read_params(ModelParams).balance)
        if requested == MEASURED:
            return _measure_balance(context, plan)
        balance = _resolve_balance(requested, plan)
        check_balance(plan, balance)
    except ModelError as error:
        raise CannotRunError(str(error)) from None
    return balance


def _measure_balance(context: Context, plan: ModelPlan) -> Balance:
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


def _resolve_balance(requested: str, plan: ModelPlan) -> Balance:
    """Return the balance by estimated cost, or the given numbers.

    Raises:
        CannotRunError: The numbers do not match the model's layers.
    """
    if requested == ESTIMATED:
        return estimate_balance(plan)
    try:
        return read_balance(requested, len(plan.layout.stages), len(plan.model.layers))
    except ValueError as error:
        raise CannotRunError(f"balance: {error}") from None


def select_straight_skips(context: Context, plan: ModelPlan) -> frozenset[tuple[int, int]]:
    """Return the pairs of stages with direct skip connections, and report the reason.

    All ranks must call it.
    """
    progress = PhaseProgress(partial(context.progress, "skips"))
    skips = choose_skips(
        context.world.comm, plan, context.read_params(OwnNetworkParams).skips, progress
    )
    progress.finish()
    if skips is None:
        return frozenset()
    if context.world.rank == 0:
        context.choice("skips", skips.label, skips.reason)
    return skips.straight


def select_format(context: Context, plan: ModelPlan) -> MemoryFormat:
    """Return the memory format of the parameters; for ``auto`` the faster one.

    All ranks must call it.
    """
    params = context.read_params(ModelParams)
    if params.memory_format != "auto":
        return params.memory_format or "contiguous"
    progress = PhaseProgress(partial(context.progress, "memory format"))
    learns = not params.enable_evaluation
    memory_format, reason = choose_format(plan, context.world.comm, progress, learns=learns)
    progress.finish()
    if context.world.rank == 0:
        context.choice("memory_format", memory_format, reason)
    return memory_format
