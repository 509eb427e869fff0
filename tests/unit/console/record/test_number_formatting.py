"""Figures as every view writes them."""

import pytest

from spbench.record.number_formatting import number


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (0.00123456, "0.00123"),
        (1.0, "1"),
        (12.345, "12.3"),
        (999.4, "999"),
        (999.7, "1000"),
        (-999.7, "-1000"),
        (123456.7, "123457"),
        (1.5e7, "1.50e+07"),
        (1e-6, "1.00e-06"),
    ],
)
def test_three_figures_without_an_exponent_where_that_is_readable(value, written):
    assert number(value) == written
