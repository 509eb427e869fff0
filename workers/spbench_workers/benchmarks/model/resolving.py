"""Defaults of model parameters that depend on others, and their consistency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spbench_core.catalog.benchmark import (
    IdleParamError,
    ParamError,
)
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.shared_params import resolve_device_ids
from spbench_core.layout.tiles import parse_pair
from spbench_core.schedule.orders import INTERLEAVED, ZERO_BUBBLE
from spbench_workers.benchmarks.model.layout import (
    MIRRORED,
    TILED,
    check_round_members,
    make_layout,
    resolve_balance,
    resolve_grids,
    resolve_imported_balance,
    resolve_members,
    resolve_rounds,
)
from spbench_workers.benchmarks.model.params import AMOEBANET, RESNET, SCHEMES

if TYPE_CHECKING:
    from spbench_core.models.layers import Model

BASELINE_MAX = 60.0
"""Default seconds that the baseline on one process may take."""
_PIPELINES = tuple(scheme for scheme in SCHEMES if scheme != "sequential")
_SCHEME_DEFAULTS: dict[str, tuple[tuple[str, ...], Any]] = {
    "split_size": (_PIPELINES, 2),
    "balance": (_PIPELINES, None),
    "local_DP": (_PIPELINES, "1"),
    "replicas": (_PIPELINES, 1),
    "backend": (_PIPELINES, "mpi"),
    "schedule": (_PIPELINES, "1f1b"),
    "spatial_size": (TILED, 1),
    "num_spatial_parts": (TILED, None),
    "slice_method": (TILED, None),
    "grid": (TILED, None),
    "halo_D2": (TILED, False),
    "fused_layers": (TILED, None),
    "strict": (TILED, False),
    "times": (MIRRORED, 1),
    "enable_master_comm_opt": (MIRRORED, False),
    "sync_batchnorm": (_PIPELINES, None),
    "baseline": (_PIPELINES, True),
    "baseline_max": (_PIPELINES, None),
    "baseline_memory": (_PIPELINES, None),
}
"""Parameters that only some schemes use: these schemes, and the default."""
PIPELINE_PARAMS = frozenset(_SCHEME_DEFAULTS) | {"rounds"}
_TRAINING_DEFAULTS: dict[str, Any] = {
    "schedule": None,
    "enable_master_comm_opt": None,
    "optimizer": "sgd",
    "learning_rate": 0.001,
    "weight_decay": 0.0,
    "learning_rate_decay": 1.0,
    "checkpoint_every": None,
    "sync_batchnorm": None,
}
"""Parameters of training, which have no effect in inference, and their defaults."""


def resolve(name: str, params: Params) -> Params:
    """Fill in parameters that depend on others.

    Raises:
        ParamError: A parameter contradicts another, has no effect, or describes an impossible
            model, balance or tiling.
    """
    params = _resolve_baseline(_resolve_learning(_resolve_scheme(resolve_rounds(params))))
    params = _resolve_numbers(resolve_device_ids(_resolve_load(_resolve_data(params))))
    if params["scheme"] in TILED:
        params = _resolve_halo(resolve_grids(params))
    if params["scheme"] != "sequential":
        params = resolve_members(params)
        check_round_members(params)
    _check_schedule(params)
    _check_shares(params)
    params = _resolve_recomputation(params)
    if name == "network":
        return _resolve_import(params)
    params = resolve_model(name, params)
    if params["scheme"] == "sequential":
        return params
    return resolve_balance(params, build_known_model(name, params))


def _resolve_import(params: Params) -> Params:
    """Check the parameters of a user's network before it is loaded.

    Raises:
        ParamError: The network is not a ``module:callable``, or the balance does not fit the
            stages.
    """
    if params["network"] is None:
        raise ParamError("network", "there is no network: give module:callable")
    module, _, function = params["network"].partition(":")
    if not all(map(str.isidentifier, (*module.split("."), function))):
        raise ParamError("network", f"network {params['network']!r} is no module:callable")
    if params["enable_evaluation"]:
        for name in ("save_weights", "loss"):
            _reject_if_set(params, name, "with enable_evaluation")
    else:
        params = _fill_defaults(params, {"loss": "cross_entropy"})
    _check_task(params)
    arguments = params["network_args"]
    if arguments is not None and not isinstance(arguments, dict):
        raise ParamError("network_args", "network_args are a mapping of names to values")
    if params["scheme"] == "sequential":
        return params
    return resolve_imported_balance(params)


def _check_task(params: Params) -> None:
    if params["task"] == "classify" and params["loss"] == "dice":
        raise ParamError("loss", "loss dice is of pixels' classes, with task segment")
    if params["task"] == "segment" and params["app"] == "cifar":
        raise ParamError("app", "cifar has no masks; task segment takes medical, with datapath")


def _check_schedule(params: Params) -> None:
    schedule = params["schedule"]
    scheme = params["scheme"]
    if schedule == "1f1b-deep" and scheme in MIRRORED:
        raise ParamError(
            "schedule", "1f1b-deep is for one pipeline; mirrored ones take 1f1b, gpipe"
        )
    if schedule != ZERO_BUBBLE:
        return
    if scheme != "lp":
        raise ParamError("schedule", f"schedule zb-h1 is for scheme lp, not for {scheme}")
    if params["recompute"] is not None:
        raise ParamError("recompute", "with schedule zb-h1 activations are kept; take 1f1b")


def build_known_model(name: str, params: Params) -> Model:
    """Return the model of complete parameters.

    Raises:
        ParamError: The model is unknown, or does not fit the images.
    """
    from spbench_core.models.parts import ModelError
    from spbench_core.models.registry import make_model

    model_params = AMOEBANET if name == "amoebanet" else RESNET
    try:
        return make_model(
            name,
            image_size=parse_pair(params["image_size"]),
            num_classes=params["num_classes"],
            **{param.name: params[param.name] for param in model_params},
        )
    except ModelError as error:
        raise ParamError(error.param, str(error)) from None


def _reject_if_set(params: Params, name: str, reason: str) -> None:
    if params[name] is not None:
        raise IdleParamError(name, reason)


def _fill_defaults(params: Params, defaults: Mapping[str, Any]) -> Params:
    return params | {name: default for name, default in defaults.items() if params[name] is None}


def _resolve_scheme(params: Params) -> Params:
    scheme = params["scheme"]
    defaults = {}
    for name, (schemes, default) in _SCHEME_DEFAULTS.items():
        if name not in params:  # user networks lack some parameters
            continue
        if scheme in schemes:
            defaults[name] = default
        elif name != "baseline" or params[name]:
            # One process has no baseline, so a suite may disable it for all schemes.
            _reject_if_set(params, name, f"in scheme {scheme}, only in {', '.join(schemes)}")
    if params["enable_evaluation"]:
        defaults = {
            name: value for name, value in defaults.items() if name not in _TRAINING_DEFAULTS
        }
    return _fill_defaults(params, defaults)


def _resolve_learning(params: Params) -> Params:
    if params["enable_evaluation"]:
        for name in _TRAINING_DEFAULTS:
            # Other schedules do not change inference, but interleaved changes the layout.
            if params[name] != INTERLEAVED:
                _reject_if_set(params, name, "with enable_evaluation")
        return params
    params = _fill_defaults(params, _TRAINING_DEFAULTS)
    if params["checkpoint"] is None:
        _reject_if_set(params, "checkpoint_every", "without checkpoint")
    if params["learning_rate_decay"] != 1 and params["num_epochs"] == 1:
        advice = "take num_epochs 2 or more"
        raise IdleParamError("learning_rate_decay", "in one epoch", advice)
    return params


def _resolve_baseline(params: Params) -> Params:
    if params["baseline"]:
        return _fill_defaults(params, {"baseline_max": BASELINE_MAX})
    for name in ("baseline_max", "baseline_memory"):
        _reject_if_set(params, name, "without baseline")
    return params


def _resolve_load(params: Params) -> Params:
    """Fill in the load of inference.

    Raises:
        ParamError: A load has no effect or no rate.
    """
    if not params["enable_evaluation"]:
        for name in ("arrival", "arrival_rate"):
            _reject_if_set(params, name, "without enable_evaluation")
        return params
    if params["arrival"] != "poisson":
        _reject_if_set(params, "arrival_rate", "without arrival poisson")
        return _fill_defaults(params, {"arrival": "closed"})
    if params["arrival_rate"] is None:
        raise ParamError("arrival", "arrival poisson needs an arrival_rate: requests a second")
    return params


def _resolve_data(params: Params) -> Params:
    if params["app"] in ("synthetic", "patterns"):
        for name in ("datapath", "num_workers"):
            _reject_if_set(params, name, f"with app {params['app']}")
        return _fill_defaults(params, {"iterations": 10})
    if params["datapath"] is None:
        raise ParamError("datapath", f"app {params['app']} needs a datapath")
    return params


def check_tf32(params: Params) -> None:
    """Check that tf32 is not requested on the host.

    Raises:
        ParamError: tf32 is requested on the host.
    """
    if params["precision"] == "tf32" and params["device"] == "cpu":
        raise ParamError("precision", "tf32 is a format of GPUs; take fp32, or device cuda")


def may_use_tf32(device: str, precision: str) -> bool:
    """Return whether the device is known to multiply fp32 either as fp32 or as TF32."""
    return device == "cuda" and precision in ("fp32", "tf32")


def _resolve_numbers(params: Params) -> Params:
    if params["precision"] == "int8":
        if not params["enable_evaluation"]:
            raise ParamError("precision", "int8 can infer, not learn; set enable_evaluation")
        if params["device"] == "cuda":
            raise ParamError("device", "int8 infers on device cpu alone")
        params = params | {"device": "cpu"}
    check_tf32(params)
    if params["backend"] == "nccl" and params["device"] == "cpu":
        raise ParamError("backend", "backend nccl carries data of device cuda, not of cpu")
    return params


def _resolve_halo(params: Params) -> Params:
    if "halo_D2" not in params:
        return params
    if params["halo_D2"] and params["sync_batchnorm"] is not None:
        raise ParamError(
            "sync_batchnorm", "sync_batchnorm cannot be had with halo_D2; leave out one of them"
        )
    if not params["halo_D2"]:
        _reject_if_set(params, "fused_layers", "without halo_D2")
        return params
    return _fill_defaults(params, {"fused_layers": 1})


def _resolve_recomputation(params: Params) -> Params:
    """Check that recomputation has an effect and its stages exist."""
    unit = params["recompute"]
    listed_stages = params["recompute_stages"]
    if unit is None:
        _reject_if_set(params, "recompute_stages", "without recompute")
        return params
    if params["enable_evaluation"]:
        _reject_if_set(params, "recompute", "with enable_evaluation")
    if unit == "block" and params.get("halo_D2"):
        raise ParamError("recompute", "layers that share a halo are one: take recompute stage")
    stage_count = len(make_layout(params).stages)
    for stage in listed_stages or ():
        if stage >= stage_count:
            raise ParamError(
                "recompute_stages", f"there is no stage {stage}: the last one is {stage_count - 1}"
            )
        if listed_stages.count(stage) > 1:
            raise ParamError("recompute_stages", f"stage {stage} is listed twice")
    return params


def _check_shares(params: Params) -> None:
    """Check that the layout uses several ranks and the batch has images for all."""
    from spbench_core.layout.micro_batches import check_batch_size

    layout = make_layout(params)
    scheme = params["scheme"]
    if layout.replicas == 1:
        _reject_if_set(params, "sync_batchnorm", "with one replica")
    max_members = max(stage.members for stage in layout.stages)
    if scheme != "sequential":
        if layout.rank_count == 1:
            raise ParamError("split_size", f"{scheme} on one rank is scheme sequential")
        if layout.mirrored and len(layout.stages) == 1:
            raise ParamError(
                "split_size", f"a pipeline of one stage has no mirror; {scheme} takes 2 or more"
            )
    try:
        check_batch_size(
            params["batch_size"], params["parts"], mirrored=layout.mirrored, members=max_members
        )
    except ValueError as error:
        raise ParamError("batch_size", f"batch_size: {error}") from None


def resolve_model(name: str, params: Params) -> Params:
    """Fill in the parameters of a model, and check that it can be built.

    Raises:
        ParamError: The model is unknown, or does not fit the images.
    """
    if name == "resnet" and params["arch"] is None:
        params = _fill_defaults(params, {"version": 2, "depth": 110})
    build_known_model(name, params)
    return params
