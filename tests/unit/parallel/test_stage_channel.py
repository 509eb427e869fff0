"""Messages between stages of a GPU's tensors: what leaves is packed, what was taken stays.

The GPU is a stand-in that does its work late; what carries messages reads and writes at once.
"""

import pytest
import torch

from spbench_core.layout.tiles import Box
from spbench_core.models.routes import Route
from spbench_parallel.pipeline.reshard import LocalShard
from spbench_parallel.pipeline.stage_channel import DirectedRoute, Receiver, Sender, StageChannel
from standins.late_device import install

LATE = install()
HERE = LocalShard((0, 1), (1,), (Box((0, 2), (0, 4)),))
PEERS = {5: LocalShard((0, 1), (1,), (Box((0, 2), (0, 3)),)), 6: HERE}
COUNT = 5
NEXT = DirectedRoute(Route(0, 1, (1,)), backward=False)


class AtOnce:
    """Carries at once, from and to memory of the host: what comes is of the message's number."""

    on_device = False

    def __init__(self):
        self.sent = []
        self.received = 0

    def send(self, messages, tag):
        self.sent.append([vector.view(torch.float32).tolist() for vector, _ in messages])
        return []

    def receive(self, messages, tag):
        for vector, _ in messages:
            vector.view(torch.float32).fill_(self.received)
        self.received += 1
        return []


def channel(p2p):
    late = torch.device("late")
    sizes = [1] * COUNT
    return StageChannel.connect(
        NEXT, p2p, 3, sizes, {1: HERE}, {1: PEERS}, dtype=torch.float32, device=late
    )


def test_what_leaves_has_been_packed():
    LATE.reset()
    p2p = AtOnce()
    outgoing = Sender(channel(p2p))
    for turn in range(COUNT):
        values = torch.full((1, 1, 2, 4), float(turn)).to("late") * 2
        outgoing.send([values])
        values.zero_()
    assert p2p.sent == [[[2.0 * turn] * 6, [2.0 * turn] * 8] for turn in range(COUNT)]
    assert LATE.device_wide == 0


def test_what_was_taken_stays_when_the_next_arrives_in_its_place():
    LATE.reset()
    incoming = Receiver(channel(AtOnce()))
    incoming.begin()
    taken = [incoming.take()[0] for _ in range(COUNT)]
    assert [one.cpu().unique().tolist() for one in taken] == [[float(n)] for n in range(COUNT)]
    assert LATE.device_wide == 0


@pytest.mark.parametrize(
    ("source", "target", "messages", "sends"),
    [(0, 1, 9, 2), (0, 2, 9, 5), (1, 4, 9, 8), (1, 4, 6, 6), (0, 9, 1, 2)],
)
def test_sends_past_stages_may_be_as_far_ahead_as_those_beside_them(
    source, target, messages, sends
):
    assert (
        DirectedRoute(Route(source, target, (3,)), backward=True).max_pending_sends(messages)
        == sends
    )
