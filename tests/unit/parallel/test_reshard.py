"""Messages between two stages: each value arrives from one rank, once."""

import pytest
import torch

from spbench_core.layout.stages import ModelLayout, Stage
from spbench_core.layout.tiles import Grid
from spbench_core.models.parts import MapShape
from spbench_parallel.pipeline.reshard import find_reshards, local_shard

ONE = (MapShape(3, 13, 17),)
TWO = (MapShape(3, 13, 17), MapShape(2, 7, 9))
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


def exchange(stages, flow, images):
    """Yield the received and the expected tensors of each rank of the second stage."""
    layout = ModelLayout(stages)
    tensors_of_flow = [torch.rand(images, *data.shape) for data in flow]
    shards = [
        {
            rank: local_shard(layout, layout.locate_rank(rank), flow, images)
            for rank in layout.list_stage_ranks(stage)
        }
        for stage in (0, 1)
    ]
    sends = {}
    for rank, shard in shards[0].items():
        tensors = [cut_shard(tensor, shard, index) for index, tensor in enumerate(tensors_of_flow)]
        for reshard in find_reshards(shard, shards[1]):
            parts = zip(tensors, reshard.cuts, strict=True)
            sends[rank, reshard.peer] = torch.cat(
                [tensor[cut].reshape(-1) for tensor, cut in parts]
            )
    for rank, shard in shards[1].items():
        tensors = [torch.zeros(shape) for shape in shard.shapes]
        for reshard in find_reshards(shard, shards[0]):
            views = reshard.views(sends.pop((reshard.peer, rank)))
            for tensor, cut, view in zip(tensors, reshard.cuts, views, strict=True):
                # Added, so that a value that arrives twice is noticed.
                tensor[cut] += view
        yield (
            tensors,
            [cut_shard(tensor, shard, index) for index, tensor in enumerate(tensors_of_flow)],
        )
    assert not sends


def cut_shard(tensor, shard, index):
    box = shard.boxes[index]
    return tensor[slice(*shard.images), :, slice(*box.rows), slice(*box.cols)]


@pytest.mark.parametrize("flow", [ONE, TWO], ids=["one tensor", "a pair"])
@pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
def test_each_rank_receives_its_shard_once(stages, flow):
    for direction in (stages, stages[::-1]):
        for images in (3, 5):
            for received, expected in exchange(direction, flow, images):
                for tensor, expected_tensor in zip(received, expected, strict=True):
                    assert torch.equal(tensor, expected_tensor)


def test_sends_nothing_between_ranks_without_overlap():
    layout = ModelLayout((SQUARE, SQUARE))
    shards = [local_shard(layout, layout.locate_rank(rank), ONE, 2) for rank in range(8)]
    messages = find_reshards(shards[1], dict(enumerate(shards[4:], start=4)))
    assert [reshard.peer for reshard in messages] == [5]
    assert messages[0].value_count == 2 * 3 * 6 * 9


def test_sends_a_pair_in_one_message():
    layout = ModelLayout((WHOLE, WHOLE))
    shards = [local_shard(layout, layout.locate_rank(rank), TWO, 2) for rank in range(2)]
    (reshard,) = find_reshards(shards[0], {1: shards[1]})
    assert reshard.value_count == 2 * (3 * 13 * 17 + 2 * 7 * 9)
