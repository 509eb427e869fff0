"""Bandwidth and error by the formulas of measure.py, compared with published logs."""

import math

import numpy as np
import pytest

from spbench_workers.benchmarks.kvstore.figures import (
    compute_bandwidth,
    compute_distance,
    compute_error,
    compute_magnitude,
    compute_mean_relative_error,
    format_batch_line,
    format_size_line,
)
from support import measure_py as measure_lines

RESNET_200 = 257.991328
RESNET_50 = 102.016
INCEPTION_V3 = 95.200544

# MXNet's tools/bandwidth/README.md and, for resnet-50, its pull request 11237; issue 4062 for the
# slow machine.
PUBLISHED = [
    (RESNET_200, 2, [(0.023242, 11.100222), (0.023106, 11.165508), (0.023218, 11.111735)]),
    (RESNET_200, 2, [(0.023193, 11.123614), (0.023089, 11.173694)]),
    (RESNET_200, 8, [(0.102321, 4.412429), (0.100345, 4.499330), (0.097317, 4.639322)]),
    (RESNET_200, 8, [(0.290164, 1.555964), (0.293963, 1.535856), (0.294468, 1.533222)]),
    (INCEPTION_V3, 8, [(0.086527, 1.925424), (0.057934, 2.875700), (0.055107, 3.023220)]),
    (RESNET_200, 8, [(0.295398, 1.528395), (0.303159, 1.489267), (0.285363, 1.582142)]),
    (RESNET_200, 8, [(0.233309, 1.935137), (0.253864, 1.778453), (0.229306, 1.968919)]),
    (RESNET_200, 2, [(0.113931, 2.264454), (0.113200, 2.279076), (0.110690, 2.330758)]),
    (RESNET_50, 8, [(0.033930, 5.261591), (0.031341, 5.696318)]),
]


@pytest.mark.parametrize(("total_mb", "devices", "lines"), PUBLISHED)
def test_published_bandwidths_follow_from_their_times(total_mb, devices, lines):
    for seconds, printed in lines:
        tolerance = 0.5e-6 / seconds + 0.5e-6 / printed  # both are printed to six places
        assert compute_bandwidth(total_mb, devices, seconds) == pytest.approx(
            printed, rel=tolerance
        )


@pytest.mark.parametrize("wrong", [1, 3, 4, 7])
def test_another_number_of_devices_gives_another_bandwidth(wrong):
    assert compute_bandwidth(RESNET_200, wrong, 0.023242) != pytest.approx(11.100222, rel=0.1)


def test_one_device_has_no_bandwidth_by_the_formula():
    assert compute_bandwidth(RESNET_200, 1, 0.5) == 0.0


def test_formats_the_lines_of_measure_py():
    assert format_size_line(205, RESNET_200) == "num of arrays = 205, total size = 257.991328 MB"
    line = "iter 1, 0.023242 sec, 11.100222 GB/sec per gpu, error 0.000000"
    assert format_batch_line(1, 0.023242, 11.100222, 0.0) == line
    assert format_batch_line(3, 0.5, 1.0, -1).endswith("error -1.000000")


def test_parses_formatted_lines():
    assert measure_lines.parse_line(f"INFO:root:{format_size_line(96, INCEPTION_V3)}") == (
        96,
        INCEPTION_V3,
    )
    text = "\n".join(
        [format_size_line(1, 4.0), format_batch_line(1, 0.25, 3.5, 0.125), "iter 2, soon"]
    )
    assert measure_lines.parse_batches(text) == [(1, 0.25, 3.5, 0.125)]
    assert measure_lines.parse_batches(format_batch_line(2, 1.0, 1.0, math.inf)) == [
        (2, 1.0, 1.0, math.inf)
    ]


def test_the_error_sums_devices_over_one_reference():
    references = [np.array([4.0, -4.0]), np.array([2.0])]
    results = [np.array([4.0, -3.0]), np.array([1.5])]
    assert compute_magnitude(references) == 10.0
    assert compute_distance(results, references) == 1.5
    assert compute_distance(references, references) == 0.0
    distances = [1.5, 0.0, 1.5, 1.0]
    assert compute_error(distances, 10.0) == pytest.approx(0.4)
    assert compute_mean_relative_error(distances, 10.0) == pytest.approx(0.1)


def test_rejects_another_number_of_keys_than_references():
    with pytest.raises(ValueError, match="longer"):
        compute_distance([np.ones(2)], [np.ones(2), np.ones(2)])


def test_a_value_compared_with_zero_has_an_infinite_error():
    assert compute_error([0.0, 0.0], 0.0) == 0.0
    assert compute_error([0.0, 1e-30], 0.0) == math.inf


def test_the_error_of_nan_is_nan():
    assert math.isnan(
        compute_error([compute_distance([np.array([np.nan])], [np.array([1.0])])], 1.0)
    )


def test_sums_of_many_float32_keep_their_small_parts():
    many = np.full(1 << 20, 0.1, np.float32)
    assert compute_magnitude([many]) == pytest.approx(float(many[0]) * (1 << 20), rel=1e-12)
    assert compute_distance([many], [np.zeros_like(many)]) == pytest.approx(
        compute_magnitude([many]), rel=1e-12
    )
