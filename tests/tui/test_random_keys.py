"""A sample of `python -m benchmarks.random_keys`."""

import pytest
from benchmarks.random_keys import try_events

from spbench.tui.app import ConsoleApp


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_random_keys_raise_no_error(tmp_path):
    error, last = await try_events(tmp_path, seed=7, events=200)
    assert error is None, (error, last)


async def test_reports_an_error_with_the_events_before_it(tmp_path, monkeypatch):
    def raise_error(self, name):
        raise ZeroDivisionError

    monkeypatch.setattr(ConsoleApp, "action_show_page", raise_error)
    error, last = await try_events(tmp_path, 1, 20, draw_event=lambda *_: ("key", "2"))
    assert isinstance(error, ZeroDivisionError)
    assert ("key", "2") in last
