import pytest

from spbench_core.events.fan_in import HEARTBEAT_FRAME, MAX_FRAME, FrameDecoder, encode_frame
from spbench_core.events.fields import EventError

SENT = [
    (1, b"one\n"),
    (2, b""),
    (70000, bytes(range(256)) * 300),
    (0, b""),
    (1, b"12 3\nnot a head"),
]
STREAM = b"".join(encode_frame(channel, data) for channel, data in SENT)


@pytest.mark.parametrize("step", [1, 2, 7, 4096, len(STREAM)])
def test_pieces_are_whole_wherever_the_stream_is_cut(step):
    pieces = FrameDecoder()
    found = []
    for at in range(0, len(STREAM), step):
        found += pieces.feed(STREAM[at : at + step])
    assert found == SENT


def test_a_sign_of_life_is_an_empty_piece_of_the_relays_own_channel():
    assert list(FrameDecoder().feed(HEARTBEAT_FRAME)) == [(0, b"")]


@pytest.mark.parametrize(
    "wrong",
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
def test_what_is_no_piece_is_an_error_after_what_was_right_before(wrong):
    stream = FrameDecoder().feed(encode_frame(1, b"right") + wrong)
    assert next(stream) == (1, b"right")
    with pytest.raises(EventError, match="no head of a piece"):
        next(stream)
