"""Parameters of the model benchmarks, by the names and spellings of MPI4DL's and Infer-HiRes'."""

from __future__ import annotations

from dataclasses import replace

from spbench_core.catalog.benchmark import ParamError
from spbench_core.catalog.parameters import Param, Params
from spbench_core.catalog.shared_params import DEVICE, DEVICE_IDS, SEED, iterations, warmup
from spbench_core.catalog.tiles import IMAGE_SIZE
from spbench_core.schedule.orders import SCHEDULES

SCHEMES = ("sequential", "lp", "sp", "gems", "gems_sp")

_SPLIT = (
    Param(
        "split_size",
        "int",
        None,
        "stages of the model, of all rounds; else 2 a round",
        minimum=1,
        maximum=10_000,
    ),
    Param(
        "num_spatial_parts",
        "text",
        None,
        "tiles of the spatial stages, one number for all or one for each as in 4,2; else 4",
    ),
    Param("spatial_size", "int", None, "leading stages that work on tiles; else 1", minimum=1),
    Param(
        "slice_method",
        "text",
        None,
        "vertical cuts the width, horizontal the height, square (default) both; "
        "for all spatial stages, or one for each with commas between",
    ),
    Param(
        "grid",
        "text",
        None,
        "tiles as RxC, in place of slice_method, for all or each spatial stage",
    ),
    Param(
        "balance",
        "text",
        None,
        "layers of each stage as in 20,18; or by their estimated cost (estimated), or by their "
        "times on rank 0 (measured, default)",
    ),
    Param("times", "int", None, "pairs of halves in a step of mirrored pipelines; else 1", 1),
    Param(
        "local_DP",
        "text",
        None,
        "ranks that share the images of a stage without tiles, one number for all or one for each "
        "as in 2,1; else 1",
    ),
    Param("replicas", "int", None, "copies of all stages, each with images of its own", 1),
    Param(
        "sync_batchnorm",
        "choice",
        None,
        "over what batch normalisation is, beside all tiles: all replicas; else each by itself",
        choices=("replicas",),
    ),
)
_SPEED = (
    Param("halo_D2", "bool", None, "whether several layers share one wider halo exchange"),
    Param(
        "fused_layers",
        "int",
        None,
        "layers (blocks, cells) that share one, with halo_D2; else 1",
        minimum=1,
    ),
    Param(
        "enable_master_comm_opt",
        "bool",
        None,
        "whether mirrored ranks send weights one way and gradients back, in place of an allreduce",
    ),
    Param(
        "recompute",
        "choice",
        None,
        "activations that the backward pass computes again, in place of being kept: of a whole "
        "stage, or of each layer (block)",
        choices=("stage", "block"),
    ),
    Param(
        "recompute_stages",
        "ints",
        None,
        "stages of which they are, the first one 0, with recompute; else all",
        minimum=0,
    ),
    Param(
        "schedule",
        "choice",
        None,
        "order of micro-batches: backward as soon as it can (1f1b, default), with nearly twice as "
        "many micro-batches ahead (1f1b-deep), with several stages a rank (interleaved), with the "
        "gradients of weights apart from those of data (zb-h1, of lp), or after all forward",
        choices=SCHEDULES,
    ),
    Param(
        "rounds",
        "int",
        None,
        "stages of each rank with schedule interleaved, one in each round over the ranks; else 2",
        minimum=2,
        maximum=5_000,
    ),
)
_NUMBERS = (
    Param(
        "memory_format",
        "choice",
        None,
        "how maps lie in memory: by channels (contiguous, default), or with all channels of a "
        "pixel together; auto times layers both ways and takes the faster",
        choices=("auto", "contiguous", "channels_last"),
    ),
    Param("enable_evaluation", "bool", False, "whether nothing is learnt: inference"),
    Param(
        "precision",
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
    ),
    Param(
        "backend",
        "choice",
        None,
        "what carries messages from stage to stage; else mpi",
        choices=("mpi", "nccl", "gloo"),
    ),
    DEVICE,
    DEVICE_IDS,
)
_DATA = (
    Param(
        "app",
        "choice",
        "synthetic",
        "where images come from; patterns are synthetic ones whose classes can be learnt",
        choices=("synthetic", "patterns", "cifar", "medical"),
        spellings={"1": "medical", "2": "cifar", "3": "synthetic"},
    ),
    Param("datapath", "text", None, "the folder or archive of the images"),
    Param(
        "num_workers",
        "int",
        None,
        "threads that prepare the next step's images, a rank; else 0",
        minimum=0,
    ),
    Param(
        "num_epochs",
        "int",
        1,
        "epochs, each of `iterations` steps, or a pass over cifar or medical",
        minimum=1,
    ),
    warmup(2),
    replace(
        iterations(10),
        default=None,
        help="timed steps of an epoch; else 10, or a pass over the images of cifar and medical",
    ),
)
_LOAD = (
    Param(
        "arrival",
        "choice",
        None,
        "when requests of inference come, each of a step's images: with the answer to the last one "
        "(closed, default), or by themselves at arrival_rate",
        choices=("closed", "poisson"),
    ),
    Param(
        "arrival_rate",
        "float",
        None,
        "requests a second, with arrival poisson",
        minimum=1e-3,
        maximum=1e6,
    ),
)
_LEARNING = (
    Param(
        "optimizer",
        "choice",
        None,
        "sgd (default) has a momentum of 0.9",
        choices=("sgd", "adam", "adamw"),
    ),
    Param("learning_rate", "float", None, "of the optimizer; else 0.001", minimum=0),
    Param("weight_decay", "float", None, "of the optimizer; else 0", minimum=0),
    Param(
        "learning_rate_decay",
        "float",
        None,
        "factor of the learning rate after each epoch; else 1",
        minimum=0,
        maximum=1,
    ),
    *_LOAD,
    Param("checkpoint", "text", None, "a file: read if there is one, written when learning"),
    Param("checkpoint_every", "int", None, "steps from one checkpoint to the next", minimum=1),
)

_COMPARING = (
    Param(
        "validate",
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
    ),
    Param("baseline", "bool", None, "whether one process does the same work too; on by default"),
    Param(
        "baseline_max",
        "float",
        None,
        "seconds that the baseline may take, as predicted; else 60",
        minimum=0,
    ),
    Param(
        "baseline_memory",
        "bytes",
        None,
        "memory that the baseline may take, as predicted; else half of what is free",
        minimum=1,
    ),
)

NETWORK = (
    replace(IMAGE_SIZE, default=32, help="pixels of an image, N or HxW"),
    Param("num_classes", "int", 10, "classes of the last layer", minimum=1),
)
"""Parameters of any network, beside its own."""

COMMON = (
    Param("scheme", "choice", "lp", "how the work is shared", choices=SCHEMES),
    NETWORK[0],
    Param("batch_size", "int", 32, "images of a step of one replica", minimum=1),
    Param(
        "parts",
        "int",
        1,
        "micro-batches of a step, or of each half of mirrored pipelines",
        minimum=1,
    ),
    *_SPLIT,
    *_SPEED,
    *_NUMBERS,
    NETWORK[1],
    *_DATA,
    *_LEARNING,
    *_COMPARING,
    SEED,
)
"""Parameters of both models."""

RESNET = (
    Param("version", "int", None, "1 as first published, 2 (default) activation first", 1, 2),
    Param("depth", "int", None, "6n+2 of version 1, 9n+2 of version 2; else 110", minimum=8),
    Param(
        "arch",
        "choice",
        None,
        "the standard form for large images, in place of version and depth",
        choices=("resnet50", "resnet101"),
    ),
)
AMOEBANET = (
    Param("num_layers", "int", 18, "normal cells, a multiple of 3", minimum=3, maximum=99999),
    Param(
        "num_filters",
        "int",
        416,
        "four times the filters of the first convolution",
        minimum=8,
        maximum=1 << 20,
    ),
    Param(
        "pool3",
        "choice",
        "avg",
        "what a pool of 3x3 in the place of the paper's maximum takes; avg as the reference",
        choices=("avg", "max"),
    ),
    Param(
        "shift",
        "bool",
        False,
        "whether the second half of a halving layer reads the odd pixels; off as the reference",
    ),
)

_NOT_OF_IMPORTS = frozenset({"halo_D2", "fused_layers", "num_classes"})
_FORMATS = "fp32", "fp64", "tf32", "fp16", "bf16"
OWN_NETWORK = (
    Param(
        "network",
        "text",
        None,
        "module:callable that returns your network, an nn.Module; the working folder is importable",
    ),
    Param("network_args", "data", None, "all that it is given, by name: {width: 64}"),
    Param(
        "task",
        "choice",
        None,
        "what it is for: one class for each image (classify), or one for each pixel (segment); "
        "else as its output says",
        choices=("classify", "segment"),
    ),
    Param(
        "loss",
        "choice",
        None,
        "cross entropy (default), of a segmentation the mean over pixels; or one minus the soft "
        "Dice coefficient, the mean over classes (dice, to segment)",
        choices=("cross_entropy", "dice"),
    ),
    Param(
        "weights",
        "text",
        None,
        "a file with its state_dict (.pt, .safetensors), to begin with; else drawn",
    ),
    Param("save_weights", "text", None, "a file that gets its state_dict after the last step"),
    Param(
        "skips",
        "choice",
        None,
        "whether tensors that a later stage than the next one reads go straight there, or are "
        "passed along from stage to stage; auto (default) times messages and takes what costs less",
        choices=("auto", "straight", "along"),
    ),
    Param(
        "strict",
        "bool",
        None,
        "with tiles, whether operators that are not there over tiles are refused, in place of "
        "being computed on gathered maps",
    ),
)
IMPORTED = tuple(
    replace(param, choices=_FORMATS) if param.name == "precision" else param
    for param in COMMON
    if param.name not in _NOT_OF_IMPORTS
)
"""Parameters that a network of the user's own has in common with both models."""


def check_tf32(params: Params) -> None:
    """Refuse tf32 on the host, which has no such products.

    Raises:
        ParamError: tf32 is asked for on the host.
    """
    if params["precision"] == "tf32" and params["device"] == "cpu":
        raise ParamError("precision", "tf32 is a format of GPUs; take fp32, or device cuda")


def multiplies_either_way(params: Params) -> bool:
    """Return whether the device is known to be one that multiplies fp32 as fp32 or as TF32."""
    return params["device"] == "cuda" and params["precision"] in ("fp32", "tf32")
