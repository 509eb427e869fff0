"""Tiles in buffers with room for their halo, which is received in place.

One rank has the image, so all positions outside of its tile are outside of the image.
"""

import pytest
import torch
from mpi4py import MPI

from spbench_core.layout.partition import Partition, Transfers
from spbench_core.layout.tiles import Box, Grid
from spbench_parallel.spatial.exchange import is_channels_last
from spbench_parallel.spatial.gather import Gather
from spbench_parallel.spatial.tile_buffer import PaddedReLU, copy_into_buffer, get_buffer

IMAGE = Box((0, 4), (0, 5))
ROOM = Box((-1, 5), (-2, 7))
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
parametrize_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def make_maps(layout):
    values = torch.arange(1.0, 1.0 + 2 * 3 * 4 * 5).view(2, 3, 4, 5)
    return values.to(memory_format=layout)


def make_gather(sample, fill=0.0):
    owned = Partition.from_grid(Grid(1, 1), 4, 5, size=1)
    return Gather(MPI.COMM_SELF, Transfers(owned, (IMAGE,)), [ROOM], sample=sample, fill=fill)


@parametrize_layout
def test_a_box_of_maps_has_their_memory_format(layout):
    last = layout == torch.channels_last
    complete = make_maps(layout)
    assert is_channels_last(complete) == last
    assert is_channels_last(complete[:, :, 1:3, 1:4]) == last
    assert is_channels_last(complete[:, :, :, 1:2]) == last


def test_maps_of_both_formats_are_not_channels_last():
    for shape in ((2, 1, 4, 5), (2, 3, 1, 1), (2, 3, 0, 5)):
        assert not is_channels_last(torch.empty(shape, memory_format=torch.channels_last))
    assert not is_channels_last(torch.ones(()).expand(2, 3, 4, 5))


@parametrize_layout
def test_the_buffer_contains_nan_before_the_halo(layout):
    tile = copy_into_buffer(make_maps(layout), IMAGE, ROOM)
    buffer = get_buffer(tile).buffer
    assert torch.equal(tile, make_maps(layout))
    assert int(buffer.isnan().sum()) == buffer.numel() - tile.numel()
    gather = make_gather(tile)
    (part,) = gather.finish(gather.start(tile))
    assert torch.equal(part, torch.nn.functional.pad(make_maps(layout), (2, 2, 1, 1)))
    gather.free()


@parametrize_layout
@pytest.mark.parametrize("learns", [False, True])
def test_a_tile_after_a_relu_is_completed_in_place(layout, learns):
    tile = PaddedReLU(IMAGE, ROOM)(make_maps(layout).requires_grad_(learns))
    gather = make_gather(tile.detach())
    flight = gather.start(tile)
    (part,) = gather.finish(flight)
    assert part.data_ptr() == get_buffer(tile).buffer.data_ptr()
    assert part.requires_grad == learns
    assert is_channels_last(part) == (layout == torch.channels_last)
    gather.free()


@parametrize_layout
def test_gradients_have_the_memory_format_of_the_tile(layout):
    pixels = make_maps(layout).requires_grad_()
    tile = PaddedReLU(IMAGE, ROOM)(pixels)
    gather = make_gather(tile.detach())
    (part,) = gather.finish(gather.start(tile))
    (part * 2.0).sum().backward()
    assert torch.equal(pixels.grad, torch.full_like(pixels, 2.0))
    assert gather.allocate(IMAGE).stride() == make_maps(layout).stride()
    gather.free()


def test_another_fill_replaces_values_outside_of_the_image():
    tile = copy_into_buffer(make_maps(torch.contiguous_format), IMAGE, ROOM)
    for fill in (0.0, float("-inf"), 0.0):
        gather = make_gather(tile, fill)
        (part,) = gather.finish(gather.start(tile))
        assert float(part[0, 0, 0, 0]) == fill
        gather.free()
