"""Figures of a run in the OpenMetrics text format."""

import re

import pytest

from spbench.report.formats.openmetrics import BASE_UNITS, family_name, render_openmetrics
from spbench.report.model import LimitPart
from spbench_core.catalog import BENCHMARKS
from support.sample_runs import make_case, make_metric, make_run

# The grammar of OpenMetrics 1.0, as far as gauges without timestamps and exemplars need it.
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
VALUE = r'"(?:[^"\\\n]|\\["\\n])*"'
LABEL = rf"[a-zA-Z_][a-zA-Z0-9_]*={VALUE}"
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL}(?:,{LABEL})*)?)\}})? ({NUMBER})")
DESCRIPTION = re.compile(rf"# (TYPE|UNIT|HELP) ({NAME}) (.*)")


def parse_families(text):
    """Parse the families of a text: type, unit, help and samples by labels.

    Checks the rules of the specification: descriptions precede samples, each family is in one
    piece, no two samples have the same labels, names end with their unit, and EOF is last.
    """
    assert text.endswith("# EOF\n")
    families = {}
    name = None
    for line in text[: -len("# EOF\n")].splitlines():
        if description := DESCRIPTION.fullmatch(line):
            keyword, family, content = description.groups()
            if family != name:
                assert family not in families, f"{family} is in two pieces"
                name = family
                families[family] = {"samples": {}}
            assert not families[name]["samples"], "a description follows samples"
            assert keyword not in families[name]
            families[name][keyword] = content
            assert keyword != "UNIT" or name.endswith(f"_{content}")
            assert keyword != "TYPE" or content == "gauge"
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        assert sample[1] == name
        pairs = re.findall(rf"([a-zA-Z0-9_]+)=({VALUE})", sample[2] or "")
        labels = frozenset(pairs)
        assert len(dict(pairs)) == len(pairs)
        assert labels not in families[name]["samples"]
        families[name]["samples"][labels] = float(sample[3])
    return families


def get_value(text, family, **labels):
    samples = parse_families(text)[family]["samples"]
    expected = {(name, f'"{label}"') for name, label in labels.items()}
    (value,) = (value for pairs, value in samples.items() if expected <= pairs)
    return value


LIMITED = make_case(
    "a",
    {"time_ms": make_metric(2.0), "bandwidth_gb_s": make_metric(3.0, "GB/s", "higher", n=1)},
    limits={"time_ms": LimitPart(value=1.5, unit="ms", measured_by="memory.copy")},
)
LOST = make_case("b", {}, status="error")


def test_figures_are_in_base_units():
    text = render_openmetrics(make_run(LIMITED, LOST, status="error", exit_code=4))
    assert get_value(text, "spbench_case_time_seconds", case="a", stat="p50") == 0.002
    assert get_value(text, "spbench_case_time_seconds", case="a", stat="p95") == 0.003
    assert get_value(text, "spbench_limit_time_seconds", case="a") == 0.0015
    assert get_value(text, "spbench_case_bandwidth_bytes_per_second", case="a", stat="p50") == 3e9
    assert get_value(text, "spbench_passed", case="b", suite="made-up", benchmark="made.up") == 0
    assert get_value(text, "spbench_run_exit_code", suite="made-up") == 4
    assert get_value(text, "spbench_run_cases", status="error") == 1
    assert get_value(text, "spbench_run_cases", status="timeout") == 0
    assert get_value(text, "spbench_run_started_timestamp_seconds") == 1000.0
    assert parse_families(text)["spbench_case_time_seconds"]["UNIT"] == "seconds"


def test_omits_unknown_figures():
    text = render_openmetrics(make_run(finished=None, duration_s=None))
    assert not {"spbench_run_duration_seconds", "spbench_passed"} & parse_families(text).keys()


@pytest.mark.parametrize("hostile", ['"} 1\n# EOF', "a\\", "\x1b[2J\n", "\ud800"])
def test_hostile_names_are_escaped(hostile):
    text = render_openmetrics(
        make_run(make_case(hostile, {hostile: 1.0, "time_ms": 2.0}), suite=hostile)
    )
    assert text.count("# EOF") - text.count("?# EOF") == 1
    families = parse_families(text)
    assert len(families["spbench_passed"]["samples"]) == 1
    assert text.isprintable() or set(text) - {"\n"} == {
        letter for letter in text if letter.isprintable()
    }


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_each_metric_of_a_benchmark_has_a_separate_family(benchmark):
    metrics = BENCHMARKS[benchmark].metrics
    assert {metric.unit for metric in metrics} <= BASE_UNITS.keys()
    names = [family_name(metric.name, BASE_UNITS[metric.unit]) for metric in metrics]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("metric", "unit", "name"),
    [
        ("time_ms", "ms", "time_seconds"),
        ("beta_ns", "ns/B", "beta_seconds_per_byte"),
        ("bytes_on_the_wire", "B", "on_the_wire_bytes"),
        ("images_per_second", "1/s", "images_per_second"),
        ("gflops", "GFLOP/s", "flops"),
        ("peak_memory_mb", "MB", "peak_memory_bytes"),
        ("skew", "1", "skew"),
    ],
)
def test_family_name_has_the_base_unit(metric, unit, name):
    assert family_name(metric, BASE_UNITS[unit]) == name


@pytest.mark.parametrize(
    "broken",
    [
        "a 1\n# EOF\n",
        "# TYPE a gauge\na 1\n",
        "# TYPE a gauge\na 1\na 2\n# EOF\n",
        "# TYPE a gauge\n# UNIT a seconds\na 1\n# EOF\n",
        '# TYPE a gauge\na{b="c"d"} 1\n# EOF\n',
        "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE a gauge\n# EOF\n",
    ],
)
def test_parser_rejects_invalid_texts(broken):
    with pytest.raises(AssertionError):
        parse_families(broken)
