import re

import pytest

from spbench.report.formats.openmetrics import BASE_UNITS, family_name, render_openmetrics
from spbench.report.model import LimitPart
from spbench_core.catalog import BENCHMARKS
from unit.results import case, figure, run

# The grammar of OpenMetrics 1.0, as far as gauges without timestamps and exemplars need it.
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
VALUE = r'"(?:[^"\\\n]|\\["\\n])*"'
LABEL = rf"[a-zA-Z_][a-zA-Z0-9_]*={VALUE}"
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL}(?:,{LABEL})*)?)\}})? ({NUMBER})")
DESCRIPTION = re.compile(rf"# (TYPE|UNIT|HELP) ({NAME}) (.*)")


def families(text):
    """The families of a text, each with its type, unit, help and samples by labels.

    It takes what the specification says: a description before the samples, each family in one
    piece, no two samples of the same labels, names that end with their unit, EOF last.
    """
    assert text.endswith("# EOF\n")
    found = {}
    name = None
    for line in text[: -len("# EOF\n")].splitlines():
        if told := DESCRIPTION.fullmatch(line):
            what, of, rest = told.groups()
            if of != name:
                assert of not in found, f"{of} is in two pieces"
                name = of
                found[of] = {"samples": {}}
            assert not found[name]["samples"], "a description stands behind samples"
            assert what not in found[name]
            found[name][what] = rest
            assert what != "UNIT" or name.endswith(f"_{rest}")
            assert what != "TYPE" or rest == "gauge"
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        assert sample[1] == name
        pairs = re.findall(rf"([a-zA-Z0-9_]+)=({VALUE})", sample[2] or "")
        labels = frozenset(pairs)
        assert len(dict(pairs)) == len(pairs)
        assert labels not in found[name]["samples"]
        found[name]["samples"][labels] = float(sample[3])
    return found


def value(text, family, **labels):
    samples = families(text)[family]["samples"]
    wanted = {(name, f'"{label}"') for name, label in labels.items()}
    (found,) = (value for given, value in samples.items() if wanted <= given)
    return found


LIMITED = case(
    "a",
    {"time_ms": figure(2.0), "bandwidth_gb_s": figure(3.0, "GB/s", "higher", n=1)},
    limits={"time_ms": LimitPart(value=1.5, unit="ms", measured_by="memory.copy")},
)
LOST = case("b", {}, status="error")


def test_figures_are_in_base_units():
    text = render_openmetrics(run(LIMITED, LOST, verdict="error", exit_code=4))
    assert value(text, "spbench_case_time_seconds", case="a", stat="p50") == 0.002
    assert value(text, "spbench_case_time_seconds", case="a", stat="p95") == 0.003
    assert value(text, "spbench_limit_time_seconds", case="a") == 0.0015
    assert value(text, "spbench_case_bandwidth_bytes_per_second", case="a", stat="p50") == 3e9
    assert value(text, "spbench_passed", case="b", suite="made-up", benchmark="made.up") == 0
    assert value(text, "spbench_run_exit_code", suite="made-up") == 4
    assert value(text, "spbench_run_cases", status="error") == 1
    assert value(text, "spbench_run_cases", status="timeout") == 0
    assert value(text, "spbench_run_started_timestamp_seconds") == 1000.0
    assert families(text)["spbench_case_time_seconds"]["UNIT"] == "seconds"


def test_what_is_not_known_is_left_out():
    text = render_openmetrics(run(finished=None, duration_s=None))
    assert not {"spbench_run_duration_seconds", "spbench_passed"} & families(text).keys()


@pytest.mark.parametrize("hostile", ['"} 1\n# EOF', "a\\", "\x1b[2J\n", "\ud800"])
def test_names_are_data(hostile):
    text = render_openmetrics(run(case(hostile, {hostile: 1.0, "time_ms": 2.0}), suite=hostile))
    assert text.count("# EOF") - text.count("?# EOF") == 1
    found = families(text)
    assert len(found["spbench_passed"]["samples"]) == 1
    assert text.isprintable() or set(text) - {"\n"} == {c for c in text if c.isprintable()}


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_each_metric_of_a_benchmark_has_a_family_of_its_own(benchmark):
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
def test_a_family_is_named_by_its_base_unit(metric, unit, name):
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
def test_the_grammar_refuses_what_is_wrong(broken):
    with pytest.raises(AssertionError):
        families(broken)
