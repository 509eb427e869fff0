import pytest

from spbench_core.number_text import format_bytes, format_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (4.2e-10, "0.420 ns"),
        (1e-9, "1.00 ns"),
        (2.82e-5, "28.2 us"),
        (0.0009996, "1.00 ms"),
        (0.001, "1.00 ms"),
        (0.01, "10.0 ms"),
        (0.1234, "123 ms"),
        (27.24, "27.2 s"),
        (12345.0, "12345 s"),
        (float("inf"), "inf s"),
    ],
)
def test_formats_times_with_three_digits_and_a_scaled_unit(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, 0), (1000, 1000), (1 << 16, "64KiB"), (3 << 30, "3GiB")]
)
def test_formats_bytes_in_the_largest_unit_without_a_remainder(count, text):
    assert format_bytes(count) == text
