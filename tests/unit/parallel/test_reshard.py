"""Messages between two stages: every value that a rank needs comes from one rank, once."""

import pytest
import torch

from spbench_core.layout.stages import ModelLayout, Stage
from spbench_core.layout.tiles import Grid
from spbench_core.models.parts import Map
from spbench_parallel.pipeline.reshard import local_shard, reshards

ONE = (Map(3, 13, 17),)
TWO = (Map(3, 13, 17), Map(2, 7, 9))
SQUARE = Stage(Grid(2, 2))
STRIPS = Stage(Grid(1, 3))
TALL = Stage(Grid(9, 1))
WHOLE = Stage()
SHARES = Stage(members=2)
MORE_SHARES = Stage(members=3)
STAGES = {
    "tiles to one": (SQUARE, WHOLE),
    "tiles to other tiles": (SQUARE, STRIPS),
    "tiles to the same tiles": (STRIPS, STRIPS),
    "tiles to shares": (SQUARE, SHARES),
    "one to one": (WHOLE, WHOLE),
    "one to shares": (WHOLE, MORE_SHARES),
    "shares to other shares": (SHARES, MORE_SHARES),
    "shares to tiles": (SHARES, SQUARE),
    "tiles without a pixel": (TALL, SQUARE),
}


def carry(stages, flow, images):
    """Return what the ranks of the second stage hold after all messages, and what they should."""
    layout = ModelLayout(stages)
    whole = [torch.rand(images, *data.shape) for data in flow]
    held = [
        {
            rank: local_shard(layout, layout.locate_rank(rank), flow, images)
            for rank in layout.list_stage_ranks(stage)
        }
        for stage in (0, 1)
    ]
    sent = {}
    for rank, mine in held[0].items():
        tensors = [part_of(tensor, mine, index) for index, tensor in enumerate(whole)]
        for reshard in reshards(mine, held[1]):
            parts = zip(tensors, reshard.cuts, strict=True)
            sent[rank, reshard.peer] = torch.cat([one[cut].reshape(-1) for one, cut in parts])
    for rank, mine in held[1].items():
        tensors = [torch.zeros(shape) for shape in mine.shapes]
        for reshard in reshards(mine, held[0]):
            views = reshard.views(sent.pop((reshard.peer, rank)))
            for tensor, cut, view in zip(tensors, reshard.cuts, views, strict=True):
                # Added, so that what comes twice is seen.
                tensor[cut] += view
        yield tensors, [part_of(tensor, mine, index) for index, tensor in enumerate(whole)]
    assert not sent


def part_of(tensor, held, index):
    box = held.boxes[index]
    return tensor[slice(*held.images), :, slice(*box.rows), slice(*box.cols)]


@pytest.mark.parametrize("flow", [ONE, TWO], ids=["one tensor", "a pair"])
@pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
def test_each_rank_gets_what_it_holds_once(stages, flow):
    for forth in (stages, stages[::-1]):
        for images in (3, 5):
            for found, wanted in carry(forth, flow, images):
                for one, other in zip(found, wanted, strict=True):
                    assert torch.equal(one, other)


def test_ranks_with_nothing_in_common_send_nothing():
    layout = ModelLayout((SQUARE, SQUARE))
    held = [local_shard(layout, layout.locate_rank(rank), ONE, 2) for rank in range(8)]
    found = reshards(held[1], dict(enumerate(held[4:], start=4)))
    assert [reshard.peer for reshard in found] == [5]
    assert found[0].values == 2 * 3 * 6 * 9


def test_a_pair_goes_in_one_message():
    layout = ModelLayout((WHOLE, WHOLE))
    held = [local_shard(layout, layout.locate_rank(rank), TWO, 2) for rank in range(2)]
    (reshard,) = reshards(held[0], {1: held[1]})
    assert reshard.values == 2 * (3 * 13 * 17 + 2 * 7 * 9)
