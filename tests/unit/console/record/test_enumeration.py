import pytest

from spbench.record.messages.enumeration import count_cases, enumerate_names, name_cases


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("a", "a"),
        ("ab", "a and b"),
        ("abc", "a, b and c"),
        ("abcd", "a, b and 2 more hosts"),
        ("abcdefgh", "a, b and 6 more hosts"),
    ],
)
def test_three_names_are_written_and_of_more_two(names, text):
    assert enumerate_names(names, "hosts") == text


@pytest.mark.parametrize(
    ("ids", "named", "total", "count"),
    [
        ("a", "in a", 1, "in a"),
        ("ab", "in 2 cases: a and b", 12, "in 2 of 12 cases"),
        ("abcd", "in 4 cases: a, b and 2 more", 4, "in all 4 cases"),
    ],
)
def test_one_case_is_named_and_several_are_counted(ids, named, total, count):
    assert name_cases(ids) == named
    assert count_cases(ids, total) == count
