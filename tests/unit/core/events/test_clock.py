"""The clock of events when the system clock is changed."""

from __future__ import annotations

import time

import pytest

from spbench_core.events import fields as event_fields
from spbench_core.events.run_events import make_run_event
from spbench_workers.channel.base import encode_event


@pytest.mark.parametrize("hours", [-1, 1])
def test_event_times_ignore_changes_of_the_system_clock(
    monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    before = time.time()
    monkeypatch.setattr(time, "time", lambda: before + 3600 * hours)
    assert event_fields.now() == pytest.approx(before, abs=60.0)
    assert make_run_event("retry", cases=[])["time"] == pytest.approx(before, abs=60.0)
    line = encode_event("bye", 0, 0, {})
    assert b'"time":%d' % (before // 1000) in line
