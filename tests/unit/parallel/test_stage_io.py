"""The channels of messages between stages, and the tags of their messages."""

from dataclasses import replace
from itertools import product

import pytest

from spbench_core.layout.balance import balance_layers
from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid
from spbench_core.models.parts import MapShape
from spbench_core.models.registry import make_model
from spbench_parallel.models.imported.model import import_network
from spbench_parallel.pipeline.stage_io import message_tags, open_stage_io
from spbench_parallel.plan import ModelPlan

NETWORK = make_model("resnet", image_size=(32, 32), num_classes=3, version=1, depth=8, width=2)
UNET = import_network("support.networks.own_networks:UNet", {}, MapShape(3, 32, 32), 0)
NETWORKS = [NETWORK, UNET]
LAYOUTS = [
    build_layout(1),
    build_layout(2),
    build_layout(5),
    build_layout(3, [Grid(2, 2)], members=2),
    build_layout(2, mirrored=True),
    build_layout(3, mirrored=True),
    build_layout(4, [Grid(1, 2)], mirrored=True),
    build_layout(4, rounds=2),
    build_layout(4, members=[2, 1, 2, 1], rounds=2),
]


class RecordingP2p:
    """Record senders and receivers, and deliver nothing."""

    on_device = False

    def __init__(self):
        self.sends = []
        self.received = set()

    def send(self, messages, tag):
        self.sends += [(tag, rank) for _, rank in messages]
        return []

    def receive(self, messages, tag):
        self.received |= {(tag, rank) for _, rank in messages}
        return []


def make_plan(layout, network=NETWORK):
    batches = split_batch(8, 2, mirrored=layout.mirrored)
    costs = [float(count.multiply_adds) for count in network.counts]
    balance = balance_layers(costs, [stage.rank_count for stage in layout.stages])
    plan = ModelPlan(network, layout, balance, batches)
    stages = range(len(layout.stages))
    return replace(plan, straight=frozenset(product(stages, stages)))


def record_messages(layout, rank, network=NETWORK):
    """Return the first messages of a step of a rank, in all its channels."""
    plan = make_plan(layout, network)
    box = RecordingP2p()
    for coordinates in layout.list_coordinates(rank):
        io = open_stage_io(box, plan, coordinates)
        io.begin(learns=True)
        pairs = [*zip(io.outputs, io.output_gradients, strict=True)]
        for outgoing, source in [*pairs, *zip(io.input_gradients, io.inputs, strict=True)]:
            outgoing.end.send(source.end.take())
    return box


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_sent_message_is_expected(layout, network):
    boxes = [record_messages(layout, rank, network) for rank in range(layout.rank_count)]
    sends = {(tag, rank, receiver) for rank, box in enumerate(boxes) for tag, receiver in box.sends}
    received = {
        (tag, sender, rank) for rank, box in enumerate(boxes) for tag, sender in box.received
    }
    assert sends == received
    assert {tag for tag, *_ in sends} == set(
        message_tags(layout, make_plan(layout, network).routes())
    )


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rank_uses_a_tag_in_one_direction(layout, network):
    for rank in range(layout.rank_count):
        box = record_messages(layout, rank, network)
        # A rank that has two stages of a pipeline sends to itself; no other rank may be mixed up.
        received = {(tag, sender) for tag, sender in box.received if sender != rank}
        sends = {(tag, receiver) for tag, receiver in box.sends if receiver != rank}
        assert not {tag for tag, _ in sends} & {tag for tag, _ in received}


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rank_sends_each_tag_once_to_a_rank(layout, network):
    for rank in range(layout.rank_count):
        sends = record_messages(layout, rank, network).sends
        assert len(set(sends)) == len(sends)
