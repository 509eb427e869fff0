"""A sample of `python -m benchmarks.console`."""

from __future__ import annotations

import pytest

from benchmarks import console


@pytest.mark.slow
def test_keys_are_answered_while_a_run_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(console, "WARM_UP", 0.5)
    cost = console.measure_watching(ranks=16, rate=100, seconds=0.5)
    assert len(cost.answer_ms) >= len(console.TABLE_KEYS)
    assert len(cost.help_ms) >= len(console.HELP_KEYS)
