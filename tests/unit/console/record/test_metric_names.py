"""Names of metrics and statistics in views."""

import pytest

from spbench.record.metric_names import (
    SEPARATELY,
    describe_separation,
    format_figure_name,
    format_folded_name,
    format_metric_name,
    list_separate_metrics,
)
from spbench_core.catalog import BENCHMARKS


@pytest.mark.parametrize(
    ("benchmark", "metric", "expected"),
    [
        ("halo.compute", "exchange_ms", SEPARATELY),
        ("halo.compute", "compute_ms", SEPARATELY),
        ("halo.compute", "sequential_ms", SEPARATELY),
        ("halo.compute", "backward_ms", SEPARATELY),
        ("halo.compute", "bandwidth_gb_s", SEPARATELY),
        ("halo.compute", "time_ms", ""),
        ("halo.compute", "waited_ms", ""),
        ("halo.exchange", "pack_ms", SEPARATELY),
        ("halo.exchange", "bandwidth_gb_s", ""),
        ("halo.fused", "unfused_ms", SEPARATELY),
        ("model.resnet", "sequential_ms", SEPARATELY),
        ("model.resnet", "forward_ms", ""),
        ("nobody.knows", "time_ms", ""),
    ],
)
def test_describes_metrics_measured_in_a_separate_loop(benchmark, metric, expected):
    assert describe_separation(benchmark, metric) == expected


@pytest.mark.parametrize(
    ("metric", "unit", "expected"),
    [
        ("time_ms", "ms", "time"),
        ("time_ms.p95", "ms", "time p95"),
        ("bandwidth_gb_s.p50", "GB/s", "bandwidth p50"),
        ("time_ms.p95", "", "time_ms.p95"),
    ],
)
def test_formats_the_name_of_a_statistic(metric, unit, expected):
    assert format_figure_name(metric, unit) == expected


def test_no_part_of_a_time_is_measured_separately():
    for entry in BENCHMARKS.values():
        parts = {metric.name for metric in entry.metrics if metric.part_of}
        assert not parts & list_separate_metrics(entry.name)


@pytest.mark.parametrize(
    ("metric", "unit", "name", "folded"),
    [
        ("time_ms", "ms", "time", "time"),
        ("waited_ms", "ms", "waiting for pieces", "waiting for pieces"),
        ("bandwidth_gb_s", "GB/s", "bandwidth", "bandwidth"),
        ("bytes_sent", "B", "bytes sent", "most bytes sent"),
        ("a_plugins_rate", "1/s", "a plugins rate", "a plugins rate"),
    ],
)
def test_formats_the_name_of_a_value_over_all_ranks(metric, unit, name, folded):
    assert (format_metric_name(metric, unit), format_folded_name(metric, unit)) == (name, folded)
