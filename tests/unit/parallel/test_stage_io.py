"""Stage I/O: the channels of messages between stages, and the tags that tell them apart."""

from dataclasses import replace
from itertools import product

import pytest

from spbench_core.layout.balance import balance_layers
from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid
from spbench_core.models.parts import Map
from spbench_core.models.registry import make_model
from spbench_parallel.models.imported.model import import_network
from spbench_parallel.pipeline.stage_io import message_tags, open_stage_io
from spbench_parallel.plan import ModelPlan

NETWORK = make_model("resnet", image_size=(32, 32), num_classes=3, version=1, depth=8, width=2)
UNET = import_network("own_networks:UNet", {}, Map(3, 32, 32), 0)
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


class Postbox:
    """Notes who sends to whom, and delivers nothing."""

    on_device = False

    def __init__(self):
        self.sent = []
        self.received = set()

    def send(self, messages, tag):
        self.sent += [(tag, rank) for _, rank in messages]
        return []

    def receive(self, messages, tag):
        self.received |= {(tag, rank) for _, rank in messages}
        return []


def plan_of(layout, network=NETWORK):
    batches = split_batch(8, 2, mirrored=layout.mirrored)
    costs = [float(count.multiply_adds) for count in network.counts]
    balance = balance_layers(costs, [stage.ranks for stage in layout.stages])
    plan = ModelPlan(network, layout, balance, batches)
    stages = range(len(layout.stages))
    return replace(plan, straight=frozenset(product(stages, stages)))


def posted(layout, rank, network=NETWORK):
    """The first messages of a step that a rank sends and receives, of all its channels."""
    plan = plan_of(layout, network)
    box = Postbox()
    for place in layout.list_coordinates(rank):
        io = open_stage_io(box, plan, place)
        io.begin(learns=True)
        pairs = [*zip(io.outputs, io.output_gradients, strict=True)]
        for outgoing, like in [*pairs, *zip(io.input_gradients, io.inputs, strict=True)]:
            outgoing.end.send(like.end.take())
    return box


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_one_rank_sends_another_expects(layout, network):
    boxes = [posted(layout, rank, network) for rank in range(layout.ranks)]
    sent = {(tag, rank, to) for rank, box in enumerate(boxes) for tag, to in box.sent}
    received = {
        (tag, source, rank) for rank, box in enumerate(boxes) for tag, source in box.received
    }
    assert sent == received
    assert {tag for tag, *_ in sent} == set(message_tags(layout, plan_of(layout, network).routes()))


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_of_a_tag_a_rank_only_sends_or_only_receives(layout, network):
    for rank in range(layout.ranks):
        box = posted(layout, rank, network)
        # A rank that has two stages of a pipeline sends to itself; no other rank may be mixed up.
        received = {(tag, source) for tag, source in box.received if source != rank}
        sent = {(tag, to) for tag, to in box.sent if to != rank}
        assert not {tag for tag, _ in sent} & {tag for tag, _ in received}


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_between_two_ranks_a_tag_is_of_one_way(layout, network):
    for rank in range(layout.ranks):
        sent = posted(layout, rank, network).sent
        assert len(set(sent)) == len(sent)
