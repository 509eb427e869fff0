"""Parameters of the model benchmarks, with the names of MPI4DL and Infer-HiRes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from spbench_core.catalog import shared_params
from spbench_core.catalog.shared_params import DEVICE, DEVICE_IDS, SEED
from spbench_core.catalog.tiles import IMAGE_SIZE
from spbench_core.catalog.typed_params import parameter, params_of, reuse_parameter
from spbench_core.schedule.orders import SCHEDULES

_FORMATS = "fp32", "fp64", "tf32", "fp16", "bf16"
SCHEMES = ("sequential", "lp", "sp", "gems", "gems_sp")


@dataclass(frozen=True, kw_only=True)
class ModelParams:
    """Parameters of all models over many ranks; user networks have only some."""

    scheme: str = parameter("choice", "lp", "scheme of parallelism", choices=SCHEMES)
    image_size: tuple[int, int] = reuse_parameter(
        IMAGE_SIZE, default=32, help="size of an image in pixels, N or HxW"
    )
    batch_size: int = parameter("int", 32, "images per step and replica", minimum=1)
    parts: int = parameter(
        "int", 1, "micro-batches per step, or per half of a bidirectional pipeline", minimum=1
    )
    split_size: int | None = parameter(
        "int",
        None,
        "number of stages in all rounds; default: 2 per round",
        minimum=1,
        maximum=10_000,
    )
    num_spatial_parts: str | None = parameter(
        "text",
        None,
        "tiles of the spatial stages, one number for all or one each such as 4,2; default 4",
    )
    spatial_size: int | None = parameter(
        "int", None, "number of leading stages that work on tiles; default 1", minimum=1
    )
    slice_method: str | None = parameter(
        "text",
        None,
        "vertical divides the width, horizontal the height, square (default) both; one for "
        "all spatial stages, or a list with one each",
    )
    grid: str | None = parameter(
        "text",
        None,
        "rows and columns of tiles as RxC, instead of slice_method, for all or each spatial stage",
    )
    balance: str | None = parameter(
        "text",
        None,
        "layers of each stage such as 20,18, or balanced by estimated cost (estimated) or by "
        "times on rank 0 (measured, default)",
    )
    times: int | None = parameter(
        "int", None, "pairs of halves per step of a bidirectional pipeline; default 1", minimum=1
    )
    local_DP: str | None = parameter(
        "text",
        None,
        "ranks that share the images of a stage without tiles, one number for all or one "
        "each such as 2,1; default 1",
    )
    replicas: int | None = parameter(
        "int", None, "number of copies of all stages, each with its own images", minimum=1
    )
    sync_batchnorm: str | None = parameter(
        "choice",
        None,
        "ranks that share batch normalisation in addition to the tiles: all replicas, or "
        "each replica on its own",
        choices=("replicas",),
    )
    halo_D2: bool | None = parameter(
        "bool", None, "whether several layers share one wider halo exchange", optional=True
    )
    fused_layers: int | None = parameter(
        "int",
        None,
        "layers (blocks, cells) that share an exchange, with halo_D2; default 1",
        minimum=1,
        optional=True,
    )
    enable_master_comm_opt: bool | None = parameter(
        "bool",
        None,
        "whether mirrored ranks send weights in one direction and gradients back, instead of "
        "an allreduce",
    )
    recompute: str | None = parameter(
        "choice",
        None,
        "activations that the backward pass computes again instead of keeping them: of a "
        "whole stage, or of each layer (block)",
        choices=("stage", "block"),
    )
    recompute_stages: list[int] | None = parameter(
        "ints",
        None,
        "stages that recompute, from 0, with recompute; default all",
        minimum=0,
    )
    schedule: str | None = parameter(
        "choice",
        None,
        "order of micro-batches: backward as early as possible (1f1b, default), with nearly "
        "twice as many micro-batches in flight (1f1b-deep), with several stages per rank "
        "(interleaved), with deferred weight gradients (zb-h1, only lp), or backward after "
        "all forward passes",
        choices=SCHEDULES,
    )
    rounds: int | None = parameter(
        "int",
        None,
        "stages per rank with schedule interleaved, one in each round over the ranks; default 2",
        minimum=2,
        maximum=5_000,
    )
    memory_format: Literal["auto", "contiguous", "channels_last"] | None = parameter(
        "choice",
        None,
        "memory layout of maps: by channels (contiguous, default), or with the channels of a "
        "pixel adjacent; auto times both and uses the faster",
        choices=("auto", "contiguous", "channels_last"),
    )
    enable_evaluation: bool = parameter(
        "bool", False, "whether only inference runs, without training"
    )
    precision: str = parameter(
        "choice",
        "fp32",
        "number format of the computation",
        choices=("fp32", "fp64", "tf32", "fp16", "bf16", "int8"),
        spellings={
            "fp_32": "fp32",
            "fp_64": "fp64",
            "tf_32": "tf32",
            "fp_16": "fp16",
            "bf_16": "bf16",
            "bfp_16": "bf16",
            "bp_16": "bf16",
            "int_8": "int8",
        },
    )
    backend: str | None = parameter(
        "choice",
        None,
        "library that transfers messages between stages; default mpi",
        choices=("mpi", "nccl", "gloo"),
    )
    device: str = reuse_parameter(DEVICE)
    device_ids: list[int] | None = reuse_parameter(DEVICE_IDS)
    num_classes: int | None = parameter(
        "int", 10, "classes of the last layer", minimum=1, optional=True
    )
    app: str = parameter(
        "choice",
        "synthetic",
        "source of the images; patterns are synthetic images whose classes can be learnt",
        choices=("synthetic", "patterns", "cifar", "medical"),
        spellings={"1": "medical", "2": "cifar", "3": "synthetic"},
    )
    datapath: str | None = parameter("text", None, "folder or archive of the images")
    num_workers: int | None = parameter(
        "int",
        None,
        "threads per rank that prepare the images of the next step; default 0",
        minimum=0,
    )
    num_epochs: int = parameter(
        "int",
        1,
        "number of epochs, each of `iterations` steps, or one pass over cifar or medical",
        minimum=1,
    )
    warmup: int = reuse_parameter(shared_params.warmup(2))
    iterations: int | None = reuse_parameter(
        shared_params.iterations(10),
        default=None,
        help="timed steps per epoch; default: 10, or one pass over the images of cifar and medical",
    )
    optimizer: str | None = parameter(
        "choice",
        None,
        "sgd (default) has a momentum of 0.9",
        choices=("sgd", "adam", "adamw"),
    )
    learning_rate: float | None = parameter(
        "float", None, "learning rate of the optimizer; default 0.001", minimum=0
    )
    weight_decay: float | None = parameter(
        "float", None, "weight decay of the optimizer; default 0", minimum=0
    )
    learning_rate_decay: float | None = parameter(
        "float",
        None,
        "factor of the learning rate after each epoch; default 1",
        minimum=0,
        maximum=1,
    )
    arrival: str | None = parameter(
        "choice",
        None,
        "arrival of inference requests, each with the images of a step: after the previous "
        "answer (closed, default), or at random with arrival_rate (poisson)",
        choices=("closed", "poisson"),
    )
    arrival_rate: float | None = parameter(
        "float", None, "requests per second, with arrival poisson", minimum=1e-3, maximum=1e6
    )
    checkpoint: str | None = parameter(
        "text", None, "file of the checkpoint: read if it exists, written in training"
    )
    checkpoint_every: int | None = parameter(
        "int", None, "steps between two checkpoints", minimum=1
    )
    validate: str = parameter(
        "choice",
        "auto",
        "full (or on) compares all results with those of one process at full size; auto "
        "compares those of a smaller proxy, and checks operators, stage boundaries and "
        "gradient sums at full size",
        choices=("auto", "full", "off"),
        spellings={
            **dict.fromkeys(("on", "true", "True", "yes", "1"), "full"),
            **dict.fromkeys(("false", "False", "no", "0"), "off"),
        },
    )
    baseline: bool | None = parameter(
        "bool", None, "whether one process also does the same work, as a reference; default on"
    )
    baseline_max: float | None = parameter(
        "float",
        None,
        "limit of the predicted time of the baseline in seconds; default 60",
        minimum=0,
    )
    baseline_memory: int | None = parameter(
        "bytes",
        None,
        "limit of the predicted memory of the baseline; default: half of the free memory",
        minimum=1,
    )
    seed: int = reuse_parameter(SEED)


@dataclass(frozen=True, kw_only=True)
class ResnetParams(ModelParams):
    """Parameters of ``model.resnet``."""

    version: int | None = parameter(
        "int",
        None,
        "1 as first published, 2 (default) with activation first",
        minimum=1,
        maximum=2,
    )
    depth: int | None = parameter(
        "int", None, "6n+2 for version 1, 9n+2 for version 2; default 110", minimum=8
    )
    arch: str | None = parameter(
        "choice",
        None,
        "standard architecture for large images, instead of version and depth",
        choices=("resnet50", "resnet101"),
    )


@dataclass(frozen=True, kw_only=True)
class AmoebanetParams(ModelParams):
    """Parameters of ``model.amoebanet``."""

    num_layers: int = parameter(
        "int", 18, "number of normal cells, a multiple of 3", minimum=3, maximum=99999
    )
    num_filters: int = parameter(
        "int", 416, "four times the filters of the first convolution", minimum=8, maximum=1 << 20
    )
    pool3: str = parameter(
        "choice",
        "avg",
        "3x3 pooling, which is the maximum in the paper; avg as in the reference implementation",
        choices=("avg", "max"),
    )
    shift: bool = parameter(
        "bool",
        False,
        "whether the second half of a halving layer reads the odd pixels; off as in the "
        "reference implementation",
    )


@dataclass(frozen=True, kw_only=True)
class OwnNetworkParams:
    """Parameters of ``model.network``, which are None for other models."""

    network: str | None = parameter(
        "text",
        None,
        "module:callable that returns your network, an nn.Module; modules in the working "
        "folder can be imported",
        optional=True,
    )
    network_args: Any = parameter(
        "data", None, "arguments of the callable by name, such as {width: 64}", optional=True
    )
    task: str | None = parameter(
        "choice",
        None,
        "one class per image (classify), or per pixel (segment); default: according to the output",
        choices=("classify", "segment"),
        optional=True,
    )
    loss: str | None = parameter(
        "choice",
        None,
        "cross entropy (default), mean over pixels in segmentation; or dice (only "
        "segmentation), one minus the soft Dice coefficient, mean over classes",
        choices=("cross_entropy", "dice"),
        optional=True,
    )
    weights: str | None = parameter(
        "text",
        None,
        "file with the initial state_dict (.pt, .safetensors); default random",
        optional=True,
    )
    save_weights: str | None = parameter(
        "text", None, "file for the state_dict after the last step", optional=True
    )
    skips: str | None = parameter(
        "choice",
        None,
        "whether tensors for later stages are sent to them directly (straight), or from "
        "stage to stage (along); auto (default) times messages and uses the cheaper one",
        choices=("auto", "straight", "along"),
        optional=True,
    )
    strict: bool | None = parameter(
        "bool",
        None,
        "with tiles, whether operators without a tiled implementation are rejected instead "
        "of computed on gathered maps",
        optional=True,
    )


COMMON = params_of(ModelParams)
RESNET = params_of(ResnetParams)[len(COMMON) :]
AMOEBANET = params_of(AmoebanetParams)[len(COMMON) :]
OWN_NETWORK = params_of(OwnNetworkParams)
NETWORK = tuple(param for param in COMMON if param.name in ("image_size", "num_classes"))
"""Parameters that all networks have."""

_NOT_OF_IMPORTS = frozenset({"halo_D2", "fused_layers", "num_classes"})
IMPORTED = tuple(
    replace(param, choices=_FORMATS) if param.name == "precision" else param
    for param in COMMON
    if param.name not in _NOT_OF_IMPORTS
)
"""Parameters that user networks share with the other models."""
