"""``spbench networks``: the networks with gradients to measure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.value_completions import complete_network
from spbench.errors import UsageError
from spbench.report.text_tables import align_columns

if TYPE_CHECKING:
    from spbench_core.mxnet_networks.graph import Parameter


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(networks)


def networks(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Network to describe, such as resnet",
            metavar="NAME",
            autocompletion=complete_network,
        ),
    ] = None,
    num_layers: Annotated[
        int | None,
        typer.Option("--num-layers", help="Depth", metavar="N", show_default="the network's"),
    ] = None,
    image_shape: Annotated[
        str | None,
        typer.Option(
            "--image-shape",
            help="Channels, height and width of an image, such as 3,224,224",
            metavar="C,H,W",
            show_default="the network's",
        ),
    ] = None,
    num_classes: Annotated[
        int | None,
        typer.Option(
            "--num-classes", help="Classes to recognise", metavar="N", show_default="1000"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")] = False,
) -> None:
    """List the networks, or the weights and biases of one."""
    if name is not None:
        shape = None if image_shape is None else _parse_shape(image_shape)
        params = _list_parameters(name, num_layers, shape, num_classes)
        (_print_json if as_json else _print_table)(params)
    elif (num_layers, image_shape, num_classes) != (None, None, None):
        raise UsageError("these options are about one network: name it, as spbench networks resnet")
    else:
        _print_networks(as_json)


def _parse_shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise UsageError(f"--image-shape: {text!r} is not C,H,W, as 3,224,224") from None


def _list_parameters(
    name: str, num_layers: int | None, shape: tuple[int, ...] | None, num_classes: int | None
) -> list[Parameter]:
    from spbench_core.models.parts import ModelError
    from spbench_core.mxnet_networks.registry import list_parameters

    try:
        return list_parameters(
            name, num_layers, shape, 1000 if num_classes is None else num_classes
        )
    except ModelError as error:
        if error.param == "network":
            raise UsageError(f"{error}; see spbench networks") from None
        raise UsageError(f"--{error.param.replace('_', '-')}: {error}") from None


def _print_json(params: list[Parameter]) -> None:
    from spbench_core.mxnet_networks.registry import sum_megabytes

    document = {
        "num_arrays": len(params),
        "total_mb": sum_megabytes(params),
        "shapes": [list(param.shape) for param in params],
        "names": [param.name for param in params],
    }
    print(json.dumps(document))


def _print_table(params: list[Parameter]) -> None:
    from spbench_core.mxnet_networks.registry import sum_megabytes

    print(f"num of arrays = {len(params)}, total size = {sum_megabytes(params):.6f} MB")
    rows = [
        (str(key), param.name, _join_numbers(param.shape), str(param.elements))
        for key, param in enumerate(params)
    ]
    print("\n".join(align_columns([("key", "name", "shape", "elements"), *rows], right=(0, 3))))


def _print_networks(as_json: bool) -> None:
    from spbench_core.mxnet_networks.registry import NETWORKS

    if as_json:
        documents = [
            {
                "name": network.name,
                "help": network.help,
                "depths": network.depths,
                "num_layers": network.num_layers or None,
                "image_shape": network.image_shape,
            }
            for network in NETWORKS.values()
        ]
        print(json.dumps(documents, indent=1))
        return
    rows = [
        (
            network.name,
            network.help,
            _join_numbers(network.depths),
            _join_numbers(network.image_shape),
        )
        for network in NETWORKS.values()
    ]
    print("\n".join(align_columns([("name", "what it is", "depths", "image shape"), *rows])))
    for network in NETWORKS.values():
        if network.small_height:
            images = f"images up to {network.small_height} pixels high"
            print(f"{network.name} for {images}: depths {network.small_depths}")


def _join_numbers(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
