"""Catalog of models over many ranks, learning or inferring: ResNet, AmoebaNet-D, one's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from spbench_core.catalog.benchmark import (
    TIME_MS,
    Benchmark,
    IdleParamError,
    Metric,
    ParamError,
)
from spbench_core.catalog.model_layout import (
    MIRRORED,
    TILED,
    layout_of,
    model_place,
    model_ranks,
    resolve_balance,
    resolve_grids,
    resolve_imports_balance,
    resolve_members,
)
from spbench_core.catalog.model_params import (
    AMOEBANET,
    COMMON,
    IMPORTED,
    OWN_NETWORK,
    RESNET,
    SCHEMES,
    check_tf32,
    multiplies_either_way,
)
from spbench_core.catalog.model_rounds import check_round_members, resolve_rounds
from spbench_core.catalog.model_scaling import scaled_model
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.shared_params import resolve_device_ids
from spbench_core.layout.tiles import parse_pair
from spbench_core.schedule.orders import INTERLEAVED, ZERO_BUBBLE

if TYPE_CHECKING:
    from spbench_core.layout.stages import ModelLayout
    from spbench_core.models.layers import Model

BASELINE_MAX = 60.0
"""Seconds that the baseline on one process may take, where nothing is said of it."""
_PIPELINES = tuple(scheme for scheme in SCHEMES if scheme != "sequential")
_OF_SCHEMES: dict[str, tuple[tuple[str, ...], Any]] = {
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
"""Parameters that only some schemes read, and their defaults there."""
_ONLY_PIPELINES = frozenset(_OF_SCHEMES) | {"rounds"}
_OF_LEARNING: dict[str, Any] = {
    "schedule": None,
    "enable_master_comm_opt": None,
    "optimizer": "sgd",
    "learning_rate": 0.001,
    "weight_decay": 0.0,
    "learning_rate_decay": 1.0,
    "checkpoint_every": None,
    "sync_batchnorm": None,
}
"""Parameters that do nothing where nothing is learnt."""


def resolve(name: str, params: Params) -> Params:
    """Fill in the parameters that follow from others.

    Raises:
        ParamError: A parameter contradicts another, does nothing, or asks for a model, a balance or
            tiles that cannot be.
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
    params = with_model(name, params)
    if params["scheme"] == "sequential":
        return params
    return resolve_balance(params, model_of(name, params))


def _resolve_import(params: Params) -> Params:
    """Check what can be known of a network of the user's own before it is loaded.

    Raises:
        ParamError: It is no ``module:callable``, or the balance is not one of so many stages.
    """
    if params["network"] is None:
        raise ParamError("network", "there is no network: give module:callable")
    module, _, function = params["network"].partition(":")
    if not all(map(str.isidentifier, (*module.split("."), function))):
        raise ParamError("network", f"network {params['network']!r} is no module:callable")
    if params["enable_evaluation"]:
        _refuse(params, "save_weights", "with enable_evaluation")
    arguments = params["network_args"]
    if arguments is not None and not isinstance(arguments, dict):
        raise ParamError("network_args", "network_args are a mapping of names to values")
    if params["scheme"] == "sequential":
        return params
    return resolve_imports_balance(params)


def _check_schedule(params: Params) -> None:
    schedule, scheme = params["schedule"], params["scheme"]
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


def model_of(name: str, params: Params) -> Model:
    """Return the model of complete parameters.

    Raises:
        ParamError: There is no such model, or not for such images.
    """
    from spbench_core.models.layers import ModelError
    from spbench_core.models.registry import model

    own = AMOEBANET if name == "amoebanet" else RESNET
    try:
        return model(
            name,
            image_size=parse_pair(params["image_size"]),
            num_classes=params["num_classes"],
            **{param.name: params[param.name] for param in own},
        )
    except ModelError as error:
        raise ParamError(error.param, str(error)) from None


def _refuse(params: Params, name: str, why: str) -> None:
    if params[name] is not None:
        raise IdleParamError(name, why)


def _filled(params: Params, defaults: Mapping[str, Any]) -> Params:
    return params | {name: default for name, default in defaults.items() if params[name] is None}


def _resolve_scheme(params: Params) -> Params:
    scheme = params["scheme"]
    defaults = {}
    for name, (schemes, default) in _OF_SCHEMES.items():
        if name not in params:  # fused layers are not for every network
            continue
        if scheme in schemes:
            defaults[name] = default
        elif name != "baseline" or params[name]:
            # One process has no baseline anyway: leaving it out for a whole suite is no mistake.
            _refuse(params, name, f"in scheme {scheme}, only in {', '.join(schemes)}")
    if params["enable_evaluation"]:
        defaults = {name: value for name, value in defaults.items() if name not in _OF_LEARNING}
    return _filled(params, defaults)


def _resolve_learning(params: Params) -> Params:
    if params["enable_evaluation"]:
        for name in _OF_LEARNING:
            # Whatever the order, inference is the same; but not with more stages a rank.
            if params[name] != INTERLEAVED:
                _refuse(params, name, "with enable_evaluation")
        return params
    params = _filled(params, _OF_LEARNING)
    if params["checkpoint"] is None:
        _refuse(params, "checkpoint_every", "without checkpoint")
    if params["learning_rate_decay"] != 1 and params["num_epochs"] == 1:
        advice = "take num_epochs 2 or more"
        raise IdleParamError("learning_rate_decay", "in one epoch", advice)
    return params


def _resolve_baseline(params: Params) -> Params:
    if params["baseline"]:
        return _filled(params, {"baseline_max": BASELINE_MAX})
    for name in ("baseline_max", "baseline_memory"):
        _refuse(params, name, "without baseline")
    return params


def _resolve_load(params: Params) -> Params:
    """Fill in the load of inference.

    Raises:
        ParamError: A load is asked for that does nothing, or that has no rate.
    """
    if not params["enable_evaluation"]:
        for name in ("arrival", "arrival_rate"):
            _refuse(params, name, "without enable_evaluation")
        return params
    if params["arrival"] != "poisson":
        _refuse(params, "arrival_rate", "without arrival poisson")
        return _filled(params, {"arrival": "closed"})
    if params["arrival_rate"] is None:
        raise ParamError("arrival", "arrival poisson needs an arrival_rate: requests a second")
    return params


def _resolve_data(params: Params) -> Params:
    if params["app"] in ("synthetic", "patterns"):
        for name in ("datapath", "num_workers"):
            _refuse(params, name, f"with app {params['app']}")
        return _filled(params, {"iterations": 10})
    if params["datapath"] is None:
        raise ParamError("datapath", f"app {params['app']} needs a datapath")
    return params


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
        _refuse(params, "fused_layers", "without halo_D2")
        return params
    return _filled(params, {"fused_layers": 1})


def _resolve_recomputation(params: Params) -> Params:
    """Refuse to compute again what is not kept, or of stages that there are not."""
    kind, chosen = params["recompute"], params["recompute_stages"]
    if kind is None:
        _refuse(params, "recompute_stages", "without recompute")
        return params
    if params["enable_evaluation"]:
        _refuse(params, "recompute", "with enable_evaluation")
    if kind == "block" and params.get("halo_D2"):
        raise ParamError("recompute", "layers that share a halo are one: take recompute stage")
    stages = len(layout_of(params).stages)
    for stage in chosen or ():
        if stage >= stages:
            raise ParamError(
                "recompute_stages", f"there is no stage {stage}: the last one is {stages - 1}"
            )
        if chosen.count(stage) > 1:
            raise ParamError("recompute_stages", f"stage {stage} is listed twice")
    return params


def _check_shares(params: Params) -> None:
    """Refuse a layout that shares nothing, and a batch too small for its shares."""
    from spbench_core.layout.micro_batches import check_images

    layout, scheme = layout_of(params), params["scheme"]
    if layout.replicas == 1:
        _refuse(params, "sync_batchnorm", "with one replica")
    members = max(stage.members for stage in layout.stages)
    if scheme != "sequential":
        if layout.ranks == 1:
            raise ParamError("split_size", f"{scheme} on one rank is scheme sequential")
        if layout.mirrored and len(layout.stages) == 1:
            raise ParamError(
                "split_size", f"a pipeline of one stage has no mirror; {scheme} takes 2 or more"
            )
    try:
        check_images(
            params["batch_size"], params["parts"], mirrored=layout.mirrored, members=members
        )
    except ValueError as error:
        raise ParamError("batch_size", f"batch_size: {error}") from None


def with_model(name: str, params: Params) -> Params:
    """Fill in the model's own parameters, and refuse a model that cannot be built.

    Raises:
        ParamError: There is no such model, or not for such images.
    """
    if name == "resnet" and params["arch"] is None:
        params = _filled(params, {"version": 2, "depth": 110})
    model_of(name, params)
    return params


def _phase(name: str, what: str) -> Metric:
    """Return the metric of a phase of a rank's step."""
    return Metric(f"{name}_ms", "ms", "lower", what, part_of=TIME_MS.name)


_METRICS = (
    TIME_MS,
    Metric(
        "images_per_second", "1/s", "higher", "images of all replicas over the step's time", "min"
    ),
    _phase("forward", "forward work of a rank in a step, images made or read"),
    _phase("backward", "backward work of a rank in a step"),
    _phase("exchange", "halo exchange of a rank in a step"),
    _phase("join", "what passes from stage to stage, waits left out"),
    _phase("allreduce", "sums of gradients and statistics over ranks"),
    _phase("optimizer", "the update of the weights"),
    _phase("bubble", "a rank's wait for other stages, and for the next step"),
    Metric("bubble", "1", "lower", "share of the ranks' time in which they wait", "mean"),
    Metric("ideal_bubble", "1", "none", "the same of the schedule, its stages equally long"),
    Metric("peak_memory_mb", "MB", "lower", "the most memory of a rank"),
    Metric(
        "activation_mb", "MB", "lower", "the most that autograd keeps, in a step of the warm-up"
    ),
    Metric("parameter_mb", "MB", "none", "weights, their gradients and the optimizer's state"),
    Metric("halo_mb", "MB", "none", "halos and their gradients that a rank sends and receives"),
    Metric("message_mb", "MB", "none", "buffers of messages between stages"),
    Metric("bytes_sent", "B", "none", "bytes that a rank sends in a step"),
    Metric("messages_sent", "1", "none", "messages of a rank in a step"),
    Metric("parameters", "1", "none", "trainable parameters in use"),
    Metric("loss", "1", "none", "cross entropy of the last step"),
    Metric("epoch_loss", "1", "none", "cross entropy of the last epoch's images"),
    Metric("accuracy", "1", "none", "share of them whose class had the largest logit"),
    Metric("skipped_steps", "1", "none", "steps of fp16 whose gradients were too large to be used"),
    Metric(
        "judged_images", "1", "none", "inferred images of which accuracy, loss and agreement are"
    ),
    Metric("latency_ms", "ms", "lower", "inference of a request, from its arrival to its answer"),
    Metric(
        "offered_load",
        "1",
        "none",
        "arrival_rate times the work on a request: above 1 they pile up",
    ),
    Metric("top1", "1", "higher", "share of images whose class has the largest logit"),
    Metric("top5", "1", "higher", "share of images whose class is among the five largest"),
    Metric("eval_loss", "1", "lower", "cross entropy of what is inferred"),
    Metric("agreement", "1", "higher", "share of images of the same class as in fp32"),
    Metric("logit_error", "1", "lower", "largest change of a logit by the format, over fp32's"),
    Metric("int8_share", "1", "higher", "share of the multiply-adds that are done in int8", "min"),
    Metric("sequential_ms", "ms", "none", "one process' time for as many images"),
    Metric("speedup_vs_sequential", "1", "higher", "sequential_ms over time_ms"),
    Metric("efficiency", "1", "higher", "that over the number of ranks"),
)
FULL_SIZE = ("operators", "scales", "joints", "sums", "updates")
"""Checks at full size, of which no rank needs to hold more than its own part."""
_OF_16_BITS = ("fp16", "bf16")
_CHECKS = (
    *("output", "loss", "input_grad", "grad", "running_stats", "weights", "slope", "products"),
    *("latency", "bits"),
    *FULL_SIZE,
)
_OF_INFERENCE = ("output", "products", "latency", "bits", "operators", "scales", "joints")
_OF_STEPS = (
    "drop-gradient",
    "mean-instead-of-sum",
    "tile-batchnorm",
    "wrong-neighbour",
    "skipped-microbatch",
    "lost-halo-gradient",
    "zero-weight-gradient",
    "zero-input-gradient",
    "scale-weight-gradient",
    "scale-input-gradient",
    "drop-tile",
)
_OF_IMPORTS = ("lost-tile-sum",)
FAULTS_OF_LEARNING = frozenset((*_OF_STEPS, *_OF_IMPORTS)) - {
    "wrong-neighbour",
    "skipped-microbatch",
}
"""Faults of gradients and statistics, which inference has none of."""
_FAULTS = (*_OF_STEPS, "uncounted-wait")
FULL_SIZE_FAULTS = tuple(f"full:{fault}" for fault in _OF_STEPS)
"""The same faults, planted at full size alone."""


def _checks(checks: tuple[str, ...], params: Params) -> tuple[str, ...]:
    """Return the checks of these parameters.

    Inference has outputs alone, and latencies under an open load; slopes of the loss need the whole
    model on one process. Products are compared on GPUs alone, so ``auto`` does not promise them.
    """
    if params["validate"] == "off":
        return ()
    left_out = set() if multiplies_either_way(params) else {"products"}
    if params["scheme"] != "sequential":
        left_out.add("slope")
    if params["arrival"] != "poisson":
        left_out.add("latency")
    if params["enable_evaluation"]:
        left_out |= set(checks) - set(_OF_INFERENCE)
    layout = layout_of(params)
    if not checks_full_size(params):
        left_out |= set(FULL_SIZE)
    if len(layout.stages) == 1:
        left_out.add("joints")
    if not _checks_operators(params, layout):
        left_out |= {"operators", "scales"}
    if not _keeps_bits(params, layout):
        left_out.add("bits")
    return tuple(name for name in checks if name not in left_out)


def _faults(faults: tuple[str, ...], params: Params) -> tuple[str, ...]:
    """Return the faults that change anything: those of learning where something is learnt."""
    if not params["enable_evaluation"]:
        return faults
    return tuple(one for one in faults if one.removeprefix("full:") not in FAULTS_OF_LEARNING)


def checks_full_size(params: Params) -> bool:
    """Return whether a step at full size is checked: with auto, and always in 16 bits."""
    narrow = params["precision"] in _OF_16_BITS
    return params["validate"] == "auto" or (narrow and params["validate"] != "off")


def _checks_operators(params: Params, layout: ModelLayout) -> bool:
    """Return whether operators are computed again: those of several ranks, and in 16 bits all.

    Those that ``halo_D2`` fuses are not, and of a network of the user's own those of several ranks
    alone: nobody knows what else there is in it.
    """
    if params["precision"] in _OF_16_BITS and "network" not in params:
        return not params["halo_D2"] or not all(stage.spatial for stage in layout.stages)
    shared = any(stage.ranks > 1 for stage in layout.stages) or params["sync_batchnorm"]
    return bool(shared) and not params.get("halo_D2")


def _keeps_bits(params: Params, layout: ModelLayout) -> bool:
    """Return whether one process adds all up in the same order, so that bits are the same."""
    alone = all(stage.ranks == 1 for stage in layout.stages) and layout.replicas == 1
    return (
        params["precision"] in _OF_16_BITS
        and alone
        and not layout.mirrored
        and len(layout.stages) > 1
    )


BENCHMARKS = tuple(
    Benchmark(
        name=f"model.{name}",
        summary=f"{title} over many ranks: stages, tiles, mirrored pipelines, replicas",
        runs_in="parallel.benchmark",
        checked_in="models.imported.parameters" if name == "network" else None,
        params=params,
        metrics=_METRICS,
        checks=_CHECKS,
        faults=(*_FAULTS, *FULL_SIZE_FAULTS, *(_OF_IMPORTS if name == "network" else ())),
        resolve=partial(resolve, name),
        ranks=model_ranks,
        scaled=partial(scaled_model, _ONLY_PIPELINES),
        throughput="images_per_second",
        choose_checks=_checks,
        choose_faults=_faults,
        own_lines=True,
        says_passed=True,
        place=model_place,
        begins_with={"network": "torchvision.models:resnet18"} if name == "network" else {},
    )
    for name, title, params in (
        ("resnet", "a residual network", (*COMMON, *RESNET)),
        ("amoebanet", "AmoebaNet-D", (*COMMON, *AMOEBANET)),
        ("network", "a network of your own", (*OWN_NETWORK, *IMPORTED)),
    )
)
