"""The network that the parameters of a case name."""

from __future__ import annotations

from spbench_core.catalog.parameters import Params
from spbench_core.catalog.typed_params import read_params, require_value
from spbench_core.layout.balance import Balance, check_stages, read_balance
from spbench_core.layout.stages import ModelLayout
from spbench_core.models.parts import Map
from spbench_core.models.registry import CHANNELS
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.layouts import BatchSettings, check_layout, check_stage_ends
from spbench_parallel.models.imported.messages import locate
from spbench_parallel.models.imported.model import ImportedModel, import_network
from spbench_parallel.models.imported.tile_strategies import list_gathered_operators
from spbench_workers.benchmarks.model.layout import make_layout
from spbench_workers.benchmarks.model.params import ModelParams, OwnNetworkParams


def load_network(params: Params, seed: int) -> ImportedModel:
    """Return the network of a case, which has a layer for each stage.

    Raises:
        CannotRunError: It cannot be imported, is not for this task, has fewer layers than there are
            stages, none in whose maps a stage of tiles can end, an operator that cannot be in such
            a layout, or with ``strict`` one that is not there over tiles.
    """
    common = read_params(ModelParams, params)
    own = read_params(OwnNetworkParams, params)
    image = Map(CHANNELS, *common.image_size)
    arguments = own.network_args or {}
    model = import_network(require_value(own.network), arguments, image, seed, own.weights)
    _check_task(model, own, common.app)
    layout = make_layout(params)
    try:
        check_stages(len(layout.stages), len(model.layers))
    except ValueError as error:
        raise CannotRunError(f"network {model.name}: {error}") from None
    check_stage_ends(model, layout)
    check_layout(model, layout, _balance_of(common, layout, model), make_batching(common, layout))
    missing = list_gathered_operators(
        model.network, {stage.grid for stage in layout.stages if stage.spatial}
    )
    if missing and own.strict:
        raise CannotRunError(
            f"network {model.name}: {locate(missing[0])} is not there over tiles; leave out "
            "strict, and it is computed on gathered maps"
        )
    return model


def _balance_of(params: ModelParams, layout: ModelLayout, model: ImportedModel) -> Balance | None:
    """Return the layers of each stage, if the parameters name them."""
    try:
        return read_balance(params.balance or "", len(layout.stages), len(model.layers))
    except ValueError:  # what is wrong in it is reported by the launch
        return None


def make_batching(params: ModelParams, layout: ModelLayout) -> BatchSettings:
    """Return how the parameters of a case share out the images of a step."""
    return BatchSettings(
        params.parts * (params.times or 1) * len(layout.directions),
        sync_batchnorm=params.sync_batchnorm == "replicas",
        training=not params.enable_evaluation,
        recomputes=params.recompute is not None,
    )


def _check_task(model: ImportedModel, params: OwnNetworkParams, app: str) -> None:
    task = "segment" if model.is_segmentation else "classify"
    if params.task not in (None, task):
        gives = "a class for each pixel" if model.is_segmentation else "one class for each image"
        raise CannotRunError(f"network {model.name}: it gives {gives}; take task {task}")
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
    """Check that a case's network can be imported, and cut into as many stages.

    Raises:
        CannotRunError: It cannot.
    """
    load_network(params, seed=0)
