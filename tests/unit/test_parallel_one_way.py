"""Who sends gradients to whom in mirrored pipelines, and what sums send."""

import pytest
import torch

from spbench_workers.layout import Grid
from spbench_workers.layout_models import model_layout
from spbench_workers.parallel.gradients import BUCKET, Sharing
from spbench_workers.parallel.one_way import OneWay, pairs

LAYOUTS = [
    model_layout(2, mirrored=True),
    model_layout(3, mirrored=True),
    model_layout(1, [Grid(2, 2)], mirrored=True),
    model_layout(2, [Grid(2, 2)], mirrored=True, replicas=2),
    model_layout(3, [Grid(2, 2), Grid(2, 1)], mirrored=True),
    model_layout(3, [Grid(1, 2)], members=3, mirrored=True, replicas=2),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_rank_owns_one_stage_and_sends_the_gradients_of_one(layout):
    found = [
        pair
        for replica in range(layout.replicas)
        for stage in range(len(layout.stages))
        for pair in pairs(layout, stage, replica)
    ]
    senders, owners = zip(*found, strict=True)
    assert sorted(senders) == sorted(owners) == list(range(layout.ranks))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_go_to_the_same_stage_of_the_same_replica(layout):
    for replica in range(layout.replicas):
        for stage in range(len(layout.stages)):
            for sender, owner in pairs(layout, stage, replica):
                assert layout.place(sender, 0).stage == layout.place(owner, 1).stage == stage
                assert {layout.place(rank).replica for rank in (sender, owner)} == {replica}


def test_what_a_rank_has_in_both_directions_stays_on_it():
    layout = model_layout(2, [Grid(2, 2)], mirrored=True)
    assert pairs(layout, 0, 0) == ((1, 1), (2, 2), (3, 3), (0, 4))
    assert pairs(layout, 1, 0) == ((4, 0),)
    assert pairs(model_layout(3, mirrored=True), 1, 0) == ((1, 1),)


class Ranks:
    def __init__(self, size):
        self.size = size


class Copy:
    def __init__(self, numbers, dtype=torch.float32):
        self.flat = torch.empty(numbers, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("ranks", "numbers", "dtype", "sent", "messages"),
    [
        (1, 100, torch.float32, 0, 0),
        (2, 100, torch.float32, 400, 1),
        (4, 100, torch.float32, 600, 1),
        (4, 100, torch.float64, 1200, 1),
        (4, 100, torch.bfloat16, 600, 1),
        (2, BUCKET + 1, torch.float32, 4 * (BUCKET + 1), 2),
    ],
)
def test_what_a_sum_sends(ranks, numbers, dtype, sent, messages):
    sharing = Sharing(Ranks(ranks), (Copy(numbers, dtype),), 1)
    assert (sharing.bytes, sharing.messages) == (sent, messages)


def test_one_way_needs_two_directions():
    with pytest.raises(ValueError, match="mirrored"):
        OneWay(None, model_layout(2), [], [])
