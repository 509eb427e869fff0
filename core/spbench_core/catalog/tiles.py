"""Parameters of benchmarks that cut an image into tiles, one per rank."""

from __future__ import annotations

from typing import Any, Protocol

from spbench_core.catalog.benchmark import ParamError, Ranks
from spbench_core.catalog.parameters import Param, Params
from spbench_core.catalog.scaling import (
    ScalingError,
    ScalingTarget,
    choose_scaled_param,
    scale_exactly,
)
from spbench_core.layout.tiles import Grid, format_pair, make_grid, parse_pair
from spbench_core.layout.transports import TRANSPORT_DEVICES
from spbench_core.layout.window import Window, Window2d

_MAX_SIDE = 1 << 20
"""Pixels of the longest side."""

IMAGE_SIZE = Param(
    "image_size", "pair", 1024, "size of the whole image in pixels, N or HxW", maximum=_MAX_SIDE
)
BATCH_SIZE = Param("batch_size", "int", 1, "images per exchange", minimum=1)
IN_CHANNELS = Param("in_channels", "int", 1, "channels of the image", minimum=1)
NUM_SPATIAL_PARTS = Param(
    "num_spatial_parts", "int", None, "number of tiles; that of grid, or else 4", minimum=1
)
SLICE_METHOD = Param(
    "slice_method",
    "choice",
    None,
    "vertical divides the width, horizontal the height, square (default) both",
    choices=("vertical", "horizontal", "square"),
)
GRID = Param("grid", "pair", None, "rows and columns of tiles as RxC, instead of slice_method")
CHANNELS_LAST = Param(
    "channels_last", "bool", False, "whether the channels of a pixel are adjacent in memory"
)
TRANSPORT = Param(
    "transport",
    "choice",
    "auto",
    "method that transfers halos; auto times the possible ones and uses the fastest",
    choices=("auto", *TRANSPORT_DEVICES),
)
HALO_LEN = Param(
    "halo_len",
    "int",
    None,
    "pixels that the kernel reaches beyond its centre; default 1",
    minimum=1,
)
KERNEL = Param("kernel", "pair", None, "rows and columns of the kernel; default 2 * halo_len + 1")
STRIDE = Param("stride", "pair", 1, "pixels between two outputs")
DILATION = Param("dilation", "pair", 1, "pixels between two taps of the kernel")
PADDING = Param(
    "padding",
    "pair",
    None,
    "zeros around the image; default dilation * (kernel - 1) / 2",
    0,
    _MAX_SIDE,
)
ONE_H_DIM = Param(
    "enable_one_h_dim_kernel", "bool", False, "a kernel of one row, 1 x (2 * halo_len + 1)"
)
ONE_W_DIM = Param(
    "enable_one_w_dim_kernel", "bool", False, "a kernel of one column, (2 * halo_len + 1) x 1"
)


def resolve_tiles(params: Params) -> Params:
    """Fill in grid, slice_method and num_spatial_parts from each other.

    Raises:
        ParamError: The parameters contradict each other, no such grid has this number of tiles, the
            image has too few pixels, or the transport does not support the device.
    """
    params = _resolve_grid(params)
    height, width = parse_pair(params["image_size"])
    grid = read_grid(params)
    if grid.rows > height or grid.cols > width:
        raise ParamError(
            "image_size", f"an image of {height}x{width} pixels has too few for a grid of {grid}"
        )
    transport = params["transport"]
    device = params["device"]
    transport_device = TRANSPORT_DEVICES.get(transport, device)
    if device not in ("auto", transport_device):
        raise ParamError(
            "transport",
            f"transport {transport} carries data of device {transport_device}, not of {device}",
        )
    return params


def read_grid(params: Params) -> Grid:
    """Return the grid of complete parameters."""
    return Grid(*parse_pair(params["grid"]))


def _resolve_grid(params: Params) -> Params:
    method = params["slice_method"]
    given_grid = None if params["grid"] is None else read_grid(params)
    grid = resolve_grid(params["num_spatial_parts"], method, given_grid)
    return params | {
        "grid": str(grid),
        "num_spatial_parts": grid.size,
        "slice_method": method or find_slice_method(grid),
    }


def resolve_grid(parts: int | None, method: str | None, grid: Grid | None) -> Grid:
    """Return the grid that num_spatial_parts, slice_method and grid describe.

    Raises:
        ParamError: They contradict each other, or no such grid has this number of tiles.
    """
    if grid is None:
        try:
            return make_grid(method or "square", parts or 4)
        except ValueError as error:
            raise ParamError("num_spatial_parts", f"slice_method square: {error}") from None
    if parts not in (None, grid.size):
        raise ParamError(
            "num_spatial_parts",
            f"grid {grid} has {grid.size} tiles, num_spatial_parts is {parts}",
        )
    try:
        fits = method is None or make_grid(method, grid.size) == grid
    except ValueError:
        fits = False
    if not fits:
        raise ParamError("grid", f"grid {grid} is not slice_method {method}; give one of the two")
    return grid


def find_slice_method(grid: Grid) -> str | None:
    """Return the slice_method that makes a grid, or None."""
    if grid.rows == grid.cols:
        return "square"
    if grid.rows == 1:
        return "vertical"
    return "horizontal" if grid.cols == 1 else None


def resolve_kernel(params: Params) -> Params:
    """Fill in kernel and padding.

    Raises:
        ParamError: The parameters contradict each other, or the kernel is larger than the padded
            image.
    """
    kernel = _resolve_kernel_size(params)
    padding = params["padding"]
    if padding is None:
        dilation = parse_pair(params["dilation"])
        taps_and_steps = zip(kernel, dilation, strict=True)
        rows, cols = (step * (taps - 1) // 2 for taps, step in taps_and_steps)
        padding = format_pair((rows, cols))
    params = params | {"kernel": format_pair(kernel), "padding": padding}
    try:
        read_window(params).output_size(*parse_pair(params["image_size"]))
    except ValueError as error:
        raise ParamError("kernel", str(error)) from None
    return params


def read_window(params: Params) -> Window2d:
    """Return the window that complete parameters describe."""
    row_and_col_pairs = (
        parse_pair(params[name], 0) for name in ("kernel", "stride", "padding", "dilation")
    )
    rows, cols = zip(*row_and_col_pairs, strict=True)
    return Window2d(Window(*rows), Window(*cols))


class WindowParams(Protocol):
    """Parameters of a convolution's window, each for rows and columns."""

    @property
    def kernel(self) -> tuple[int, int]: ...
    @property
    def stride(self) -> tuple[int, int]: ...
    @property
    def padding(self) -> tuple[int, int]: ...
    @property
    def dilation(self) -> tuple[int, int]: ...


def make_window(params: WindowParams) -> Window2d:
    """Return the window of a convolution."""
    rows, cols = zip(params.kernel, params.stride, params.padding, params.dilation, strict=True)
    return Window2d(Window(*rows), Window(*cols))


def make_conv_kwargs(params: WindowParams) -> dict[str, Any]:
    """Return the sizes of a convolution as keyword arguments of ``torch.nn.Conv2d``."""
    return {
        "kernel_size": params.kernel,
        "stride": params.stride,
        "padding": params.padding,
        "dilation": params.dilation,
    }


def _resolve_kernel_size(params: Params) -> tuple[int, int]:
    """Return rows and columns of the kernel, from ``kernel`` or from ``halo_len``.

    Raises:
        ParamError: The parameters contradict each other.
    """
    halo_len = params["halo_len"]
    kernel = params["kernel"]
    one_row = params["enable_one_h_dim_kernel"]
    one_col = params["enable_one_w_dim_kernel"]
    if one_row and one_col:
        raise ParamError(
            "enable_one_w_dim_kernel",
            "enable_one_h_dim_kernel and enable_one_w_dim_kernel leave a kernel of one pixel; "
            "give one of the two",
        )
    if kernel is not None and halo_len is None and not (one_row or one_col):
        return parse_pair(kernel)
    kernel_side = 2 * (halo_len or 1) + 1
    kernel_size = (1 if one_row else kernel_side, 1 if one_col else kernel_side)
    if kernel is not None and parse_pair(kernel) != kernel_size:
        raise ParamError(
            "kernel",
            f"kernel {kernel} is not the {kernel_size[0]}x{kernel_size[1]} that halo_len "
            f"{halo_len or 1} makes; give one of the two",
        )
    return kernel_size


def scale_tiles(values: Params, params: Params, target: ScalingTarget) -> Params:
    """Return the parameters of a case with one tile per rank.

    In weak scaling a tile keeps its pixels, and the image grows.

    Raises:
        ScalingError: The target names another parameter, or no grid has this number of tiles.
    """
    choose_scaled_param(target, ("num_spatial_parts",))
    method = params["slice_method"]
    tile_params = {"num_spatial_parts": target.ranks, "slice_method": method, "grid": None}
    if target.work == "strong":
        return values | tile_params
    base_grid = read_grid(params)
    try:
        grid = resolve_grid(target.ranks, method, None)
    except ParamError as error:
        raise ScalingError(str(error)) from None
    height, width = parse_pair(params["image_size"])
    rows = scale_exactly("the image's height", height, grid.rows, base_grid.rows)
    cols = scale_exactly("the image's width", width, grid.cols, base_grid.cols)
    return values | tile_params | {"image_size": str(format_pair((rows, cols)))}


def scale_exchange(values: Params, params: Params, target: ScalingTarget) -> Params:
    """Return the parameters of an exchange with one tile per rank (weak only).

    Raises:
        ScalingError: Scaling is strong, or `scale_tiles` raises it.
    """
    if target.work == "strong":
        raise ScalingError("an exchange is no work to share: there is weak scaling alone")
    return scale_tiles(values, params, target)


def count_tile_ranks(params: Params) -> Ranks:
    """Return the number of ranks: one per tile."""
    return Ranks(exact=int(params["num_spatial_parts"]), params=("num_spatial_parts", "grid"))


def locate_tile(params: Params, rank: int) -> dict[str, Any]:
    """Return the tile of a rank, as row and column of the grid."""
    row, col = divmod(rank, read_grid(params).cols)
    return {"tile": f"{row},{col}"}


# Plug-ins made for API version 1 use these names.
grid_of_params = read_grid
agreed_grid = resolve_grid
method_of = find_slice_method
window_of_params = read_window
window_of = make_window
conv_sizes = make_conv_kwargs
tiles_over_ranks = scale_tiles
exchange_over_ranks = scale_exchange
tile_ranks = count_tile_ranks
tile_place = locate_tile
