import pytest

from spbench_parallel.spatial.overlap import WITHIN_HOST, OverlapChoice, summarize_overlap

ON = OverlapChoice(True, (1.0, 2.0))
OFF = OverlapChoice(False, (2.0, 1.0))


@pytest.mark.parametrize(
    ("choices", "word", "reason"),
    [
        ([ON, ON, ON], "on", "timed for 1 shape of 3 operators; 1 faster with overlap"),
        ([OFF], "off", "timed for 1 shape of 1 operators; 0 faster with overlap"),
        ([ON, OFF, OFF], "on and off", "timed for 2 shapes of 3 operators; 1 faster with overlap"),
    ],
)
def test_operators_that_are_alike_are_counted_once(choices, word, reason):
    assert summarize_overlap(choices) == (word, reason)


def test_within_a_host_the_reason_is_that_nothing_could_be_hidden():
    assert summarize_overlap([WITHIN_HOST] * 3) == ("off", WITHIN_HOST.explanation)


def test_where_nothing_was_timed_there_is_no_choice_to_report():
    assert summarize_overlap([]) is None


def test_a_choice_says_what_was_faster_or_that_it_was_asked_for():
    assert (
        ON.reason == "the faster of on 1.00 ms, off 2.00 ms in a few passes, any gradients included"
    )
    assert OverlapChoice(True).reason == "asked for"
