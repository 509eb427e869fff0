"""Formatted efficiencies, and the time that each belongs to."""

from __future__ import annotations

import pytest

from spbench.record.efficiency import find_efficiency_time, format_efficiency


@pytest.mark.parametrize(
    ("efficiency", "disturbed", "expected"),
    [
        (None, False, ""),
        (0.412, False, "41 %"),
        (0.412, True, "~41 %"),
        (2.0, False, "200 %"),
        (2.67, False, "> 200 %"),
        (225.04, True, "~> 200 %"),
    ],
)
def test_formats_efficiency_as_a_percentage(efficiency, disturbed, expected):
    assert format_efficiency(efficiency, disturbed=disturbed) == expected


@pytest.mark.parametrize(
    ("metric", "references", "time"),
    [
        ("efficiency", ["time_ms"], "time_ms"),
        ("exchange_efficiency", ["time_ms"], "time_ms"),
        ("exchange_efficiency", ["time_ms", "exchange_ms"], "exchange_ms"),
        ("exchange_efficiency", [], None),
        ("speedup", ["time_ms"], None),
    ],
)
def test_efficiency_belongs_to_the_time_with_a_reference(metric, references, time):
    assert find_efficiency_time(metric, references) == time
