"""Catalog of the halo exchange."""

from __future__ import annotations

from typing import Any

from spbench_workers.catalog.benchmark import TIME_MS, Benchmark, Metric, ParamError, Ranks
from spbench_workers.catalog.parameters import Param, Params
from spbench_workers.catalog.shared_params import DEVICE, DTYPE, SEED, iterations, warmup
from spbench_workers.layout import Grid, grid_of, parse_pair

IMAGE_SIZE = Param("image_size", "pair", 1024, "pixels of the whole image, N or HxW")
BATCH_SIZE = Param("batch_size", "int", 1, "images in one exchange", minimum=1)
IN_CHANNELS = Param("in_channels", "int", 1, "channels of the image", minimum=1)
HALO_LEN = Param("halo_len", "int", 1, "pixels of halo on each side", minimum=1)
NUM_SPATIAL_PARTS = Param(
    "num_spatial_parts", "int", None, "tiles; the grid's size, or else 4", minimum=1
)
SLICE_METHOD = Param(
    "slice_method",
    "choice",
    None,
    "vertical cuts the width, horizontal the height, square (default) both",
    choices=("vertical", "horizontal", "square"),
)
GRID = Param("grid", "pair", None, "tiles as RxC, in place of slice_method")


def resolve_grid(params: Params) -> Params:
    """Fill in grid, slice_method and num_spatial_parts from whichever of them is given.

    Raises:
        ParamError: They contradict each other, or the tiles make no such grid.
    """
    parts, method = params["num_spatial_parts"], params["slice_method"]
    if params["grid"] is None:
        try:
            grid = grid_of(method or "square", parts or 4)
        except ValueError as error:
            raise ParamError("num_spatial_parts", f"slice_method square: {error}") from None
    else:
        grid = Grid(*parse_pair(params["grid"]))
        _agree(grid, parts, method)
    return params | {
        "grid": str(grid),
        "num_spatial_parts": grid.size,
        "slice_method": method or _method_of(grid),
    }


def _agree(grid: Grid, parts: int | None, method: str | None) -> None:
    if parts not in (None, grid.size):
        raise ParamError(
            "num_spatial_parts", f"grid {grid} has {grid.size} tiles, num_spatial_parts is {parts}"
        )
    try:
        fits = method is None or grid_of(method, grid.size) == grid
    except ValueError:
        fits = False
    if not fits:
        raise ParamError("grid", f"grid {grid} is not slice_method {method}; give one of the two")


def _method_of(grid: Grid) -> str | None:
    if grid.rows == grid.cols:
        return "square"
    return "vertical" if grid.rows == 1 else "horizontal" if grid.cols == 1 else None


def _resolve(params: Params) -> Params:
    params = resolve_grid(params)
    height, width = parse_pair(params["image_size"])
    grid = Grid(*parse_pair(params["grid"]))
    if grid.rows > height or grid.cols > width:
        raise ParamError(
            "image_size", f"an image of {height}x{width} pixels has too few for a grid of {grid}"
        )
    return params


def tile_ranks(params: Params) -> Ranks:
    """One rank a tile."""
    return Ranks(exact=int(params["num_spatial_parts"]))


def tile_place(params: Params, rank: int) -> dict[str, Any]:
    """The tile of a rank, as row and column of the grid."""
    row, col = divmod(rank, parse_pair(params["grid"])[1])
    return {"tile": f"{row},{col}"}


BENCHMARKS = (
    Benchmark(
        name="halo.exchange",
        summary="each tile of an image gets its neighbours' borders",
        module="spbench_workers.halo.exchange",
        params=(
            IMAGE_SIZE,
            BATCH_SIZE,
            IN_CHANNELS,
            HALO_LEN,
            NUM_SPATIAL_PARTS,
            SLICE_METHOD,
            GRID,
            warmup(10),
            iterations(100),
            DTYPE,
            DEVICE,
            SEED,
        ),
        metrics=(
            TIME_MS,
            Metric("bandwidth_gb_s", "GB/s", "higher", "bytes sent a rank over time", "min"),
            Metric("bytes_sent", "B", "none", "bytes that a rank sends in one exchange", "max"),
            Metric("messages_sent", "1", "none", "messages of a rank in one exchange", "max"),
        ),
        checks=("halo",),
        faults=("corrupt-halo", "drop-halo", "stale-halo"),
        resolve=_resolve,
        ranks=tile_ranks,
        place=tile_place,
    ),
)
