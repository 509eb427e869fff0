from typing import Any

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import ParamError

ENTRY = BENCHMARKS["program.run"]
NUMBER = {"pattern": r"t (?P<value>\S+)", "unit": "us", "better": "lower"}


def catch_param_error(**params: Any) -> str:
    with pytest.raises(ExceptionGroup) as caught:
        ENTRY.complete(params)
    (error,) = caught.value.exceptions
    assert isinstance(error, ParamError)
    return f"{error.param}: {error}"


def test_a_preset_adds_missing_parameters():
    params = ENTRY.complete({"preset": "osu_latency"})
    assert params["argv"] == ["osu_latency"]
    assert (params["per"], params["output"]) == ("rank", "first")
    assert ENTRY.ranks(params).exact == 2
    assert [metric.name for metric in ENTRY.list_metrics(params)][:2] == ["time_ms", "latency_us"]
    customized = ENTRY.complete({"preset": "osu_latency", "argv": ["./mine"], "must": "DONE"})
    assert customized["argv"] == ["./mine"]
    assert ENTRY.complete({"preset": "hpcc"})["reads"] == "hpccoutf.txt"


def test_completing_twice_changes_nothing():
    for params in (
        {"preset": "iperf3", "env": {"A": 1}},
        {"argv": "./x --y 'a b'", "metrics": {"t_us": NUMBER}, "must": ["a", "b"]},
        {"by_rank": {"1": ["x"]}, "wait_for": {"rank": 1, "of": 0, "line": "up"}},
    ):
        completed = ENTRY.complete(params)
        assert ENTRY.complete(completed) == completed


def test_expectations_determine_metrics_and_checks():
    bare = ENTRY.complete({"argv": "true"})
    assert ENTRY.list_checks(bare) == ("exit_code",)
    assert ENTRY.list_faults(bare) == ("corrupt-exit",)
    full = ENTRY.complete({"argv": "x", "metrics": {"t": NUMBER}, "must": "a", "never": "b"})
    assert ENTRY.list_checks(full) == ("exit_code", "never", "must", "output")
    assert ENTRY.list_faults(full) == ("corrupt-exit", "drop-output", "forge-line")
    metric = ENTRY.list_metrics(full)[1]
    assert (metric.name, metric.unit, metric.better, metric.fold) == ("t", "us", "lower", "max")


def test_named_ranks_determine_the_minimum():
    params = ENTRY.complete({"argv": "x", "by_rank": {"3": "y"}})
    assert ENTRY.ranks(params).minimum == 4
    params = ENTRY.complete({"argv": "x", "wait_for": {"rank": 5, "of": 0, "line": "up"}})
    assert ENTRY.ranks(params).minimum == 6


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, "argv: there is no program: give argv, by_rank or a preset"),
        (
            {"argv": "x {rnak}"},
            "argv: {rnak} is no placeholder (did you mean {rank}?); {{rnak}} is the text itself",
        ),
        ({"argv": "x {size}"}, "argv: argv: {size} has no value: give size"),
        ({"argv": "x", "count": 3}, "count: count does nothing where no word has its placeholder"),
        ({"argv": "x", "by_rank": {"a": "y"}}, "'a' is no rank"),
        ({"by_rank": {"0": 1.5}}, "by_rank.0: 1.5 is no text"),
        ({"by_rank": {"0": "x"}, "per": "host"}, "by_rank does nothing with per host"),
        ({"argv": "x", "env": {"A": 0.5}}, "env.A: 0.5 is no text (put it in quotes)"),
        ({"argv": "x", "metrics": {"t": {"pattern": "t"}}}, "metrics.t: its pattern has no group"),
        ({"argv": "x", "metrics": {"time_ms": NUMBER}}, "every case has its own time_ms"),
        ({"argv": "x", "never": "("}, "'(' is no regular expression"),
        (
            {"argv": "x", "table": {"header": "h", "columns": ["rank", "t"], "labels": ["rank"],
                                    "metrics": {"t": {}}}},
            "no label can be called rank",
        ),
        ({"argv": "x", "wait_for": {"rank": 1}}, "wait_for is {rank: N, of: N, line: PATTERN}"),
        ({"argv": "x", "wait_for": {"rank": 1, "of": 1, "line": "a"}}, "waits for another one"),
        ({"argv": "x 'y"}, "cannot be split into words"),
        ({"argv": [True]}, "True is no text (put it in quotes)"),
        ({"argv": "x", "metrics": "{"}, "is no JSON"),
        ({"argv": "x", "table": [3]}, "neither a mapping nor a list of mappings"),
    ],
)  # fmt: skip
def test_rejects_invalid_parameters(params, expected):
    assert expected in catch_param_error(**params)
