"""Tests of the stylesheet, which parses each source once for a theme."""

from collections import Counter

import pytest
from textual.css.parse import parse

from spbench.tui.stylesheet import CachingStylesheet
from support.tui.app_driver import make_console

SOURCES = {f"widget {number}": f"Widget{number} {{ color: $text; }}" for number in range(100)}


@pytest.fixture
def parse_counts(monkeypatch):
    counts = Counter()

    def count_and_parse(scope, css, *args, **options):
        counts[css, options["tie_breaker"]] += 1
        return parse(scope, css, *args, **options)

    monkeypatch.setattr("textual.css.stylesheet.parse", count_and_parse)
    return counts


def test_parses_each_source_again_only_for_another_theme(parse_counts):
    sheet = CachingStylesheet({"text": "red"})
    for name, source in SOURCES.items():
        sheet.add_source(source, (name, ""))
    for _ in range(3):
        sheet.set_variables({"text": "red"})
        sheet.reparse()
    assert set(parse_counts.values()) == {1}
    sheet.set_variables({"text": "blue"})
    sheet.reparse()
    assert set(parse_counts.values()) == {2}
    assert {rule.styles.color.hex for rule in sheet.rules} == {"#0000FF"}


async def test_pages_are_shown_without_parsing_a_source_twice(tmp_path, parse_counts):
    app = make_console(tmp_path)
    async with app.run_test() as pilot:
        await pilot.press("2")
        await pilot.press("1")
        assert app.screen.styles.background.brightness < 0.2
        repeated = {source for source, count in parse_counts.items() if count > 1}
        assert not repeated
        app.theme = "spbench-light"
        await pilot.pause()
        assert app.screen.styles.background.brightness > 0.8
