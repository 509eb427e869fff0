"""Tiles in buffers with room for their halo: nothing is copied, and the halo is there.

One rank has the image, so that all that it reads beyond its tile lies beyond the image.
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
layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def maps(layout):
    values = torch.arange(1.0, 1.0 + 2 * 3 * 4 * 5).view(2, 3, 4, 5)
    return values.to(memory_format=layout)


def gather_of(sample, fill=0.0):
    owned = Partition.from_grid(Grid(1, 1), 4, 5, size=1)
    return Gather(MPI.COMM_SELF, Transfers(owned, (IMAGE,)), [ROOM], sample=sample, fill=fill)


@layouts
def test_a_box_of_maps_lies_as_the_maps_do(layout):
    last = layout == torch.channels_last
    whole = maps(layout)
    assert is_channels_last(whole) == last
    assert is_channels_last(whole[:, :, 1:3, 1:4]) == last
    assert is_channels_last(whole[:, :, :, 1:2]) == last


def test_maps_that_lie_both_ways_are_not_channels_last():
    for shape in ((2, 1, 4, 5), (2, 3, 1, 1), (2, 3, 0, 5)):
        assert not is_channels_last(torch.empty(shape, memory_format=torch.channels_last))
    assert not is_channels_last(torch.ones(()).expand(2, 3, 4, 5))


@layouts
def test_room_around_a_tile_holds_nan_until_the_halo_is_there(layout):
    tile = copy_into_buffer(maps(layout), IMAGE, ROOM)
    buffer = get_buffer(tile).buffer
    assert torch.equal(tile, maps(layout))
    assert int(buffer.isnan().sum()) == buffer.numel() - tile.numel()
    gather = gather_of(tile)
    (part,) = gather.finish(gather.start(tile))
    assert torch.equal(part, torch.nn.functional.pad(maps(layout), (2, 2, 1, 1)))
    gather.free()


@layouts
@pytest.mark.parametrize("learns", [False, True])
def test_a_tile_behind_a_relu_is_completed_in_place(layout, learns):
    tile = PaddedReLU(IMAGE, ROOM)(maps(layout).requires_grad_(learns))
    gather = gather_of(tile.detach())
    flight = gather.start(tile)
    (part,) = gather.finish(flight)
    assert part.data_ptr() == get_buffer(tile).buffer.data_ptr()
    assert part.requires_grad == learns
    assert is_channels_last(part) == (layout == torch.channels_last)
    gather.free()


@layouts
def test_gradients_lie_as_their_tile_does(layout):
    given = maps(layout).requires_grad_()
    tile = PaddedReLU(IMAGE, ROOM)(given)
    gather = gather_of(tile.detach())
    (part,) = gather.finish(gather.start(tile))
    (part * 2.0).sum().backward()
    assert torch.equal(given.grad, torch.full_like(given, 2.0))
    assert gather.allocate(IMAGE).stride() == maps(layout).stride()
    gather.free()


def test_another_fill_replaces_what_a_kept_buffer_holds_beyond_the_image():
    tile = copy_into_buffer(maps(torch.contiguous_format), IMAGE, ROOM)
    for fill in (0.0, float("-inf"), 0.0):
        gather = gather_of(tile, fill)
        (part,) = gather.finish(gather.start(tile))
        assert float(part[0, 0, 0, 0]) == fill
        gather.free()
