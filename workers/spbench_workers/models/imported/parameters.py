"""The network that the parameters of a case name."""

from __future__ import annotations

from spbench_core.catalog.model_layout import layout_of
from spbench_core.catalog.parameters import Params
from spbench_core.layout.balance import check_stages
from spbench_core.layout.tiles import parse_pair
from spbench_core.models.parts import Map
from spbench_core.models.registry import CHANNELS
from spbench_workers.errors import CannotRunError
from spbench_workers.models.imported.model import ImportedModel, imported


def network_of(params: Params, seed: int) -> ImportedModel:
    """Return the network of a case, which has a layer for each stage.

    Raises:
        CannotRunError: It cannot be imported, or has fewer layers than there are stages.
    """
    image = Map(CHANNELS, *parse_pair(params["image_size"]))
    model = imported(params["network"], params["network_args"] or {}, image, seed)
    try:
        check_stages(len(layout_of(params).stages), len(model.layers))
    except ValueError as error:
        raise CannotRunError(f"network {model.name}: {error}") from None
    return model


def check(params: Params) -> None:
    """Check that a case's network can be imported, and cut into as many stages.

    Raises:
        CannotRunError: It cannot.
    """
    network_of(params, seed=0)
