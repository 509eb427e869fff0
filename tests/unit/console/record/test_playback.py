import math
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.record.runs.playback import Playback, play_paced


def at(*times):
    return [{"event": "log", "time": 1000.0 + time, "at": time} for time in times]


def due(playback, now, *limit):
    return [event["at"] for event in playback.take_due(now, *limit)]


def test_events_come_as_far_apart_as_they_were():
    play = Playback(at(0, 0.5, 1.0, 1.5))
    assert [due(play, now) for now in (0.0, 0.4, 0.5, 1.4, 1.6)] == [[0], [], [0.5], [1.0], [1.5]]
    assert play.done


@pytest.mark.parametrize(("speed", "now"), [(0.5, 4.0), (1.0, 2.0), (4.0, 0.5), (1000.0, 0.002)])
def test_a_speed_makes_the_time_shorter_or_longer(speed, now):
    play = Playback(at(0, 1, 2), speed)
    assert due(play, 0.0) == [0]
    assert due(play, now * 0.99) == [1]
    assert due(play, now * 1.001) == [2]


@pytest.mark.parametrize("speed", [None, math.inf])
def test_at_full_speed_all_come_at_once_in_batches(speed):
    play = Playback(at(*range(10)), speed)
    assert due(play, 0.0, 4) == [0, 1, 2, 3]
    assert due(play, 0.0, 4) == [4, 5, 6, 7]
    assert not play.done
    assert due(play, 0.0, 4) == [8, 9]
    assert play.done
    assert due(play, 9.0, 4) == []


def test_a_long_silence_is_cut():
    play = Playback(at(0, 3600, 3601))
    assert due(play, 0.0) == [0]
    assert due(play, 1.9) == []
    assert due(play, 2.0) == [3600]
    assert due(play, 3.0) == [3601]
    assert due(Playback(at(0, 5), longest_pause=math.inf), 0.0) == [0]


def test_the_longest_pause_can_be_set():
    play = Playback(at(0, 3600, 7200), speed=10.0, longest_pause=5.0)
    assert [due(play, now) for now in (0.0, 0.49, 0.5, 1.0)] == [[0], [], [3600], [7200]]


def test_clocks_that_differ_do_not_make_it_longer():
    play = Playback(at(0, 100, 0.1, 100.1, 0.2, 100.2))
    assert due(play, 0.0) == [0]
    assert due(play, 2.0) == [100, 0.1]
    assert due(play, 2.101) == [100.1, 0.2]


def test_the_clock_begins_with_its_first_reading():
    play = Playback(at(0, 1))
    assert due(play, 500.0) == [0]
    assert due(play, 500.5) == []
    assert due(play, 501.0) == [1]


def test_a_pause_stops_the_time():
    play = Playback(at(0, 1, 2))
    due(play, 0.0)
    play.pause(0.6)
    assert play.paused
    assert due(play, 50.0) == []
    assert play.wait(50.0) == math.inf
    play.resume(100.0)
    assert not play.paused
    assert due(play, 100.3) == []
    assert due(play, 100.4) == [1]


def test_a_pause_stops_full_speed_too():
    play = Playback(at(0, 1), None)
    play.pause(0.0)
    assert due(play, 9.0) == []
    play.resume(9.0)
    assert due(play, 9.0) == [0, 1]


def test_the_speed_can_change_on_the_way():
    play = Playback(at(0, 1, 2, 3))
    due(play, 0.0)
    play.set_speed(2.0, 0.5)
    assert due(play, 0.75) == [1]
    play.set_speed(0.5, 0.75)
    assert due(play, 2.7) == []
    assert due(play, 2.75) == [2]
    play.set_speed(None, 2.75)
    assert due(play, 2.75) == [3]


def test_after_full_speed_the_time_goes_on_from_there():
    play = Playback(at(0, 1, 2, 3, 4), None)
    assert due(play, 0.0, 3) == [0, 1, 2]
    play.set_speed(1.0, 0.0)
    assert due(play, 0.9) == []
    assert due(play, 1.0) == [3]
    assert due(play, 2.0) == [4]


def test_the_time_waits_for_events_that_were_not_taken():
    play = Playback(at(*(index / 100 for index in range(100))), speed=100.0)
    due(play, 0.0)
    assert len(due(play, 10.0, 10)) == 10
    play.set_speed(1.0, 10.0)
    assert len(due(play, 10.05, 100)) in range(4, 8)


def test_the_position_tells_how_many_of_how_many():
    known = Playback(at(0, 1))
    unknown = Playback(iter(at(0, 1)))
    assert (known.position, unknown.position) == ((0, 2), (0, None))
    due(known, 0.0)
    assert known.position == (1, 2)
    due(known, 1.0)
    assert known.position == (2, 2)


def test_no_events_are_done():
    play = Playback([])
    assert play.done
    assert due(play, 0.0) == []
    assert play.wait(0.0) == math.inf


def test_events_are_taken_as_they_come_due():
    taken = []

    def source():
        for event in at(*range(100)):
            taken.append(event["at"])
            yield event

    play = Playback(source())
    due(play, 0.0)
    due(play, 3.0)
    assert len(taken) <= 5


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan])
def test_a_speed_is_above_0(speed):
    with pytest.raises(ValueError, match="not above 0"):
        Playback([], speed)
    with pytest.raises(ValueError, match="not above 0"):
        Playback([]).set_speed(speed, 0.0)


@given(
    st.lists(st.floats(0, 100), max_size=30),
    st.lists(st.tuples(st.floats(0, 50), st.integers(1, 5)), max_size=30),
    st.sampled_from([0.5, 1.0, 50.0, None]),
)
def test_every_event_comes_once_and_in_order(times, looks, speed):
    play = Playback(at(*times), speed)
    now = 0.0
    found = []
    for passed, limit in looks:
        now += passed
        new = due(play, now, limit)
        assert len(new) <= limit
        found += new
    while not play.done:
        now += 1000.0
        found += due(play, now)
    assert found == times


class Clock:
    """A clock that goes on by sleeping alone."""

    def __init__(self):
        self.now = 0.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def test_a_paced_playback_sleeps_in_between():
    clock = Clock()
    heard = [
        (event["at"], clock.now)
        for event in play_paced(Playback(at(0, 1, 1, 9, 10), 2.0), clock, clock.sleep)
    ]
    assert heard == [(0, 0.0), (1, 0.5), (1, 0.5), (9, 1.5), (10, 2.0)]
    assert len(clock.slept) == 3


def test_at_full_speed_nothing_sleeps():
    clock = Clock()
    assert len(list(play_paced(Playback(at(*range(9000)), None), clock, clock.sleep))) == 9000
    assert clock.slept == []


def test_a_paced_playback_of_a_stream_gives_what_is_there():
    clock = Clock()
    endless = ({"event": "log", "time": float(index)} for index in iter(int, 1))
    play = play_paced(Playback(endless, None), clock, clock.sleep)
    assert len(list(islice(play, 5000))) == 5000
