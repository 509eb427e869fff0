import pytest

from spbench_core.events.fan_in import HEARTBEAT_FRAME, MAX_FRAME, FrameDecoder, encode_frame
from spbench_core.events.fields import EventError

FRAMES = [
    (1, b"one\n"),
    (2, b""),
    (70000, bytes(range(256)) * 300),
    (0, b""),
    (1, b"12 3\nnot a head"),
]
STREAM = b"".join(encode_frame(channel, data) for channel, data in FRAMES)


@pytest.mark.parametrize("step", [1, 2, 7, 4096, len(STREAM)])
def test_decodes_frames_wherever_the_stream_is_cut(step):
    decoder = FrameDecoder()
    frames = []
    for start in range(0, len(STREAM), step):
        frames += decoder.feed(STREAM[start : start + step])
    assert frames == FRAMES


def test_a_heartbeat_is_an_empty_frame_of_channel_zero():
    assert list(FrameDecoder().feed(HEARTBEAT_FRAME)) == [(0, b"")]


@pytest.mark.parametrize(
    "invalid",
    [
        b"\n",
        b"1\n",
        b"-1 2\n",
        b"1 2 3\n",
        b'{"event":"hello"}\n',
        b"1 %d\n" % (MAX_FRAME + 1),
        b"9" * 30,
    ],
)
def test_rejects_an_invalid_frame_after_valid_frames(invalid, messages):
    stream = FrameDecoder().feed(encode_frame(1, b"right") + invalid)
    assert next(stream) == (1, b"right")
    with messages.raises(EventError):
        next(stream)
