"""Playback of recorded events at a chosen speed."""

import math
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.record.runs.playback import Playback, play_paced


def make_events(*times):
    return [{"event": "log", "time": 1000.0 + time, "at": time} for time in times]


def take_times(playback, now, *limit):
    return [event["at"] for event in playback.take_due(now, *limit)]


def test_events_are_due_at_their_recorded_distance():
    play = Playback(make_events(0, 0.5, 1.0, 1.5))
    assert [take_times(play, now) for now in (0.0, 0.4, 0.5, 1.4, 1.6)] == [
        [0],
        [],
        [0.5],
        [1.0],
        [1.5],
    ]
    assert play.done


@pytest.mark.parametrize(("speed", "now"), [(0.5, 4.0), (1.0, 2.0), (4.0, 0.5), (1000.0, 0.002)])
def test_speed_scales_the_time(speed, now):
    play = Playback(make_events(0, 1, 2), speed)
    assert take_times(play, 0.0) == [0]
    assert take_times(play, now * 0.99) == [1]
    assert take_times(play, now * 1.001) == [2]


@pytest.mark.parametrize("speed", [None, math.inf])
def test_full_speed_returns_all_events_in_batches(speed):
    play = Playback(make_events(*range(10)), speed)
    assert take_times(play, 0.0, 4) == [0, 1, 2, 3]
    assert take_times(play, 0.0, 4) == [4, 5, 6, 7]
    assert not play.done
    assert take_times(play, 0.0, 4) == [8, 9]
    assert play.done
    assert take_times(play, 9.0, 4) == []


def test_shortens_a_long_pause():
    play = Playback(make_events(0, 3600, 3601))
    assert take_times(play, 0.0) == [0]
    assert take_times(play, 1.9) == []
    assert take_times(play, 2.0) == [3600]
    assert take_times(play, 3.0) == [3601]
    assert take_times(Playback(make_events(0, 5), max_pause=math.inf), 0.0) == [0]


def test_longest_pause_can_be_set():
    play = Playback(make_events(0, 3600, 7200), speed=10.0, max_pause=5.0)
    assert [take_times(play, now) for now in (0.0, 0.49, 0.5, 1.0)] == [[0], [], [3600], [7200]]


def test_differing_clocks_do_not_lengthen_the_playback():
    play = Playback(make_events(0, 100, 0.1, 100.1, 0.2, 100.2))
    assert take_times(play, 0.0) == [0]
    assert take_times(play, 2.0) == [100, 0.1]
    assert take_times(play, 2.101) == [100.1, 0.2]


def test_time_starts_at_the_first_reading_of_the_clock():
    play = Playback(make_events(0, 1))
    assert take_times(play, 500.0) == [0]
    assert take_times(play, 500.5) == []
    assert take_times(play, 501.0) == [1]


def test_pause_stops_the_time():
    play = Playback(make_events(0, 1, 2))
    take_times(play, 0.0)
    play.pause(0.6)
    assert play.paused
    assert take_times(play, 50.0) == []
    assert play.wait(50.0) == math.inf
    play.resume(100.0)
    assert not play.paused
    assert take_times(play, 100.3) == []
    assert take_times(play, 100.4) == [1]


def test_pause_stops_full_speed():
    play = Playback(make_events(0, 1), None)
    play.pause(0.0)
    assert take_times(play, 9.0) == []
    play.resume(9.0)
    assert take_times(play, 9.0) == [0, 1]


def test_speed_can_change_during_playback():
    play = Playback(make_events(0, 1, 2, 3))
    take_times(play, 0.0)
    play.set_speed(2.0, 0.5)
    assert take_times(play, 0.75) == [1]
    play.set_speed(0.5, 0.75)
    assert take_times(play, 2.7) == []
    assert take_times(play, 2.75) == [2]
    play.set_speed(None, 2.75)
    assert take_times(play, 2.75) == [3]


def test_time_continues_after_full_speed():
    play = Playback(make_events(0, 1, 2, 3, 4), None)
    assert take_times(play, 0.0, 3) == [0, 1, 2]
    play.set_speed(1.0, 0.0)
    assert take_times(play, 0.9) == []
    assert take_times(play, 1.0) == [3]
    assert take_times(play, 2.0) == [4]


def test_time_waits_for_events_that_were_not_taken():
    play = Playback(make_events(*(index / 100 for index in range(100))), speed=100.0)
    take_times(play, 0.0)
    assert len(take_times(play, 10.0, 10)) == 10
    play.set_speed(1.0, 10.0)
    assert len(take_times(play, 10.05, 100)) in range(4, 8)


def test_position_is_the_count_and_the_total():
    from_list = Playback(make_events(0, 1))
    from_iterator = Playback(iter(make_events(0, 1)))
    assert (from_list.position, from_iterator.position) == ((0, 2), (0, None))
    take_times(from_list, 0.0)
    assert from_list.position == (1, 2)
    take_times(from_list, 1.0)
    assert from_list.position == (2, 2)


def test_playback_without_events_is_done():
    play = Playback([])
    assert play.done
    assert take_times(play, 0.0) == []
    assert play.wait(0.0) == math.inf


def test_takes_events_from_the_source_only_when_due():
    requested = []

    def source():
        for event in make_events(*range(100)):
            requested.append(event["at"])
            yield event

    play = Playback(source())
    take_times(play, 0.0)
    take_times(play, 3.0)
    assert len(requested) <= 5


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan])
def test_rejects_speed_that_is_not_positive(speed, messages):
    with messages.raises(ValueError):
        Playback([], speed)
    with messages.raises(ValueError):
        Playback([]).set_speed(speed, 0.0)


@given(
    st.lists(st.floats(0, 100), max_size=30),
    st.lists(st.tuples(st.floats(0, 50), st.integers(1, 5)), max_size=30),
    st.sampled_from([0.5, 1.0, 50.0, None]),
)
def test_returns_every_event_once_in_order(times, readings, speed):
    play = Playback(make_events(*times), speed)
    now = 0.0
    returned = []
    for elapsed, limit in readings:
        now += elapsed
        batch = take_times(play, now, limit)
        assert len(batch) <= limit
        returned += batch
    while not play.done:
        now += 1000.0
        returned += take_times(play, now)
    assert returned == times


class Clock:
    """A clock that advances only by sleeping."""

    def __init__(self):
        self.now = 0.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def test_paced_playback_sleeps_between_events():
    clock = Clock()
    played = [
        (event["at"], clock.now)
        for event in play_paced(Playback(make_events(0, 1, 1, 9, 10), 2.0), clock, clock.sleep)
    ]
    assert played == [(0, 0.0), (1, 0.5), (1, 0.5), (9, 1.5), (10, 2.0)]
    assert len(clock.slept) == 3


def test_full_speed_does_not_sleep():
    clock = Clock()
    assert (
        len(list(play_paced(Playback(make_events(*range(9000)), None), clock, clock.sleep))) == 9000
    )
    assert clock.slept == []


def test_paced_playback_of_an_endless_stream_returns_events():
    clock = Clock()
    endless = ({"event": "log", "time": float(index)} for index in iter(int, 1))
    play = play_paced(Playback(endless, None), clock, clock.sleep)
    assert len(list(islice(play, 5000))) == 5000
