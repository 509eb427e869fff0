"""A sample of `python -m benchmarks.random_keys`: nothing that is pressed breaks the console."""

import pytest
from benchmarks.random_keys import try_events

from benchmarks import random_keys
from spbench.tui.app import ConsoleApp


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_random_keys_break_nothing(tmp_path):
    error, last = await try_events(tmp_path, seed=7, events=200)
    assert error is None, (error, last)


async def test_an_error_is_found_and_the_events_before_it_told(tmp_path, monkeypatch):
    def broken(self, name):
        raise ZeroDivisionError

    monkeypatch.setattr(ConsoleApp, "action_show_page", broken)
    monkeypatch.setattr(random_keys, "SHARES", (("key", 1),))
    monkeypatch.setattr(random_keys, "KEYS", ("2",))
    error, last = await try_events(tmp_path, seed=1, events=20)
    assert isinstance(error, ZeroDivisionError)
    assert ("key", "2") in last
