"""Catalog of the layer profile: a model's layers measured one by one, which plans are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spbench_core.catalog import shared_params
from spbench_core.catalog.benchmark import Benchmark, Metric, ParamError, make_time_metric
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.shared_params import DEVICE, SEED
from spbench_core.catalog.typed_params import parameter, params_of, read_params, reuse_parameter
from spbench_core.catalog.work import Work
from spbench_workers.benchmarks.model.params import (
    AMOEBANET,
    NETWORK,
    RESNET,
    check_tf32,
    may_use_tf32,
)
from spbench_workers.benchmarks.model.resolving import resolve_model
from spbench_workers.benchmarks.model.work import estimate_layers

BUILTIN_MODELS = {"resnet": RESNET, "amoebanet": AMOEBANET}
"""Models of spbench's own, and their own parameters."""
_OWN = tuple({param.name: param for params in BUILTIN_MODELS.values() for param in params}.values())
_UNTIMED = 2
"""Steps of checks and set-up."""
_NETWORK: dict[str, Any] = {param.name: param.default for param in NETWORK}


def resolve(params: Params) -> Params:
    """Fill in the model's own parameters, and refuse those of another one.

    Raises:
        ParamError: There is no such model, or a parameter does nothing.
    """
    check_tf32(params)
    name = params["model"]
    sizes = params["batch_sizes"]
    if sorted(set(sizes)) != sizes:
        raise ParamError("batch_sizes", "batch_sizes must rise, as in 1,2,4")
    if name in BUILTIN_MODELS:
        return _resolve_known(name, params)
    module, _, function = name.partition(":")
    if not all(map(str.isidentifier, (*module.split("."), function))):
        raise ParamError(
            "model",
            f"model {name!r} is none of {', '.join(BUILTIN_MODELS)}, and no module:callable",
        )
    others = [*_NETWORK.keys() - {"image_size"}, *(param.name for param in _OWN)]
    _refuse(params, others, f"of model {name}")
    arguments = params["network_args"]
    if arguments is not None and not isinstance(arguments, dict):
        raise ParamError("network_args", "network_args are a mapping of names to values")
    return params


def _resolve_known(name: str, params: Params) -> Params:
    own = [param.name for param in BUILTIN_MODELS[name]]
    _refuse(params, ["network_args"], f"of model {name}")
    _refuse(params, [param.name for param in _OWN if param.name not in own], f"of model {name}")
    defaults = _NETWORK | {param.name: param.default for param in BUILTIN_MODELS[name]}
    filled = {key: value for key, value in defaults.items() if params[key] is None}
    return resolve_model(name, params | filled)


def _refuse(params: Params, names: list[str], why: str) -> None:
    for name in names:
        if params[name] is not None:
            raise ParamError(name, f"{name} is no parameter {why}; leave it out")


def _checks(checks: tuple[str, ...], params: Params) -> tuple[str, ...]:
    """Return the checks; products are compared on GPUs alone, so ``auto`` does not promise them."""
    return checks if may_use_tf32(params["device"], params["precision"]) else checks[:-1]


def _of_layer(name: str, unit: str, what: str) -> Metric:
    return Metric(name, unit, "none", f"of a layer at a batch size: {what}")


_OF_MODELS = {param.name: param for param in (*NETWORK, *RESNET, *AMOEBANET)}


@dataclass(frozen=True, kw_only=True)
class ProfileParams:
    """Parameters of ``model.profile``."""

    model: str = parameter("text", "resnet", "resnet, amoebanet, or module:callable of your own")
    network_args: Any = parameter("data", None, "all that the callable is given, by name")
    batch_sizes: list[int] = parameter(
        "ints", [1, 2, 4], "images at once, rising, as in 1,2,4", minimum=1
    )
    image_size: tuple[int, int] | None = reuse_parameter(_OF_MODELS["image_size"], default=None)
    num_classes: int | None = reuse_parameter(_OF_MODELS["num_classes"], default=None)
    version: int | None = reuse_parameter(_OF_MODELS["version"], default=None)
    depth: int | None = reuse_parameter(_OF_MODELS["depth"], default=None)
    arch: str | None = reuse_parameter(_OF_MODELS["arch"], default=None)
    num_layers: int | None = reuse_parameter(_OF_MODELS["num_layers"], default=None)
    num_filters: int | None = reuse_parameter(_OF_MODELS["num_filters"], default=None)
    pool3: str | None = reuse_parameter(_OF_MODELS["pool3"], default=None)
    shift: bool | None = reuse_parameter(_OF_MODELS["shift"], default=None)
    precision: str = parameter(
        "choice",
        "fp32",
        "number format of what is computed",
        choices=("fp32", "fp64", "tf32", "fp16", "bf16"),
    )
    device: str = reuse_parameter(DEVICE)
    warmup: int = reuse_parameter(shared_params.warmup(2))
    iterations: int = reuse_parameter(shared_params.iterations(9))
    seed: int = reuse_parameter(SEED)


def _estimate(params: Params, np: int) -> Work | None:
    profile = read_params(ProfileParams, params)
    if profile.model not in BUILTIN_MODELS:
        return None
    steps = profile.iterations + profile.warmup + _UNTIMED
    return estimate_layers(profile.model, params, profile.batch_sizes, steps, np)


BENCHMARKS = (
    Benchmark(
        name="model.profile",
        summary="a model's layers one by one: time, memory, parameters; what plans are made from",
        runs_in="model.profile.run",
        measures="rank",
        params=params_of(ProfileParams),
        metrics=(
            make_time_metric("two passes forward and back at each batch size"),
            _of_layer("forward_ms", "ms", "its forward pass"),
            _of_layer("backward_ms", "ms", "its backward pass"),
            _of_layer("data_ms", "ms", "its backward pass without what weights_ms is"),
            _of_layer("weights_ms", "ms", "gradients of weights that zb-h1 computes later"),
            _of_layer("activation_bytes", "B", "the outputs that it makes"),
            _of_layer("kept_bytes", "B", "what it keeps from forward until backward"),
            _of_layer("working_bytes", "B", "what it needs beside that while it runs"),
            _of_layer("parameter_bytes", "B", "its parameters, at any batch size"),
            Metric(
                "skipped_layers",
                "1",
                "none",
                "of a layer that reads the output of one further up: the layers between",
            ),
        ),
        checks=("output", "parameters", "products"),
        faults=("wrong-layer",),
        resolve=resolve,
        choose_checks=_checks,
        work=_estimate,
    ),
)
