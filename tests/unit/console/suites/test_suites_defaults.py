"""Values that the cases of a suite inherit from ``defaults:``."""

import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml

from spbench.errors import SuiteError
from spbench.suites.case import RepeatPolicy
from spbench.suites.defaults import select_inherited
from spbench.suites.json_schema import build_suite_schema
from spbench.suites.loader import load_suite_text
from support.paths import DOCS, SUITES

HEAD = "schema: spbench.suite/1\nname: s\n"
EXCHANGE = "  - {name: ex, benchmark: halo.exchange}\n"
COPY = "  - {name: copy, benchmark: memory.copy}\n"


def load_cases(defaults, cases, overrides=()):
    text = f"{HEAD}defaults: {defaults}\ncases:\n{cases}"
    suite = load_suite_text(text, Path("s.yaml"), overrides)
    return {case.id: case for case in suite.cases}


def load_errors(defaults, cases, overrides=()):
    with pytest.raises(SuiteError) as caught:
        load_cases(defaults, cases, overrides)
    return [str(diagnostic) for diagnostic in caught.value.diagnostics]


def list_bounds(case):
    return {(item.metric, item.op): item.limit for item in case.expect}


def test_case_inherits_each_value_that_it_does_not_set():
    cases = load_cases(
        "{np: 2, repeat: 3, until: {interval: 0.1, max_time: 9}, params: {iterations: 20}}",
        COPY
        + "  - {name: own, benchmark: memory.copy, np: 1, repeat: 1, params: {iterations: 5}}\n"
        + "  - {name: none, benchmark: memory.copy, np: null, until: null}\n",
    )
    copy, changed, unset = cases.values()
    assert (copy.np, copy.repeat, copy.params["iterations"]) == (2, 3, 20)
    assert copy.until == RepeatPolicy(0.1, 9)
    assert (changed.np, changed.repeat, changed.params["iterations"]) == (1, 1, 5)
    assert (unset.np, unset.until, unset.repeat) == (None, None, 3)


def test_per_host_and_scale_are_inherited():
    cases = load_cases(
        "{per_host: 50, np: 1}", COPY + "  - {name: all, benchmark: memory.copy, per_host: false}\n"
    )
    assert [case.at_once for case in cases.values()] == [50, 0]
    scale = "{scale: {np: [1, 2], work: weak}}"
    unscaled = "  - {name: unscaled, benchmark: memory.copy, scale: null, np: 3}\n"
    sweep = "  - {name: sweep, benchmark: memory.copy, matrix: {np: [3]}}\n"
    ids = list(load_cases(scale, unscaled + sweep + COPY))
    assert ids == ["unscaled", "sweep[np=3]", "copy[np=1]", "copy[np=2]"]


def test_parameters_and_expectations_merge_by_key():
    (case,) = load_cases(
        "{params: {iterations: 20, halo_len: 3}, expect: {skew: {max: 3}, time_ms.p50: {max: 5}}}",
        "  - {name: a, benchmark: halo.exchange, params: {halo_len: 1, batch_size: 2},\n"
        "     expect: {skew: {min: 1}, time_ms.p99: {max: 9}}}\n",
    ).values()
    params = {name: case.params[name] for name in ("iterations", "halo_len", "batch_size")}
    assert params == {"iterations": 20, "halo_len": 1, "batch_size": 2}
    bounds = {("skew", "min"): 1.0, ("time_ms.p99", "max"): 9.0, ("time_ms.p50", "max"): 5.0}
    assert list_bounds(case) == bounds


def test_case_skips_what_its_benchmark_does_not_have():
    cases = load_cases(
        "{params: {halo_len: 3, iterations: 20}, expect: {pack_ms: {min: 1}, skew: {max: 9}}}",
        EXCHANGE + COPY,
    )
    assert cases["ex"].params["halo_len"] == 3
    assert cases["copy"].params["iterations"] == 20
    assert list_bounds(cases["ex"]) == {("pack_ms", "min"): 1.0, ("skew", "max"): 9.0}
    assert list_bounds(cases["copy"]) == {("skew", "max"): 9.0}


def test_metrics_that_follow_from_parameters_are_inherited_by_those_that_have_them():
    program = "benchmark: program.run, np: 1"
    rate = "metrics: {rate: {pattern: '(?P<value>.+)', unit: MB/s, better: higher}}"
    cases = load_cases(
        "{expect: {rate: {min: 1}}}",
        f"  - {{name: has, {program}, params: {{argv: [echo, '1'], {rate}}}}}\n"
        f"  - {{name: lacks, {program}, params: {{argv: [echo, '1']}}}}\n",
    )
    assert list_bounds(cases["has"]) == {("rate", "min"): 1.0}
    assert list_bounds(cases["lacks"]) == {}


def test_sweep_replaces_inherited_values():
    cases = load_cases(
        "{np: 2, params: {iterations: 20, size: 64}}",
        "  - {name: a, benchmark: memory.copy, matrix: {np: [1, 3]}, zip: {size: [8, 16]}}\n",
    )
    assert [(case.np, case.params["size"]) for case in cases.values()] == [
        (1, 8),
        (1, 16),
        (3, 8),
        (3, 16),
    ]


def test_parameter_under_another_name_replaces_the_inherited_one():
    entry = "{name: a, benchmark: kvstore.push_pull, params: {kvstore: device}}"
    (case,) = load_cases("{params: {kv_store: local}}", f"  - {entry}\n").values()
    assert case.params["kv_store"] == "device"


def test_override_replaces_inherited_values():
    defaults = "{repeat: 3, np: 2, params: {iterations: 20}}"
    overrides = ("repeat=2", "np=4", "iterations=7")
    cases = load_cases(defaults, EXCHANGE + COPY, overrides)
    assert {(case.repeat, case.np, case.params["iterations"]) for case in cases.values()} == {
        (2, 4, 7)
    }
    (error,) = load_errors(defaults, COPY, ("iterations=0",))
    assert "--set iterations=0: iterations: 0 is below" in error
    assert "inherits" not in error


@pytest.mark.parametrize(
    ("defaults", "cases"),
    [
        pytest.param("{repeat: §0}", EXCHANGE + COPY, id="repeat-too-small"),
        pytest.param(
            "{repeat: §x}",
            "  - {name: a, benchmark: memory.copy, repeat: 1}\n",
            id="repeat-that-no-case-inherits",
        ),
        pytest.param("{np: §3}", COPY + EXCHANGE, id="np-of-another-case"),
        pytest.param(
            "{until: {interval: 0.1, max_time: §0}}", EXCHANGE + COPY, id="until-inner-value"
        ),
        pytest.param(
            "{scale: §{np: [1, 2], work: strong}}", EXCHANGE, id="scale-of-the-wrong-kind"
        ),
        pytest.param("{until: §{interval: 0.1}}", EXCHANGE, id="until-without-a-key"),
        pytest.param("{params: {iterations: §x}}", EXCHANGE + COPY, id="params-value"),
        pytest.param(
            "{params: {grid: §4x1}}",
            EXCHANGE.replace("}", ", params: {slice_method: square}}"),
            id="params-conflict",
        ),
        pytest.param("{params: {§iteratons: 3}}", EXCHANGE + COPY, id="params-unknown"),
        pytest.param("{params: {§repeat: 3}}", COPY, id="params-key-of-a-case"),
        pytest.param("{params: {iterations: §}}", COPY, id="params-empty"),
        pytest.param("{params: §[1]}", COPY, id="params-list"),
        pytest.param("{expect: {§tme_ms: {max: 1}}}", EXCHANGE + COPY, id="expect-unknown-metric"),
        pytest.param("{expect: {§time_ms.p5: {max: 1}}}", COPY, id="expect-unknown-statistic"),
        pytest.param("{expect: {time_ms: {§maxx: 1}}}", COPY, id="expect-unknown-bound"),
        pytest.param(
            "{expect: {time_ms: {max: §1 + case(b).time_ms}}}", COPY, id="expect-expression"
        ),
        pytest.param("{expect: {time_ms: §{}}}", COPY, id="expect-empty"),
        pytest.param("{§reapeat: 3}", COPY, id="unknown-key"),
        pytest.param("{§ranks: 3}", COPY, id="other-word-for-np"),
        pytest.param("{§matrix: {}}", COPY, id="matrix"),
        pytest.param("{§timeout: 3}", COPY, id="timeout"),
        pytest.param("{§launch: {timeout: 3}}", COPY, id="launch"),
        pytest.param("{np: 2, §cases: []}", COPY, id="key-of-the-suite"),
        pytest.param("{§iterations: 3}", COPY, id="parameter"),
        pytest.param("§[1]", COPY, id="list"),
    ],
)
def test_error_is_reported_once_at_the_default(defaults, cases, messages):
    before, _, after = defaults.partition("§")
    (error,) = load_errors(before + after, cases)
    position, _, message = error.partition(": error: ")
    column = len("defaults: " + before) + 1
    if "case(b)" in defaults:
        column += len("1 + case(")
    assert position == f"s.yaml:3:{column}"
    messages.check(message)


def test_default_without_a_known_benchmark_is_no_second_error():
    (error,) = load_errors("{params: {halo_len: 1}}", "  - {name: a, benchmark: halo.exchang}\n")
    assert "unknown benchmark" in error


@pytest.mark.parametrize("data", ["", "3", "[]", "{params: 3, expect: [], np: []}"])
def test_invalid_defaults_are_errors_of_the_suite(data):
    if data:
        load_errors(data, COPY)
        assert select_inherited(yaml.safe_load(data), {"benchmark": "memory.copy"}) in (
            {},
            {"np": []},
        )


def test_inherited_values_of_a_draft_are_those_of_the_loader():
    defaults = {"np": 2, "repeat": 3, "params": {"iterations": 20, "halo_len": 3}}
    entry = {"name": "a", "benchmark": "memory.copy", "repeat": 1}
    assert select_inherited(defaults, entry) == {"np": 2, "params": {"iterations": 20}}
    swept = entry | {"matrix": {"iterations": [1, 2], "np": [1]}}
    assert select_inherited(defaults, swept) == {}


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.yaml")), ids=lambda path: path.name)
def test_suite_has_the_same_cases_with_its_defaults_written_out(path):
    data = yaml.safe_load(path.read_text())
    defaults = data.pop("defaults", {})
    for entry in data["cases"]:
        for key, value in select_inherited(defaults, entry).items():
            entry[key] = entry.get(key, {}) | value if isinstance(value, dict) else value
    written_out = load_suite_text(yaml.safe_dump(data, sort_keys=False), path)
    suite = load_suite_text(path.read_text(), path)
    assert [replace(case, line=0) for case in suite.cases] == [
        replace(case, line=0) for case in written_out.cases
    ]


def test_schema_knows_defaults():
    validator = jsonschema.Draft202012Validator(build_suite_schema())
    case = {"name": "a", "benchmark": "memory.copy"}
    suite = {"schema": "spbench.suite/1", "name": "s", "cases": [case]}
    valid = {"np": 2, "params": {"iterations": 3, "halo_len": 2}, "expect": {"skew": {"max": 3}}}
    assert validator.is_valid(suite | {"defaults": valid})
    for invalid in ({"reapeat": 2}, {"params": {"iteratons": 3}}, {"params": {"halo_len": [1]}}):
        assert not validator.is_valid(suite | {"defaults": invalid})


def test_example_of_the_page_is_a_suite_with_defaults():
    page = (DOCS / "suites.md").read_text()
    (example,) = re.findall(r"^```yaml\n([^`]*^defaults:[^`]*)^```", page, re.MULTILINE)
    ping, barrier, copy = load_suite_text(example, Path("s.yaml")).cases
    assert [case.np for case in (ping, barrier, copy)] == [2, 2, 2]
    assert [case.repeat for case in (ping, barrier, copy)] == [3, 3, 1]
    assert (barrier.params["iterations"], barrier.params["warmup"]) == (2000, 20)
    assert list_bounds(copy) == {("bandwidth_gb_s", "min"): 1.0, ("skew", "max"): 3.0}
