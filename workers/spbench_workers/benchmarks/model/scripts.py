"""Scripts of models of MPI4DL and Infer-HiRes, which share one parser."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import PurePath

from spbench_core.catalog.parameters import Params
from spbench_workers.reference_scripts import (
    GivenFlags,
    Script,
    ScriptFlag,
    switch_flag,
    value_flag,
)

_CHECKPOINT = "InferHiRes.pth"
"""The file in the folder of ``--checkpoint``, one for all ranks in any layout."""
_CHECKPOINT_HELP = (
    f"a folder, for {_CHECKPOINT} in it, or a file: read if there is one, written when learning"
)

_SHARED = (
    ScriptFlag("-v", switch_value="true", silent=True, help="each step's loss and accuracy too"),
    value_flag("--batch-size", 32),
    value_flag("--parts", 1),
    value_flag("--split-size", 2),
    value_flag("--num-spatial-parts", 4),
    value_flag("--spatial-size", 1),
    value_flag("--times", 1, help="batches that are loaded for a step, in GEMS alone"),
    value_flag("--image-size", 32),
    value_flag("--num-epochs", 1),
    value_flag("--num-classes", 10),
    value_flag("--balance", None),
    switch_flag("--halo-D2"),
    value_flag("--fused-layers", 1),
    value_flag("--local-DP", 1),
    value_flag("--slice-method", "square"),
    value_flag("--app", 3),
    value_flag("--datapath", "./train"),
    switch_flag("--enable-master-comm-opt"),
    value_flag("--num-workers", 0),
    switch_flag("--enable-evaluation"),
    value_flag("--backend", "mpi"),
    value_flag("--precision", "fp32"),
    value_flag("--checkpoint", None, help=_CHECKPOINT_HELP),
    value_flag("--optimizer", "sgd"),
    value_flag("--learning-rate", 0.001),
    value_flag("--weight-decay", 1e-4),
    value_flag("--learning-rate-decay", 0.85),
)
_CELLS = (value_flag("--num-layers", 18), value_flag("--num-filters", 416))
_NO_CELLS = tuple(
    ScriptFlag(flag.flag, flag.default, help="it is AmoebaNet's; ResNet has --depth")
    for flag in _CELLS
)
_FLAGS = {"resnet": (*_SHARED, *_NO_CELLS), "amoebanet": (*_SHARED, *_CELLS)}
_MIRRORED_HELP = {
    "batch_size": "images per step in each direction of a bidirectional pipeline",
    "times": "batches that are loaded for a step: a pair of halves takes two, and 1 is a pair too",
}
"""Help of flags with another meaning in GEMS than in the other schemes."""
_KINDS = {
    "lp": ("lp", "layer_parallelism/benchmark_{}_lp.py"),
    "sp": ("sp", "spatial_parallelism/benchmark_{}_sp.py"),
    "gems": ("gems", "gems_master_model/benchmark_{}_gems_master.py"),
    "gems_sp": (
        "gems_sp",
        "gems_master_with_spatial_parallelism/benchmark_{}_gems_master_with_sp.py",
    ),
}
"""Scheme and script below ``benchmarks`` by the last part of an alias."""


def _flags(model: str, scheme: str) -> tuple[ScriptFlag, ...]:
    """Return the flags of a model's script for a scheme."""
    if not scheme.startswith("gems"):
        return _FLAGS[model]
    return tuple(
        replace(flag, help=_MIRRORED_HELP.get(flag.name, flag.help)) for flag in _FLAGS[model]
    )


def _adapt_checkpoint(params: Params, _: GivenFlags) -> Params:
    """Return the parameters with a checkpoint's folder turned into its file."""
    path = params.get("checkpoint")
    if path is not None and not PurePath(path).suffix:
        return params | {"checkpoint": str(PurePath(path) / _CHECKPOINT)}
    return params


def _adapt_mirrored(params: Params, explicit: GivenFlags) -> Params:
    """Adapt parameters to mirrored pipelines, with ``--batch-size`` per direction.

    A pair has 2 B images; ``--times T`` loads T B images, which are T / 2 pairs.
    """
    try:
        batch = int(params["batch_size"])
        times = int(params["times"])
    except ValueError:  # the catalog has a better message
        return _adapt_checkpoint(params, explicit)
    if batch < 1 or times < 1:
        return _adapt_checkpoint(params, explicit)
    pairs = {"batch_size": 2 * batch, "times": max(1, times // 2)}
    return _adapt_checkpoint(params | pairs, explicit)


def _adapt_depth(params: Params, explicit: GivenFlags) -> Params:
    """Adapt the parameters: a version or depth replaces the script's ResNet-50."""
    if {"version", "depth"} & set(explicit) and "arch" not in explicit:
        params = {name: value for name, value in params.items() if name != "arch"}
    return _adapt_checkpoint(params, explicit)


_make_script = partial(Script, adapt=_adapt_checkpoint)

SCRIPTS = (
    *(
        _make_script(
            f"{model}_{kind}",
            f"benchmarks/{file.format(model)}",
            f"model.{model}",
            _flags(model, scheme),
            fixed={"scheme": scheme},
            adapt=_adapt_mirrored if scheme.startswith("gems") else _adapt_checkpoint,
        )
        for model in _FLAGS
        for kind, (scheme, file) in _KINDS.items()
    ),
    _make_script(
        "resnet_inference",
        "benchmarks/single_gpu_inference/benchmark_resnet_inference.py",
        "model.resnet",
        (*_FLAGS["resnet"], value_flag("--arch", "resnet50")),
        fixed={"scheme": "sequential", "enable_evaluation": "true"},
        adapt=_adapt_depth,
    ),
)
