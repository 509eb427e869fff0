"""Fan-in: frames of many ranks over one connection, in both directions.

A frame is a line ``CHANNEL SIZE`` and then SIZE bytes. Each rank behind a relay has a channel,
counted from 1; size 0 ends it. Channel 0 belongs to the relay; its frames are empty heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterator

from spbench_core.events.fields import EventError

MAX_FRAME = 1 << 20
"""Bytes of the longest frame, without its header."""
_MAX_HEADER = 24
"""Bytes of the longest header, with its line end."""
HEARTBEAT_FRAME = b"0 0\n"


def encode_frame(channel: int, data: bytes) -> bytes:
    """Return a frame of a channel; without data, the frame that ends the channel."""
    return b"%d %d\n%b" % (channel, len(data), data)


class FrameDecoder:
    """A decoder of frames from a stream of bytes that arrives in arbitrary chunks."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield channel and data of each frame that is complete.

        Raises:
            EventError: A frame does not begin with a valid header.
        """
        data = self._buffer + data if self._buffer else data
        frame_start = 0
        try:
            while (header_end := data.find(b"\n", frame_start, frame_start + _MAX_HEADER)) >= 0:
                channel, size = _parse_header(data[frame_start:header_end])
                if len(data) < header_end + 1 + size:
                    break
                frame_start = header_end + 1 + size
                yield channel, data[header_end + 1 : frame_start]
            else:
                if len(data) - frame_start >= _MAX_HEADER:
                    raise EventError("invalid frame header (expected CHANNEL SIZE)")
        finally:
            self._buffer = data[frame_start:]


def _parse_header(line: bytes) -> tuple[int, int]:
    channel, _, size = line.partition(b" ")
    if not (channel.isdigit() and size.isdigit()) or int(size) > MAX_FRAME:
        raise EventError(f"invalid frame header {line!r} (expected CHANNEL SIZE)")
    return int(channel), int(size)
