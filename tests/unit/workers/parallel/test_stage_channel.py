"""Messages between stages of a GPU's tensors: what leaves is packed, what was taken stays.

The GPU is a stand-in that does its work late; what carries messages reads and writes at once.
"""

import torch

from spbench_core.layout.tiles import Box
from spbench_workers.parallel.pipeline.reshard import LocalShard
from spbench_workers.parallel.pipeline.stage_channel import Receiver, Sender, StageChannel
from standins.late_device import install

LATE = install()
HERE = LocalShard((0, 1), (1,), (Box((0, 2), (0, 4)),))
PEERS = {5: LocalShard((0, 1), (1,), (Box((0, 2), (0, 3)),)), 6: HERE}
COUNT = 5


class AtOnce:
    """Carries at once, from and to memory of the host: what comes is of the message's number."""

    on_device = False

    def __init__(self):
        self.sent, self.received = [], 0

    def send(self, messages, tag):
        self.sent.append([vector.view(torch.float32).tolist() for vector, _ in messages])
        return []

    def receive(self, messages, tag):
        for vector, _ in messages:
            vector.view(torch.float32).fill_(self.received)
        self.received += 1
        return []


def way(p2p):
    late = torch.device("late")
    sizes = [1] * COUNT
    return StageChannel.between(
        p2p, 3, sizes, {1: HERE}, {1: PEERS}, dtype=torch.float32, device=late
    )


def test_what_leaves_has_been_packed():
    LATE.reset()
    p2p = AtOnce()
    outgoing = Sender(way(p2p))
    for turn in range(COUNT):
        values = torch.full((1, 1, 2, 4), float(turn)).to("late") * 2
        outgoing.send([values])
        values.zero_()
    assert p2p.sent == [[[2.0 * turn] * 6, [2.0 * turn] * 8] for turn in range(COUNT)]
    assert LATE.device_wide == 0


def test_what_was_taken_stays_when_the_next_arrives_in_its_place():
    LATE.reset()
    incoming = Receiver(way(AtOnce()))
    incoming.begin()
    taken = [incoming.take()[0] for _ in range(COUNT)]
    assert [one.cpu().unique().tolist() for one in taken] == [[float(n)] for n in range(COUNT)]
    assert LATE.device_wide == 0
