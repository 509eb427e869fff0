"""Fan-in: the bytes of many ranks over one connection, in numbered pieces, both ways.

A piece is a line ``CHANNEL SIZE``, and so many bytes. Each rank behind a relay has a channel,
counted from 1; size 0 ends it. Channel 0 is the relay's own: its pieces are empty, and say that it
lives.
"""

from __future__ import annotations

from collections.abc import Iterator

from spbench_core.events.fields import EventError

MAX_FRAME = 1 << 20
"""Bytes of the longest piece, its head not included."""
_MAX_HEAD = 24
HEARTBEAT_FRAME = b"0 0\n"


def encode_frame(channel: int, data: bytes) -> bytes:
    """Return a piece of a channel; without data, its end."""
    return b"%d %d\n%b" % (channel, len(data), data)


class FrameDecoder:
    """The pieces in a stream of bytes, whatever the cuts at which it arrives."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield channel and data of each piece that is whole now.

        Raises:
            EventError: The stream has no head where one is due.
        """
        data = self._rest + data if self._rest else data
        at = 0
        try:
            while (end := data.find(b"\n", at, at + _MAX_HEAD)) >= 0:
                channel, size = _head(data[at:end])
                if len(data) < end + 1 + size:
                    break
                at = end + 1 + size
                yield channel, data[end + 1 : at]
            else:
                if len(data) - at >= _MAX_HEAD:
                    raise EventError("no head of a piece where one was due")
        finally:
            self._rest = data[at:]


def _head(line: bytes) -> tuple[int, int]:
    channel, _, size = line.partition(b" ")
    if not (channel.isdigit() and size.isdigit()) or int(size) > MAX_FRAME:
        raise EventError(f"no head of a piece: {line!r}")
    return int(channel), int(size)
