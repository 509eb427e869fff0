"""Catalog of layer profiles: separate measurements of layers, the input of plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spbench_core.catalog import shared_params
from spbench_core.catalog.benchmark import Benchmark, Metric, ParamError, make_time_metric
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.shared_params import DEVICE, SEED
from spbench_core.catalog.typed_params import parameter, params_of, read_params, reuse_parameter
from spbench_core.catalog.work import Work
from spbench_workers.benchmarks.model.params import AMOEBANET, NETWORK, RESNET
from spbench_workers.benchmarks.model.resolving import check_tf32, may_use_tf32, resolve_model
from spbench_workers.benchmarks.model.work import estimate_layers

BUILTIN_MODELS = {"resnet": RESNET, "amoebanet": AMOEBANET}
"""Built-in models and their parameters."""
_MODEL_PARAMS = tuple(
    {param.name: param for params in BUILTIN_MODELS.values() for param in params}.values()
)
_UNTIMED_STEPS = 2
"""Steps of checks and set-up."""
_NETWORK: dict[str, Any] = {param.name: param.default for param in NETWORK}


def resolve(params: Params) -> Params:
    """Fill in the model's parameters, and reject those of other models.

    Raises:
        ParamError: The model is unknown, or a parameter has no effect.
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
    foreign = [*_NETWORK.keys() - {"image_size"}, *(param.name for param in _MODEL_PARAMS)]
    _reject_if_set(params, foreign, f"of model {name}")
    arguments = params["network_args"]
    if arguments is not None and not isinstance(arguments, dict):
        raise ParamError("network_args", "network_args are a mapping of names to values")
    return params


def _resolve_known(name: str, params: Params) -> Params:
    own_names = [param.name for param in BUILTIN_MODELS[name]]
    _reject_if_set(params, ["network_args"], f"of model {name}")
    _reject_if_set(
        params,
        [param.name for param in _MODEL_PARAMS if param.name not in own_names],
        f"of model {name}",
    )
    defaults = _NETWORK | {param.name: param.default for param in BUILTIN_MODELS[name]}
    filled = {key: value for key, value in defaults.items() if params[key] is None}
    return resolve_model(name, params | filled)


def _reject_if_set(params: Params, names: list[str], reason: str) -> None:
    for name in names:
        if params[name] is not None:
            raise ParamError(name, f"{name} is no parameter {reason}; leave it out")


def _checks(checks: tuple[str, ...], params: Params) -> tuple[str, ...]:
    """Return the checks; products are checked only if the device is known to be a GPU."""
    return checks if may_use_tf32(params["device"], params["precision"]) else checks[:-1]


def _layer_metric(name: str, unit: str, help_text: str) -> Metric:
    return Metric(name, unit, "none", f"of a layer at a batch size: {help_text}")


_PARAMS_BY_NAME = {param.name: param for param in (*NETWORK, *RESNET, *AMOEBANET)}


@dataclass(frozen=True, kw_only=True)
class ProfileParams:
    """Parameters of ``model.profile``."""

    model: str = parameter(
        "text", "resnet", "resnet, amoebanet, or module:callable of your own network"
    )
    network_args: Any = parameter("data", None, "arguments of the callable by name")
    batch_sizes: list[int] = parameter(
        "ints", [1, 2, 4], "batch sizes in ascending order, such as 1,2,4", minimum=1
    )
    image_size: tuple[int, int] | None = reuse_parameter(
        _PARAMS_BY_NAME["image_size"], default=None
    )
    num_classes: int | None = reuse_parameter(_PARAMS_BY_NAME["num_classes"], default=None)
    version: int | None = reuse_parameter(_PARAMS_BY_NAME["version"], default=None)
    depth: int | None = reuse_parameter(_PARAMS_BY_NAME["depth"], default=None)
    arch: str | None = reuse_parameter(_PARAMS_BY_NAME["arch"], default=None)
    num_layers: int | None = reuse_parameter(_PARAMS_BY_NAME["num_layers"], default=None)
    num_filters: int | None = reuse_parameter(_PARAMS_BY_NAME["num_filters"], default=None)
    pool3: str | None = reuse_parameter(_PARAMS_BY_NAME["pool3"], default=None)
    shift: bool | None = reuse_parameter(_PARAMS_BY_NAME["shift"], default=None)
    precision: str = parameter(
        "choice",
        "fp32",
        "number format of the computation",
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
    steps = profile.iterations + profile.warmup + _UNTIMED_STEPS
    return estimate_layers(profile.model, params, profile.batch_sizes, steps, np)


BENCHMARKS = (
    Benchmark(
        name="model.profile",
        summary="time, memory and parameters of each layer of a model, for plans",
        runs_in="model.profile.run",
        measures="rank",
        params=params_of(ProfileParams),
        starter={"depth": 11},
        metrics=(
            make_time_metric("two forward and backward passes at each batch size"),
            _layer_metric("forward_ms", "ms", "time of the forward pass"),
            _layer_metric("backward_ms", "ms", "time of the backward pass"),
            _layer_metric("data_ms", "ms", "time of the backward pass without weights_ms"),
            _layer_metric("weights_ms", "ms", "time of the weight gradients that zb-h1 defers"),
            _layer_metric("activation_bytes", "B", "size of the outputs"),
            _layer_metric("kept_bytes", "B", "size of the data kept for the backward pass"),
            _layer_metric("working_bytes", "B", "size of the additional memory while it runs"),
            _layer_metric(
                "parameter_bytes", "B", "size of the parameters, the same at each batch size"
            ),
            Metric(
                "skipped_layers",
                "1",
                "none",
                "number of layers between a layer and an earlier one whose output it reads",
            ),
        ),
        checks=("output", "parameters", "products"),
        faults=("wrong-layer",),
        resolve=resolve,
        choose_checks=_checks,
        work=_estimate,
    ),
)
