"""Exchange of gradients in mirrored pipelines, and messages of sums."""

import pytest
import torch
from torch.distributed import ReduceOp

from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid
from spbench_parallel.training.gradients import BUCKET_NUMBERS, WeightGroup
from spbench_parallel.training.master_comm import MasterComm, mirror_pairs
from standins.twin import Twin

LAYOUTS = [
    build_layout(2, mirrored=True),
    build_layout(3, mirrored=True),
    build_layout(1, [Grid(2, 2)], mirrored=True),
    build_layout(2, [Grid(2, 2)], mirrored=True, replicas=2),
    build_layout(3, [Grid(2, 2), Grid(2, 1)], mirrored=True),
    build_layout(3, [Grid(1, 2)], members=3, mirrored=True, replicas=2),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_rank_owns_one_stage_and_sends_one(layout):
    pairs = [
        pair
        for replica in range(layout.replicas)
        for stage in range(len(layout.stages))
        for pair in mirror_pairs(layout, stage, replica)
    ]
    senders, owners = zip(*pairs, strict=True)
    assert sorted(senders) == sorted(owners) == list(range(layout.rank_count))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_go_to_the_same_stage_of_the_same_replica(layout):
    for replica in range(layout.replicas):
        for stage in range(len(layout.stages)):
            for sender, owner in mirror_pairs(layout, stage, replica):
                assert (
                    layout.locate_rank(sender, 0).stage
                    == layout.locate_rank(owner, 1).stage
                    == stage
                )
                assert {layout.locate_rank(rank).replica for rank in (sender, owner)} == {replica}


def test_a_stage_in_both_directions_of_a_rank_stays_on_it():
    layout = build_layout(2, [Grid(2, 2)], mirrored=True)
    assert mirror_pairs(layout, 0, 0) == ((1, 1), (2, 2), (3, 3), (0, 4))
    assert mirror_pairs(layout, 1, 0) == ((4, 0),)
    assert mirror_pairs(build_layout(3, mirrored=True), 1, 0) == ((1, 1),)


class Ranks:
    def __init__(self, size):
        self.size = size


class Copy:
    def __init__(self, numbers, dtype=torch.float32):
        self.flat_tensor = torch.empty(numbers, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("ranks", "numbers", "dtype", "sent_bytes", "messages"),
    [
        (1, 100, torch.float32, 0, 0),
        (2, 100, torch.float32, 400, 1),
        (4, 100, torch.float32, 600, 1),
        (4, 100, torch.float64, 1200, 1),
        (4, 100, torch.bfloat16, 600, 1),
        (2, BUCKET_NUMBERS + 1, torch.float32, 4 * (BUCKET_NUMBERS + 1), 2),
    ],
)
def test_a_sum_sends_bytes_and_messages(ranks, numbers, dtype, sent_bytes, messages):
    weight_group = WeightGroup(Ranks(ranks), (Copy(numbers, dtype),), 1)
    assert (weight_group.bytes, weight_group.messages) == (sent_bytes, messages)


def test_master_comm_needs_mirrored_pipelines():
    with pytest.raises(ValueError, match="mirrored"):
        MasterComm(None, build_layout(2), [], [])


class Group:
    """A group that records the vectors to sum.

    It stands in for NCCL, and assumes that all ranks have the same vector.
    """

    def __init__(self):
        self.summed = []

    def allreduce(self, vector, op):
        self.summed.append((len(vector), vector.dtype, op))
        vector.mul_(2)
        return self

    def wait(self):
        pass


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_group_sums_all_formats_except_16_bits(dtype):
    """Numbers of 16 bits are added in fp32, in the same order on all ranks."""
    copy = Copy(0)
    group = Group()
    copy.flat_tensor = torch.arange(10, dtype=dtype)
    WeightGroup(Twin(), (copy,), 2, group, bucket_numbers=4).sum()
    assert copy.flat_tensor.tolist() == list(range(10))
    buckets = [] if dtype.itemsize == 2 else [4, 4, 2]
    assert group.summed == [(size, dtype, ReduceOp.SUM) for size in buckets]
