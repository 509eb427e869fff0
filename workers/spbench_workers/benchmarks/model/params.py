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

    scheme: str = parameter("choice", "lp", "how the work is shared", choices=SCHEMES)
    image_size: tuple[int, int] = reuse_parameter(
        IMAGE_SIZE, default=32, help="pixels of an image, N or HxW"
    )
    batch_size: int = parameter("int", 32, "images of a step of one replica", minimum=1)
    parts: int = parameter(
        "int", 1, "micro-batches of a step, or of each half of mirrored pipelines", minimum=1
    )
    split_size: int | None = parameter(
        "int",
        None,
        "stages of the model in all rounds, by default 2 per round",
        minimum=1,
        maximum=10_000,
    )
    num_spatial_parts: str | None = parameter(
        "text",
        None,
        "tiles of the spatial stages, one number for all or one for each as in 4,2; else 4",
    )
    spatial_size: int | None = parameter(
        "int", None, "leading stages that work on tiles; else 1", minimum=1
    )
    slice_method: str | None = parameter(
        "text",
        None,
        "vertical cuts the width, horizontal the height, square (default) both; "
        "for all spatial stages, or one for each with commas between",
    )
    grid: str | None = parameter(
        "text", None, "tiles as RxC, in place of slice_method, for all or each spatial stage"
    )
    balance: str | None = parameter(
        "text",
        None,
        "layers of each stage as in 20,18; or by their estimated cost (estimated), or by their "
        "times on rank 0 (measured, default)",
    )
    times: int | None = parameter(
        "int", None, "pairs of halves in a step of mirrored pipelines; else 1", minimum=1
    )
    local_DP: str | None = parameter(
        "text",
        None,
        "ranks that share the images of a stage without tiles, one number for all or one for each "
        "as in 2,1; else 1",
    )
    replicas: int | None = parameter(
        "int", None, "copies of all stages, each with images of its own", minimum=1
    )
    sync_batchnorm: str | None = parameter(
        "choice",
        None,
        "over what batch normalisation is, beside all tiles: all replicas; else each by itself",
        choices=("replicas",),
    )
    halo_D2: bool | None = parameter(
        "bool", None, "whether several layers share one wider halo exchange", optional=True
    )
    fused_layers: int | None = parameter(
        "int",
        None,
        "layers (blocks, cells) that share one, with halo_D2; else 1",
        minimum=1,
        optional=True,
    )
    enable_master_comm_opt: bool | None = parameter(
        "bool",
        None,
        "whether mirrored ranks send weights one way and gradients back, in place of an allreduce",
    )
    recompute: str | None = parameter(
        "choice",
        None,
        "activations that the backward pass computes again, in place of being kept: of a whole "
        "stage, or of each layer (block)",
        choices=("stage", "block"),
    )
    recompute_stages: list[int] | None = parameter(
        "ints",
        None,
        "stages of which they are, the first one 0, with recompute; else all",
        minimum=0,
    )
    schedule: str | None = parameter(
        "choice",
        None,
        "order of micro-batches: backward as soon as it can (1f1b, default), with nearly twice as "
        "many micro-batches ahead (1f1b-deep), with several stages a rank (interleaved), with the "
        "gradients of weights apart from those of data (zb-h1, of lp), or after all forward",
        choices=SCHEDULES,
    )
    rounds: int | None = parameter(
        "int",
        None,
        "stages of each rank with schedule interleaved, one in each round over the ranks; else 2",
        minimum=2,
        maximum=5_000,
    )
    memory_format: Literal["auto", "contiguous", "channels_last"] | None = parameter(
        "choice",
        None,
        "how maps lie in memory: by channels (contiguous, default), or with all channels of a "
        "pixel together; auto times layers both ways and takes the faster",
        choices=("auto", "contiguous", "channels_last"),
    )
    enable_evaluation: bool = parameter("bool", False, "whether nothing is learnt: inference")
    precision: str = parameter(
        "choice",
        "fp32",
        "number format of what is computed",
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
        "what carries messages from stage to stage; else mpi",
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
        "where images come from; patterns are synthetic ones whose classes can be learnt",
        choices=("synthetic", "patterns", "cifar", "medical"),
        spellings={"1": "medical", "2": "cifar", "3": "synthetic"},
    )
    datapath: str | None = parameter("text", None, "the folder or archive of the images")
    num_workers: int | None = parameter(
        "int", None, "threads that prepare the next step's images, a rank; else 0", minimum=0
    )
    num_epochs: int = parameter(
        "int", 1, "epochs, each of `iterations` steps, or a pass over cifar or medical", minimum=1
    )
    warmup: int = reuse_parameter(shared_params.warmup(2))
    iterations: int | None = reuse_parameter(
        shared_params.iterations(10),
        default=None,
        help="timed steps of an epoch, by default 10, or one pass over images of cifar and medical",
    )
    optimizer: str | None = parameter(
        "choice", None, "sgd (default) has a momentum of 0.9", choices=("sgd", "adam", "adamw")
    )
    learning_rate: float | None = parameter(
        "float", None, "of the optimizer; else 0.001", minimum=0
    )
    weight_decay: float | None = parameter("float", None, "of the optimizer; else 0", minimum=0)
    learning_rate_decay: float | None = parameter(
        "float", None, "factor of the learning rate after each epoch; else 1", minimum=0, maximum=1
    )
    arrival: str | None = parameter(
        "choice",
        None,
        "when requests of inference come, each of a step's images: with the answer to the last one "
        "(closed, default), or by themselves at arrival_rate",
        choices=("closed", "poisson"),
    )
    arrival_rate: float | None = parameter(
        "float", None, "requests a second, with arrival poisson", minimum=1e-3, maximum=1e6
    )
    checkpoint: str | None = parameter(
        "text", None, "a file: read if there is one, written when learning"
    )
    checkpoint_every: int | None = parameter(
        "int", None, "steps from one checkpoint to the next", minimum=1
    )
    validate: str = parameter(
        "choice",
        "auto",
        "full (or on) compares all results with one process' at full size; auto does so with a "
        "proxy that costs no more than the measurement, and checks operators, joints and sums of "
        "gradients at full size",
        choices=("auto", "full", "off"),
        spellings={
            **dict.fromkeys(("on", "true", "True", "yes", "1"), "full"),
            **dict.fromkeys(("false", "False", "no", "0"), "off"),
        },
    )
    baseline: bool | None = parameter(
        "bool", None, "whether one process does the same work too; on by default"
    )
    baseline_max: float | None = parameter(
        "float", None, "seconds that the baseline may take, as predicted; else 60", minimum=0
    )
    baseline_memory: int | None = parameter(
        "bytes",
        None,
        "memory that the baseline may take, as predicted, by default half of what is free",
        minimum=1,
    )
    seed: int = reuse_parameter(SEED)


@dataclass(frozen=True, kw_only=True)
class ResnetParams(ModelParams):
    """Parameters of ``model.resnet``."""

    version: int | None = parameter(
        "int", None, "1 as first published, 2 (default) activation first", minimum=1, maximum=2
    )
    depth: int | None = parameter(
        "int", None, "6n+2 of version 1, 9n+2 of version 2; else 110", minimum=8
    )
    arch: str | None = parameter(
        "choice",
        None,
        "the standard form for large images, in place of version and depth",
        choices=("resnet50", "resnet101"),
    )


@dataclass(frozen=True, kw_only=True)
class AmoebanetParams(ModelParams):
    """Parameters of ``model.amoebanet``."""

    num_layers: int = parameter(
        "int", 18, "normal cells, a multiple of 3", minimum=3, maximum=99999
    )
    num_filters: int = parameter(
        "int", 416, "four times the filters of the first convolution", minimum=8, maximum=1 << 20
    )
    pool3: str = parameter(
        "choice",
        "avg",
        "what a pool of 3x3 in the place of the paper's maximum takes; avg as the reference",
        choices=("avg", "max"),
    )
    shift: bool = parameter(
        "bool",
        False,
        "whether the second half of a halving layer reads the odd pixels; off as the reference",
    )


@dataclass(frozen=True, kw_only=True)
class OwnNetworkParams:
    """Parameters of ``model.network``, which are None for other models."""

    network: str | None = parameter(
        "text",
        None,
        "module:callable that returns your network, an nn.Module; the working folder is importable",
        optional=True,
    )
    network_args: Any = parameter(
        "data", None, "all that it is given, by name: {width: 64}", optional=True
    )
    task: str | None = parameter(
        "choice",
        None,
        "what it is for: one class for each image (classify), or one for each pixel (segment); "
        "else as its output says",
        choices=("classify", "segment"),
        optional=True,
    )
    loss: str | None = parameter(
        "choice",
        None,
        "cross entropy (default), of a segmentation the mean over pixels; or one minus the soft "
        "Dice coefficient, the mean over classes (dice, to segment)",
        choices=("cross_entropy", "dice"),
        optional=True,
    )
    weights: str | None = parameter(
        "text",
        None,
        "a file with its state_dict (.pt, .safetensors), to begin with; else drawn",
        optional=True,
    )
    save_weights: str | None = parameter(
        "text", None, "a file that gets its state_dict after the last step", optional=True
    )
    skips: str | None = parameter(
        "choice",
        None,
        "whether tensors that a later stage than the next one reads go straight there, or are "
        "passed along from stage to stage; auto (default) times messages and takes what costs less",
        choices=("auto", "straight", "along"),
        optional=True,
    )
    strict: bool | None = parameter(
        "bool",
        None,
        "with tiles, whether operators that are not there over tiles are refused, in place of "
        "being computed on gathered maps",
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
