"""Numbers, times, sizes and percentages as all views show them."""

import math

import pytest

from spbench.record.number_formatting import (
    choose_unit,
    format_count,
    format_duration,
    format_exact,
    format_number,
    format_percent,
    format_size,
    format_time,
    format_value,
)
from spbench_core.catalog import BENCHMARKS


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (0.00123456, "0.00123"),
        (1.2e-7, "0.000000120"),
        (1e-13, "<0.000000000001"),
        (0.9999, "1.00"),
        (1.0, "1.00"),
        (12.345, "12.3"),
        (99.96, "100"),
        (999.4, "999"),
        (-12.345, "-12.3"),
        (123456.7, "123,457"),
        (2.5e9, "2.50 G"),
        (1e300, ">999 P"),
        (-1e300, "->999 P"),
        (math.nan, "not a number"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
    ],
)
def test_formats_numbers_with_three_digits_and_no_exponent(value, expected):
    assert format_number(value) == expected


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (0, "0 ms"),
        (0.000295, "295 ns"),
        (0.0282, "28.2 us"),
        (0.9996, "1.00 ms"),
        (1.91, "1.91 ms"),
        (999.6, "1.00 s"),
        (27150, "27.2 s"),
        (1.5e6, "25.0 min"),
    ],
)
def test_scales_times_to_at_most_three_integer_digits(ms, expected):
    assert format_time(ms) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.31, "0.3 s"),
        (9.96, "10 s"),
        (45.2, "45 s"),
        (59.7, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3720, "1 h 02 min"),
    ],
)
def test_formats_durations_with_at_most_two_units(seconds, expected):
    assert format_duration(seconds) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (24, "24 B"), (3108, "3.04 KiB"), (6144, "6 KiB"), (2**20 - 1, "1 MiB")],
)
def test_formats_sizes_in_powers_of_two(count, expected):
    assert format_size(count) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [(3, "3"), (99999, "99999"), (60192808, "60.2 M")],
)
def test_scales_large_counts(count, expected):
    assert format_count(count) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0, "0 %"), (0.0001, "<0.1 %"), (0.034, "3.4 %"), (0.418, "42 %"), (1.53, "153 %")],
)
def test_formats_shares_as_percentages(share, expected):
    assert format_percent(share) == expected


@pytest.mark.parametrize(
    ("value", "unit", "name", "expected"),
    [
        (0.113, "GB/s", "bandwidth_gb_s", "113 MB/s"),
        (1234, "GFLOP/s", "gflops", "1.23 TFLOP/s"),
        (0.5, "MB", "halo_mb", "500 kB"),
        (7.78, "us", "latency_us", "7.78 us"),
        (0.12, "ns/B", "beta_ns", "120 ps/B"),
        (12.34, "1/s", "images_per_second", "12.3 images/s"),
        (3, "1", "messages_sent", "3"),
        (0.418, "1", "exchange_efficiency", "42 %"),
        (0.433, "1", "speedup", "0.433x"),
        (2.302, "1", "loss", "2.30"),
        (5, "lines", "own", "5.00 lines"),
    ],
)
def test_formats_values_by_unit_and_name(value, unit, name, expected):
    assert format_value(value, unit, name) == expected


@pytest.mark.parametrize("value", [1e-7, 0.003, 1.0, 1234.0, 5.6e9])
def test_no_catalog_metric_is_shown_with_an_exponent(value):
    for benchmark in BENCHMARKS.values():
        for metric in benchmark.metrics:
            text = format_value(value, metric.unit, metric.name)
            assert "e+" not in text
            assert "e-" not in text


def test_chooses_the_unit_by_the_largest_value():
    scale = choose_unit([0.003, 0.5], "ms")
    assert (scale.unit, scale.format(0.003), scale.format(0.5)) == ("us", "3.00", "500")


def test_keeps_the_unit_without_values():
    assert choose_unit([], "ms").unit == "ms"
    assert choose_unit([], "1").unit == ""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, "0.5"),
        (3.6789e9, "3.679e9"),
        (367890.0, "367,890"),
        (-1e12, "-1e12"),
        (1e-7, "1e-7"),
        (0.00000040912, "4.091e-7"),
        (0.00012344, "0.0001234"),
    ],
)
def test_large_and_small_errors_have_an_exponent_and_no_prefix(value, expected):
    assert format_exact(value) == expected
