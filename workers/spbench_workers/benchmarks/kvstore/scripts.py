"""Flags, defaults and first line of MXNet's tools/bandwidth/measure.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spbench_core.catalog.parameters import Params
from spbench_workers.reference_scripts import GivenFlags, Script, value_flag

_FLAGS = (
    value_flag("--network", "resnet"),
    value_flag("--gpus", "0,1"),
    value_flag("--num-layers", 152),
    value_flag("--kv-store", "device", alias="--kvstore"),
    value_flag("--num-batches", 5),
    value_flag("--disp-batches", 1),
    value_flag("--test-results", 1),
    value_flag("--image-shape", "3,224,224"),
    value_flag("--num-classes", 1000),
    value_flag("--optimizer", "None"),
    value_flag("--gc-type", "none"),
)
_NUMBERS = ("num_layers", "num_batches", "disp_batches", "test_results", "num_classes")


def _adapt_params(params: Params, explicit: GivenFlags) -> Params:
    """Adapt the script's parameters: its default of 152 layers is only for ResNet."""
    if "num_layers" not in explicit and params["network"] != "resnet":
        params = {name: value for name, value in params.items() if name != "num_layers"}
    if "device_ids" in explicit and "gpus" not in explicit:
        params = params | {"gpus": None}
    return params


def _format_head(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return measure.py's first line: the repr of its arguments, sorted by name."""
    shown = {
        name: int(value) if name in _NUMBERS and str(value).isdecimal() else str(value)
        for name, value in values.items()
    }
    return (f"Namespace({', '.join(f'{name}={shown[name]!r}' for name in sorted(shown))})",)


SCRIPTS = (
    Script(
        "measure",
        "tools/bandwidth/measure.py",
        "kvstore.push_pull",
        _FLAGS,
        adapt=_adapt_params,
        first_lines=_format_head,
    ),
)
