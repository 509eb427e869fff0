"""The phase of a running case in words."""

from types import SimpleNamespace

import pytest

from spbench.record.phase_words import phase_words
from spbench.record.state import RankState


def rank(number, phase="check", done=0, total=0, since=100.0):
    return RankState(number, "here", phase=phase, done=done, total=total, phase_since=since)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([], ""),
        ([rank(0, "ready")], ""),
        ([rank(0, done=9, total=9)], ""),
        ([rank(0, total=9)], "check 0 %"),
        ([rank(0, done=3, total=9)], "check 33 %, 20 s yet"),
        # The last to begin gets on; the others wait in what they did before.
        ([rank(0, done=3, total=9), rank(1, "baseline", 1, 2, 105.0)], "baseline 50 %, 5 s yet"),
    ],
)
def test_a_phase_is_told_with_what_is_left_of_it(ranks, words):
    state = SimpleNamespace(ranks={one.rank: one for one in ranks})
    assert phase_words(state, 110.0) == words
