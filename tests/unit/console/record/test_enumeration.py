"""Lists of names and case counts in messages."""

import pytest

from spbench.record.messages.enumeration import enumerate_names, format_case_count, name_cases


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("a", "a"),
        ("ab", "a and b"),
        ("abc", "a, b and c"),
        ("abcd", "a, b and 2 more hosts"),
        ("abcdefgh", "a, b and 6 more hosts"),
    ],
)
def test_enumerates_three_names_or_two_and_a_count(names, expected):
    assert enumerate_names(names, "hosts") == expected


@pytest.mark.parametrize(
    ("ids", "list_text", "total", "count_text"),
    [
        ("a", "in a", 1, "in a"),
        ("ab", "in 2 cases: a and b", 12, "in 2 of 12 cases"),
        ("abcd", "in 4 cases: a, b and 2 more", 4, "in all 4 cases"),
    ],
)
def test_names_one_case_and_counts_several(ids, list_text, total, count_text):
    assert name_cases(ids) == list_text
    assert format_case_count(ids, total) == count_text
