"""Indentation of YAML text as it is typed."""

import pytest

from spbench.suites.edit.indentation import find_indent_of_next_line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", 0),
        ("cases:", 2),
        ("cases:  # all of them", 2),
        ("# cases:", 0),
        ("  - name: a", 4),
        ("  - params:", 6),
        ("    np: 2", 4),
        ("    ", 4),
        ("  - - 1", 6),
        ("  -", 2),
        ('name: "a:"', 0),
    ],
)
def test_next_line_continues_the_structure(line, expected):
    assert find_indent_of_next_line(line) == expected
