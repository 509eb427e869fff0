import pytest

from spbench_parallel.spatial.overlap import WITHIN_HOST, OverlapChoice, summarize_overlap

ON = OverlapChoice(True, (1.0, 2.0))
OFF = OverlapChoice(False, (2.0, 1.0))


@pytest.mark.parametrize(
    ("choices", "setting", "reason"),
    [
        ([ON, ON, ON], "on", "timed for 1 shape of 3 operators; 1 faster with overlap"),
        ([OFF], "off", "timed for 1 shape of 1 operators; 0 faster with overlap"),
        ([ON, OFF, OFF], "on and off", "timed for 2 shapes of 3 operators; 1 faster with overlap"),
    ],
)
def test_counts_equal_shapes_once(choices, setting, reason):
    assert summarize_overlap(choices) == (setting, reason)


def test_explains_no_overlap_within_a_host():
    assert summarize_overlap([WITHIN_HOST] * 3) == ("off", WITHIN_HOST.explanation)


def test_reports_no_choice_without_timing():
    assert summarize_overlap([]) is None


def test_a_choice_has_a_reason(messages):
    messages.check(ON.reason)
    assert OverlapChoice(True).reason == "asked for"
