"""Parameters of the halo benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

from spbench_core.catalog import shared_params
from spbench_core.catalog.parameters import Param
from spbench_core.catalog.shared_params import DEVICE, DEVICE_IDS, DTYPE, SEED
from spbench_core.catalog.tiles import (
    BATCH_SIZE,
    CHANNELS_LAST,
    DILATION,
    GRID,
    HALO_LEN,
    IMAGE_SIZE,
    IN_CHANNELS,
    KERNEL,
    NUM_SPATIAL_PARTS,
    ONE_H_DIM,
    ONE_W_DIM,
    PADDING,
    SLICE_METHOD,
    STRIDE,
    TRANSPORT,
)
from spbench_core.catalog.typed_params import parameter, reuse_parameter

_OUT_CHANNELS = Param("out_channels", "int", 64, "channels of the result", minimum=1)
_OVERLAP = Param(
    "overlap",
    "choice",
    "auto",
    "whether the part without halos is computed during the exchange, or all of it "
    "afterwards; auto times both and uses the faster",
    choices=("auto", "on", "off"),
    spellings={"True": "on", "true": "on", "yes": "on"}
    | {"False": "off", "false": "off", "no": "off"},
)


@dataclass(frozen=True, kw_only=True)
class TileParams:
    """Parameters of this family that define the image and its tiles."""

    image_size: tuple[int, int] = reuse_parameter(IMAGE_SIZE)
    batch_size: int = reuse_parameter(BATCH_SIZE)
    in_channels: int = reuse_parameter(IN_CHANNELS)
    num_spatial_parts: int = reuse_parameter(NUM_SPATIAL_PARTS)
    slice_method: str | None = reuse_parameter(SLICE_METHOD)
    grid: tuple[int, int] = reuse_parameter(GRID)


@dataclass(frozen=True, kw_only=True)
class TransportParams:
    """Parameters of this family that define how halos are exchanged."""

    transport: str = reuse_parameter(TRANSPORT)
    channels_last: bool = reuse_parameter(CHANNELS_LAST)
    overlap: str | None = reuse_parameter(_OVERLAP, optional=True)


@dataclass(frozen=True, kw_only=True)
class ExchangeParams(TileParams):
    """Parameters of ``halo.exchange``."""

    halo_len: int = reuse_parameter(
        HALO_LEN, default=1, help="width of the halo on each side in pixels"
    )
    warmup: int = reuse_parameter(shared_params.warmup(10))
    iterations: int = reuse_parameter(shared_params.iterations(100))
    dtype: str = reuse_parameter(DTYPE)
    device: str = reuse_parameter(DEVICE)
    device_ids: list[int] | None = reuse_parameter(DEVICE_IDS)
    transport: str = reuse_parameter(TRANSPORT)
    channels_last: bool = reuse_parameter(CHANNELS_LAST)
    seed: int = reuse_parameter(SEED)


@dataclass(frozen=True, kw_only=True)
class ComputeParams(TileParams):
    """Parameters of ``halo.compute``."""

    out_channels: int = reuse_parameter(_OUT_CHANNELS)
    halo_len: int | None = reuse_parameter(HALO_LEN)
    kernel: tuple[int, int] = reuse_parameter(KERNEL)
    stride: tuple[int, int] = reuse_parameter(STRIDE)
    dilation: tuple[int, int] = reuse_parameter(DILATION)
    padding: tuple[int, int] = reuse_parameter(PADDING)
    enable_one_h_dim_kernel: bool = reuse_parameter(ONE_H_DIM)
    enable_one_w_dim_kernel: bool = reuse_parameter(ONE_W_DIM)
    overlap: str = reuse_parameter(_OVERLAP)
    fp16_allreduce: bool = parameter(
        "bool", False, "whether weight gradients are sent as fp16 for their sum"
    )
    warmup: int = reuse_parameter(shared_params.warmup(3))
    iterations: int = reuse_parameter(shared_params.iterations(20))
    dtype: str = reuse_parameter(DTYPE)
    device: str = reuse_parameter(DEVICE)
    device_ids: list[int] | None = reuse_parameter(DEVICE_IDS)
    transport: str = reuse_parameter(TRANSPORT)
    channels_last: bool = reuse_parameter(CHANNELS_LAST)
    seed: int = reuse_parameter(SEED)


@dataclass(frozen=True, kw_only=True)
class FusedParams(TileParams):
    """Parameters of ``halo.fused``."""

    out_channels: int = reuse_parameter(
        _OUT_CHANNELS, default=16, help="channels of the results of all layers"
    )
    halo_len: int | None = reuse_parameter(HALO_LEN)
    kernel: tuple[int, int] = reuse_parameter(KERNEL)
    stride: tuple[int, int] = reuse_parameter(STRIDE)
    dilation: tuple[int, int] = reuse_parameter(DILATION)
    padding: tuple[int, int] = reuse_parameter(PADDING)
    enable_one_h_dim_kernel: bool = reuse_parameter(ONE_H_DIM)
    enable_one_w_dim_kernel: bool = reuse_parameter(ONE_W_DIM)
    num_layers: int = parameter(
        "int", 4, "number of consecutive convolutions", minimum=1, maximum=1000
    )
    fused_layers: int = parameter(
        "int", None, "layers that share one exchange; default: all of them", minimum=1
    )
    warmup: int = reuse_parameter(shared_params.warmup(3))
    iterations: int = reuse_parameter(shared_params.iterations(20))
    dtype: str = reuse_parameter(DTYPE)
    device: str = reuse_parameter(DEVICE)
    device_ids: list[int] | None = reuse_parameter(DEVICE_IDS)
    transport: str = reuse_parameter(TRANSPORT)
    channels_last: bool = reuse_parameter(CHANNELS_LAST)
    seed: int = reuse_parameter(SEED)
