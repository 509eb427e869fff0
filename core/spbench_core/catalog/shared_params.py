"""Parameters of several benchmarks, with the same names and bounds in all."""

from __future__ import annotations

from spbench_core.catalog.benchmark import IdleParamError, ParamError
from spbench_core.catalog.parameters import Param, Params

DTYPES = ("fp32", "fp64", "fp16", "bf16")


def warmup(default: int) -> Param:
    """Return the parameter ``warmup``: the iterations before the timed ones."""
    return Param("warmup", "int", default, "untimed iterations before the timed ones", minimum=0)


def iterations(default: int) -> Param:
    """Return the parameter ``iterations``: the number of timed iterations."""
    return Param("iterations", "int", default, "timed iterations", minimum=1, maximum=10**7)


SEED = Param("seed", "int", 0, "seed of the random data", minimum=0, maximum=2**31 - 1)
DTYPE = Param("dtype", "choice", "fp32", "number format of the data", choices=DTYPES)
DEVICE = Param(
    "device",
    "choice",
    "auto",
    "device that holds the data of a rank; auto is a GPU if the host has one",
    choices=("auto", "cpu", "cuda"),
)
DEVICE_IDS = Param(
    "device_ids",
    "ints",
    None,
    "numbers of the GPUs of each host that its ranks use in turn, such as 0,3; default all",
    minimum=0,
)


def resolve_device_ids(params: Params) -> Params:
    """Set ``device`` to ``cuda`` if ``device_ids`` is set.

    Raises:
        ParamError: The device is the CPU, or a GPU is listed twice.
    """
    device_ids = params["device_ids"]
    if device_ids is None:
        return params
    if params["device"] == "cpu":
        raise IdleParamError("device_ids", "on device cpu")
    if len(set(device_ids)) < len(device_ids):
        raise ParamError("device_ids", f"device_ids {device_ids} names a GPU twice")
    return params | {"device": "cuda"}
