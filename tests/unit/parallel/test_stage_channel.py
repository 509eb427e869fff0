"""Messages between stages: sent tensors are packed, received ones stay.

The GPU is a stand-in that does its work late. The carrier of messages reads and writes at once.
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


class ImmediateP2p:
    """Carry messages at once in host memory; a received message contains its number."""

    on_device = False

    def __init__(self):
        self.sends = []
        self.received = 0

    def send(self, messages, tag):
        self.sends.append([vector.view(torch.float32).tolist() for vector, _ in messages])
        return []

    def receive(self, messages, tag):
        for vector, _ in messages:
            vector.view(torch.float32).fill_(self.received)
        self.received += 1
        return []


def connect_channel(p2p):
    late = torch.device("late")
    sizes = [1] * COUNT
    return StageChannel.connect(
        NEXT, p2p, 3, sizes, {1: HERE}, {1: PEERS}, dtype=torch.float32, device=late
    )


def test_packs_tensors_before_sending():
    LATE.reset()
    p2p = ImmediateP2p()
    outgoing = Sender(connect_channel(p2p))
    for turn in range(COUNT):
        values = torch.full((1, 1, 2, 4), float(turn)).to("late") * 2
        outgoing.send([values])
        values.zero_()
    assert p2p.sends == [[[2.0 * turn] * 6, [2.0 * turn] * 8] for turn in range(COUNT)]
    assert LATE.device_wide == 0


def test_a_taken_tensor_survives_the_next_message():
    LATE.reset()
    incoming = Receiver(connect_channel(ImmediateP2p()))
    incoming.begin()
    tensors = [incoming.take()[0] for _ in range(COUNT)]
    assert [tensor.cpu().unique().tolist() for tensor in tensors] == [
        [float(n)] for n in range(COUNT)
    ]
    assert LATE.device_wide == 0


@pytest.mark.parametrize(
    ("source", "target", "messages", "sends"),
    [(0, 1, 9, 2), (0, 2, 9, 5), (1, 4, 9, 8), (1, 4, 6, 6), (0, 9, 1, 2)],
)
def test_limits_pending_sends_of_a_route(source, target, messages, sends):
    assert (
        DirectedRoute(Route(source, target, (3,)), backward=True).max_pending_sends(messages)
        == sends
    )
