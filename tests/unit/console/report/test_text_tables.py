"""Text tables and paragraphs of a given width, with short case ids."""

from __future__ import annotations

import pytest

from spbench.report.text_tables import (
    TextColumn,
    align_and_wrap,
    cut_middle,
    render_table,
    shorten_ids,
    wrap_text,
)

COLUMNS = (
    TextColumn("outcome"),
    TextColumn("case", ids=True),
    TextColumn("interval", optional=True),
)


@pytest.mark.parametrize("width", range(60, 80))
def test_does_not_wrap_between_a_number_and_its_unit(width: int) -> None:
    text = "the sum of all of the times is 28.3 ms in a and 41 % more in b, over 12 cases " * 3
    lines = list(wrap_text(text, width))
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line[-1].isdigit()]
    assert "\u00a0" not in "".join(lines)


def test_shortens_ids_by_parameter_names_and_then_the_middle() -> None:
    ids = ["exchange[method=vertical,n=1]", "exchange[method=square,n=1]"]
    assert shorten_ids(ids, 40) == ids
    assert shorten_ids(ids, 22) == ["exchange[vertical,1]", "exchange[square,1]"]
    assert shorten_ids(ids, 19) == ["exchange[…rtical,1]", "exchange[square,1]"]
    assert cut_middle("abcdefghij", 5) == "ab…ij"


def test_shortened_ids_keep_distinguishing_parameter_names() -> None:
    ids = ["a[before=1,after=222]", "a[other=1,after=222]"]
    assert shorten_ids(ids, 17) == ["a[before…ter=222]", "a[other=…ter=222]"]


def test_drops_optional_column_before_ids_become_equal() -> None:
    rows = [("same", f"exchange[{name},left,right]", "0.980 to 1.02") for name in ("one", "two")]
    wide = render_table(COLUMNS, rows, 60)
    narrow = render_table(COLUMNS, rows, 34)
    assert "interval" in wide[0]
    assert "interval" not in narrow[0]
    assert len(set(narrow)) == 3
    assert max(map(len, narrow)) <= 34


def test_drops_an_empty_optional_column() -> None:
    assert render_table(COLUMNS, [("same", "a", "")], 60) == ["outcome  case", "same     a"]


def test_drops_the_optional_column_of_highest_rank_first() -> None:
    columns = (
        TextColumn("case", ids=True),
        TextColumn("first", optional=True, drop_priority=2),
        TextColumn("second", optional=True, drop_priority=1),
        TextColumn("third", optional=True, drop_priority=2),
    )
    rows = [("a-case-of-some-length", "1", "2", "3")]
    headings = [render_table(columns, rows, width)[0].split() for width in (33, 26, 20)]
    assert headings == [["case", "first", "second"], ["case", "second"], ["case", "second"]]


def test_wraps_the_last_cell_below_itself() -> None:
    rows = [("way", "step", ""), ("a", "", "it takes 8.00 GB of memory"), ("b", "1", "")]
    assert align_and_wrap(rows, 26, (1,)) == [
        "way  step",
        "a          it takes",
        "           8.00 GB of",
        "           memory",
        "b       1",
    ]
