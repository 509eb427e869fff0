"""The user's network of a case."""

from __future__ import annotations

from spbench_core.catalog.parameters import Params
from spbench_core.catalog.typed_params import read_params, require_value
from spbench_core.layout.balance import Balance, check_stages, read_balance
from spbench_core.layout.stages import ModelLayout
from spbench_core.models.parts import MapShape
from spbench_core.models.registry import CHANNELS
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.layouts import StepSettings, check_layout, check_stage_ends
from spbench_parallel.models.imported.messages import locate
from spbench_parallel.models.imported.model import ImportedModel, import_network
from spbench_parallel.models.imported.tile_strategies import list_gathered_operators
from spbench_workers.benchmarks.model.layout import make_layout
from spbench_workers.benchmarks.model.params import ModelParams, OwnNetworkParams


def load_network(params: Params, seed: int) -> ImportedModel:
    """Return the network of a case, with at least one layer per stage.

    Raises:
        CannotRunError: The network cannot be imported, is for another task, has too few layers, has
            no layer at which a stage of tiles can end, or has an operator that the layout does not
            support. With ``strict``, an operator is not supported over tiles.
    """
    model_params = read_params(ModelParams, params)
    network_params = read_params(OwnNetworkParams, params)
    image = MapShape(CHANNELS, *model_params.image_size)
    arguments = network_params.network_args or {}
    model = import_network(
        require_value(network_params.network), arguments, image, seed, network_params.weights
    )
    _check_task(model, network_params, model_params.app)

    layout = make_layout(params)
    try:
        check_stages(len(layout.stages), len(model.layers))
    except ValueError as error:
        raise CannotRunError(f"network {model.name}: {error}") from None
    check_stage_ends(model, layout)
    check_layout(
        model,
        layout,
        _read_balance(model_params, layout, model),
        make_step_settings(model_params, layout),
    )

    gathered_operators = list_gathered_operators(
        model.network, {stage.grid for stage in layout.stages if stage.spatial}
    )
    if gathered_operators and network_params.strict:
        raise CannotRunError(
            f"network {model.name}: {locate(gathered_operators[0])} is not there over tiles; "
            "leave out strict, and it is computed on gathered maps"
        )
    return model


def _read_balance(params: ModelParams, layout: ModelLayout, model: ImportedModel) -> Balance | None:
    """Return the layers of each stage if the parameters contain them."""
    try:
        return read_balance(params.balance or "", len(layout.stages), len(model.layers))
    except ValueError:  # the launch reports an invalid balance
        return None


def make_step_settings(params: ModelParams, layout: ModelLayout) -> StepSettings:
    """Return the distribution of the images of a step."""
    return StepSettings(
        params.parts * (params.times or 1) * len(layout.directions),
        sync_batchnorm=params.sync_batchnorm == "replicas",
        training=not params.enable_evaluation,
        recomputes=params.recompute is not None,
    )


def _check_task(model: ImportedModel, params: OwnNetworkParams, app: str) -> None:
    task = "segment" if model.is_segmentation else "classify"
    if params.task not in (None, task):
        output = "a class for each pixel" if model.is_segmentation else "one class for each image"
        raise CannotRunError(f"network {model.name}: it gives {output}; take task {task}")
    if model.is_segmentation:
        if app == "cifar":
            raise CannotRunError(
                f"network {model.name}: it gives a class for each pixel, and cifar has no masks; "
                "take app medical, with datapath"
            )
    elif params.loss == "dice":
        raise CannotRunError(
            f"network {model.name}: it gives one class for each image, and loss dice is of pixels; "
            "take cross_entropy"
        )


def check(params: Params) -> None:
    """Check that a case's network can be imported and divided into its stages.

    Raises:
        CannotRunError: The network cannot be used.
    """
    load_network(params, seed=0)
