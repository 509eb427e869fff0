"""MXNet's tools/bandwidth/measure.py, with its flags, its defaults and its first line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spbench_core.catalog.parameters import Params
from spbench_workers.reference_scripts import Given, Script, sets

_FLAGS = (
    sets("--network", "resnet"),
    sets("--gpus", "0,1"),
    sets("--num-layers", 152),
    sets("--kv-store", "device", also="--kvstore"),
    sets("--num-batches", 5),
    sets("--disp-batches", 1),
    sets("--test-results", 1),
    sets("--image-shape", "3,224,224"),
    sets("--num-classes", 1000),
    sets("--optimizer", "None"),
    sets("--gc-type", "none"),
)
_NUMBERS = ("num_layers", "num_batches", "disp_batches", "test_results", "num_classes")


def _adapted(params: Params, given: Given) -> Params:
    """Return the parameters; 152 layers are for ResNet, and other networks have their own."""
    if "num_layers" not in given and params["network"] != "resnet":
        params = {name: value for name, value in params.items() if name != "num_layers"}
    if "device_ids" in given and "gpus" not in given:
        params = params | {"gpus": None}
    return params


def _head(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return measure.py's first line: its arguments as Python shows them, by name."""
    told = {
        name: int(value) if name in _NUMBERS and str(value).isdecimal() else str(value)
        for name, value in values.items()
    }
    return (f"Namespace({', '.join(f'{name}={told[name]!r}' for name in sorted(told))})",)


SCRIPTS = (
    Script(
        "measure",
        "tools/bandwidth/measure.py",
        "kvstore.push_pull",
        _FLAGS,
        adapt=_adapted,
        head=_head,
    ),
)
