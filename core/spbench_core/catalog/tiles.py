"""Parameters of benchmarks whose image is cut into tiles, one a rank."""

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

_MOST = 1 << 20
"""Pixels of any side."""

IMAGE_SIZE = Param("image_size", "pair", 1024, "pixels of the whole image, N or HxW", maximum=_MOST)
BATCH_SIZE = Param("batch_size", "int", 1, "images in one exchange", minimum=1)
IN_CHANNELS = Param("in_channels", "int", 1, "channels of the image", minimum=1)
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
CHANNELS_LAST = Param(
    "channels_last", "bool", False, "whether a pixel's channels lie together in memory"
)
TRANSPORT = Param(
    "transport",
    "choice",
    "auto",
    "what carries halos; auto times those that apply and takes the fastest",
    choices=("auto", "packed", "datatype", "shm", "cuda", "cuda-ipc", "nccl"),
)
HALO_LEN = Param(
    "halo_len", "int", None, "pixels that the kernel reaches beyond its centre; else 1", minimum=1
)
KERNEL = Param("kernel", "pair", None, "rows and columns of the kernel; 2 * halo_len + 1")
STRIDE = Param("stride", "pair", 1, "pixels from one output to the next")
DILATION = Param("dilation", "pair", 1, "pixels from one tap of the kernel to the next")
PADDING = Param(
    "padding", "pair", None, "zeros around the image; dilation * (kernel - 1) / 2", 0, _MOST
)
ONE_H_DIM = Param(
    "enable_one_h_dim_kernel", "bool", False, "a kernel of one row, 1 x (2 * halo_len + 1)"
)
ONE_W_DIM = Param(
    "enable_one_w_dim_kernel", "bool", False, "a kernel of one column, (2 * halo_len + 1) x 1"
)


def resolve_tiles(params: Params) -> Params:
    """Fill in grid, slice_method and num_spatial_parts from whichever of them is given.

    Raises:
        ParamError: The parameters contradict each other, the tiles make no such grid, the image has
            too few pixels for it, or the transport does not fit the device.
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
    needed = TRANSPORT_DEVICES.get(transport, device)
    if device not in ("auto", needed):
        raise ParamError(
            "transport", f"transport {transport} carries data of device {needed}, not of {device}"
        )
    return params


def read_grid(params: Params) -> Grid:
    """Return the grid of complete parameters."""
    return Grid(*parse_pair(params["grid"]))


def _resolve_grid(params: Params) -> Params:
    method = params["slice_method"]
    given = None if params["grid"] is None else read_grid(params)
    grid = resolve_grid(params["num_spatial_parts"], method, given)
    return params | {
        "grid": str(grid),
        "num_spatial_parts": grid.size,
        "slice_method": method or find_slice_method(grid),
    }


def resolve_grid(parts: int | None, method: str | None, given: Grid | None) -> Grid:
    """Return the grid that num_spatial_parts, slice_method and grid ask for, where given.

    Raises:
        ParamError: They contradict each other, or the tiles make no such grid.
    """
    if given is None:
        try:
            return make_grid(method or "square", parts or 4)
        except ValueError as error:
            raise ParamError("num_spatial_parts", f"slice_method square: {error}") from None
    if parts not in (None, given.size):
        raise ParamError(
            "num_spatial_parts",
            f"grid {given} has {given.size} tiles, num_spatial_parts is {parts}",
        )
    try:
        fits = method is None or make_grid(method, given.size) == given
    except ValueError:
        fits = False
    if not fits:
        raise ParamError("grid", f"grid {given} is not slice_method {method}; give one of the two")
    return given


def find_slice_method(grid: Grid) -> str | None:
    """Return the slice_method that makes a grid; None where none does."""
    if grid.rows == grid.cols:
        return "square"
    return "vertical" if grid.rows == 1 else "horizontal" if grid.cols == 1 else None


def resolve_kernel(params: Params) -> Params:
    """Fill in kernel and padding from the given parameters.

    Raises:
        ParamError: The parameters contradict each other, or the kernel is larger than the padded
            image.
    """
    kernel = _kernel(params)
    padding = params["padding"]
    if padding is None:
        dilation = parse_pair(params["dilation"])
        rows, cols = (d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True))
        padding = format_pair((rows, cols))
    params = params | {"kernel": format_pair(kernel), "padding": padding}
    try:
        read_window(params).output_size(*parse_pair(params["image_size"]))
    except ValueError as error:
        raise ParamError("kernel", str(error)) from None
    return params


def read_window(params: Params) -> Window2d:
    """Return the window that complete parameters describe."""
    pairs = (parse_pair(params[name], 0) for name in ("kernel", "stride", "padding", "dilation"))
    rows, cols = zip(*pairs, strict=True)
    return Window2d(Window(*rows), Window(*cols))


class WindowParams(Protocol):
    """Complete parameters that say what a convolution reads, each in rows and columns."""

    @property
    def kernel(self) -> tuple[int, int]: ...
    @property
    def stride(self) -> tuple[int, int]: ...
    @property
    def padding(self) -> tuple[int, int]: ...
    @property
    def dilation(self) -> tuple[int, int]: ...


def make_window(params: WindowParams) -> Window2d:
    """Return the window that a convolution reads."""
    rows, cols = zip(params.kernel, params.stride, params.padding, params.dilation, strict=True)
    return Window2d(Window(*rows), Window(*cols))


def make_conv_kwargs(params: WindowParams) -> dict[str, Any]:
    """Return the sizes of a convolution as arguments of torch's."""
    return {
        "kernel_size": params.kernel,
        "stride": params.stride,
        "padding": params.padding,
        "dilation": params.dilation,
    }


def _kernel(params: Params) -> tuple[int, int]:
    halo_len = params["halo_len"]
    given = params["kernel"]
    one_row = params["enable_one_h_dim_kernel"]
    one_col = params["enable_one_w_dim_kernel"]
    if one_row and one_col:
        raise ParamError(
            "enable_one_w_dim_kernel",
            "enable_one_h_dim_kernel and enable_one_w_dim_kernel leave a kernel of one pixel; "
            "give one of the two",
        )
    if given is not None and halo_len is None and not (one_row or one_col):
        return parse_pair(given)
    side = 2 * (halo_len or 1) + 1
    kernel = (1 if one_row else side, 1 if one_col else side)
    if given is not None and parse_pair(given) != kernel:
        raise ParamError(
            "kernel",
            f"kernel {given} is not the {kernel[0]}x{kernel[1]} that halo_len "
            f"{halo_len or 1} makes; give one of the two",
        )
    return kernel


def scale_tiles(given: Params, params: Params, to: ScalingTarget) -> Params:
    """Return the parameters of a case over as many tiles as ranks.

    In weak scaling a tile keeps its pixels, and the image grows.

    Raises:
        ScalingError: Another parameter is to follow the ranks, or these make no such tiles.
    """
    choose_scaled_param(to, ("num_spatial_parts",))
    method = params["slice_method"]
    tiles = {"num_spatial_parts": to.ranks, "slice_method": method, "grid": None}
    if to.work == "strong":
        return given | tiles
    now = read_grid(params)
    try:
        grid = resolve_grid(to.ranks, method, None)
    except ParamError as error:
        raise ScalingError(str(error)) from None
    height, width = parse_pair(params["image_size"])
    rows = scale_exactly("the image's height", height, grid.rows, now.rows)
    cols = scale_exactly("the image's width", width, grid.cols, now.cols)
    return given | tiles | {"image_size": str(format_pair((rows, cols)))}


def scale_exchange(given: Params, params: Params, to: ScalingTarget) -> Params:
    """Return the same of an exchange, which is no work that ranks could share.

    Raises:
        ScalingError: As there, or the work of all is to stay the same.
    """
    if to.work == "strong":
        raise ScalingError("an exchange is no work to share: there is weak scaling alone")
    return scale_tiles(given, params, to)


def count_tile_ranks(params: Params) -> Ranks:
    """Return the number of ranks: one a tile."""
    return Ranks(exact=int(params["num_spatial_parts"]))


def locate_tile(params: Params, rank: int) -> dict[str, Any]:
    """Return the tile of a rank, as row and column of the grid."""
    row, col = divmod(rank, read_grid(params).cols)
    return {"tile": f"{row},{col}"}
