"""A listener that records the events of the collector."""

import asyncio

DEADLINE = 30.0


class RecordingListener:
    """Records everything that the collector reports."""

    def __init__(self):
        self.events = []
        self.lines = []
        self.violations = []
        self.lost = []
        self.relays_lost = []
        self.rejected = []
        self.sources = []

    def on_events(self, source, lines, events):
        assert len(lines) == len(events)
        self.sources.append(source)
        self.lines += lines
        self.events += events

    def on_violation(self, source, reason):
        self.violations.append(reason)

    def on_lost(self, source):
        self.lost.append(source)

    def on_relay_lost(self, host, ranks, reason):
        self.relays_lost.append((host, ranks, reason))

    def on_rejected(self, peer, reason):
        self.rejected.append(reason)

    @property
    def seqs(self):
        return [event["seq"] for event in self.events]


async def wait_until(condition):
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.002)
