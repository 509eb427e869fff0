"""Fields of the suite form: kinds, accepted values, and parsing of typed text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.errors import UsageError
from spbench.suites.edit.compose import insert_case
from spbench.suites.edit.draft import CaseDraft
from spbench.suites.edit.fields import (
    list_bound_fields,
    list_case_fields,
    list_launch_fields,
    list_param_fields,
)
from spbench.suites.edit.form_values import format_sweep, format_text, parse_sweep, parse_text
from spbench.suites.expectations import list_metrics
from spbench.suites.launcher_names import LAUNCHERS
from spbench.suites.loader import load_suite_text
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark, Metric
from spbench_core.catalog.parameters import UNSWEPT_KINDS, Param


def index_by_name(fields):
    return {field.name: field for field in fields}


TILES = index_by_name(list_param_fields(BENCHMARKS["halo.compute"]))
LINK = index_by_name(list_param_fields(BENCHMARKS["link.pingpong"]))
MEMORY = index_by_name(list_param_fields(BENCHMARKS["memory.copy"]))
SWEEP = index_by_name(list_param_fields(BENCHMARKS["allreduce.sweep"]))
PROGRAM = index_by_name(list_param_fields(BENCHMARKS["program.run"]))
LAUNCH = index_by_name(list_launch_fields())
CASE = index_by_name(list_case_fields())
MAX, MIN = list_bound_fields("time_ms.p95")
SIDE = Param("side", "float", 0.5, "length of a side", minimum=0.25)
SYNTHETIC = Benchmark(
    name="made.up",
    summary="a benchmark of a later issue",
    runs_in="nowhere",
    params=(
        Param("flavour", "choice", None, "how it tastes", choices=("sweet", "sour")),
        Param("depth", "int", 3, "how deep it goes", minimum=1, maximum=9),
        Param("volume", "bytes", 1 << 20, "how much"),
        SIDE,
    ),
    metrics=(Metric("taste", "1", "higher", "what one says"),),
    checks=("bite",),
)


# Displayed fields


def test_every_parameter_of_every_benchmark_has_a_field():
    for benchmark in BENCHMARKS.values():
        fields = list_param_fields(benchmark)
        assert [field.name for field in fields] == [param.name for param in benchmark.params]
        assert all(field.help and field.accepts for field in fields)
        assert all(field.can_sweep == (field.kind not in UNSWEPT_KINDS) for field in fields)


@pytest.mark.parametrize(
    ("field", "kind", "default", "accepts"),
    [
        (TILES["image_size"], "pair", "1024", "N or RxC, up to 1048576"),
        (TILES["batch_size"], "int", "1", "a whole number, from 1"),
        (TILES["iterations"], "int", "20", "a whole number, 1 to 10000000"),
        (TILES["slice_method"], "choice", "square", "vertical, horizontal, square"),
        (TILES["fp16_allreduce"], "bool", "off", "on, off"),
        (LINK["sizes"], "bytes_list", "8, 1KiB, 64KiB, 1MiB, 4MiB", None),
        (SWEEP["order"], "ints", "auto", "whole numbers with commas between, from 0"),
        (SWEEP["algorithm"], "choices", "native", None),
        (MEMORY["size"], "bytes", "64MiB", "bytes such as 65536 or 64KiB, 8 to 16GiB"),
        (LAUNCH["launcher"], "choice", "auto", ", ".join(["auto", *LAUNCHERS])),
        (LAUNCH["threads"], "int", "auto", "auto or a whole number, from 1"),
        (LAUNCH["ranks_per_host"], "int", "", "a whole number, from 1"),
        (LAUNCH["timeout"], "float", "120", "a number, above 0"),
        (LAUNCH["setup"], "lines", "", "one per line"),
        (LAUNCH["env"], "env", "", "NAME=VALUE lines"),
        (LAUNCH["container"], "keys", "", "text, or {KEY: VALUE, ...}"),
        (LAUNCH["python"], "text", "", "text"),
        (CASE["repeat"], "int", "1", "a whole number, 1 to 1000"),
        (CASE["np"], "int", "", "a whole number, from 1"),
        (MAX, "float", "", "a number"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_field_describes_accepted_values(field, kind, default, accepts):
    assert (field.kind, field.default) == (kind, default)
    assert accepts in (field.accepts, None)


def test_every_launch_setting_has_a_field():
    assert list(LAUNCH) == list(LaunchSettings.model_fields)
    assert all(field.help and not field.can_sweep for field in LAUNCH.values())
    assert (CASE["repeat"].minimum, CASE["repeat"].maximum) == (1, 1000)


def test_metrics_include_those_of_the_report():
    metrics = list_metrics(BENCHMARKS["memory.copy"])
    assert [(metric.name, metric.unit) for metric in metrics] == [
        ("time_ms", "ms"),
        ("bandwidth_gb_s", "GB/s"),
        ("skew", "1"),
    ]


def test_form_supports_an_added_benchmark(monkeypatch):
    monkeypatch.setitem(BENCHMARKS, "made.up", SYNTHETIC)
    fields = index_by_name(list_param_fields(BENCHMARKS["made.up"]))
    params = {
        "flavour": parse_text(fields["flavour"], "sour"),
        "volume": parse_text(fields["volume"], "3MiB"),
    }
    matrix = {"depth": parse_sweep(fields["depth"], "1..9 *3")}
    taste, _skew = list_metrics(BENCHMARKS["made.up"])
    minimum = list_bound_fields(taste.name)[1]
    expect = {taste.name: {"min": parse_text(minimum, "0.5")}}
    draft = CaseDraft("mine", "made.up", params, matrix, expect=expect, np=2)
    cases = load_suite_text(insert_case("", draft).text, Path("s.yaml")).cases
    assert [case.id for case in cases] == [f"mine[depth={depth}]" for depth in (1, 3, 9)]
    assert cases[0].params == {"flavour": "sour", "depth": 1, "volume": 3 << 20, "side": 0.5}
    assert cases[0].expect[0].metric == "taste"


# Typed text


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        (TILES["image_size"], " 65x96 ", "65x96"),
        (TILES["image_size"], "256", 256),
        (TILES["iterations"], "1e3", 1000),
        (TILES["fp16_allreduce"], "off", "off"),
        (TILES["fp16_allreduce"], "true", True),
        (LINK["sizes"], "8, 64KiB", [8, "64KiB"]),
        (LINK["sizes"], "8", [8]),
        (SWEEP["algorithm"], "native, ring", ["native", "ring"]),
        (SWEEP["order"], "1,0", [1, 0]),
        (LAUNCH["threads"], "auto", "auto"),
        (LAUNCH["threads"], "4", 4),
        (LAUNCH["python"], "3", "3"),
        (LAUNCH["setup"], "module load a\n\n  export B=1  ", ["module load a", "export B=1"]),
        (LAUNCH["env"], "A=1\nB=x=y\nC=", {"A": "1", "B": "x=y", "C": ""}),
        (LAUNCH["container"], "apptainer exec 'a b'", "apptainer exec 'a b'"),
        (LAUNCH["container"], "{image: x, args: [--nv]}", {"image": "x", "args": ["--nv"]}),
        (PROGRAM["argv"], "./x --y 'a b' 8", ["./x", "--y", "a b", "8"]),
        (PROGRAM["must"], "[0-9]+ \n\n b, c", ["[0-9]+ ", " b, c"]),
        (PROGRAM["env"], "{A: x, B: 1}", {"A": "x", "B": 1}),
        (PROGRAM["table"], "[{header: a}, {header: b}]", [{"header": "a"}, {"header": "b"}]),
        (CASE["np"], "8", 8),
        (MAX, "2.5", 2.5),
    ],
)
def test_typed_text_becomes_the_value_in_the_suite(field, text, value):
    parsed = parse_text(field, text)
    assert repr(parsed) == repr(value)
    assert repr(parse_text(field, format_text(field, parsed))) == repr(value)


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        (TILES["halo_len"], " ", "halo_len is empty: give it a value or leave it out"),
        (TILES["halo_len"], "0", "halo_len: 0 is below the least value, 1"),
        (TILES["halo_len"], "3.5", "halo_len: 3.5 is not a whole number"),
        (TILES["halo_len"], "9" * 5000, "halo_len: the number has too many digits"),
        (TILES["dtype"], "bf61", "dtype: 'bf61' is none of fp32, fp64, fp16, bf16 (did you mean"),
        (LINK["sizes"], "8, x", "sizes: 'x' is no number of bytes"),
        (SWEEP["algorithm"], "ring, rnig", "algorithm: 'rnig' is none of native, gloo"),
        (SWEEP["order"], "1, x", "order: 'x' is not a whole number"),
        (PROGRAM["argv"], "./x 'a", 'argv: "./x \'a" cannot be split into words'),
        (PROGRAM["env"], "{A: x}, {B: y}", "env: '{A: x}, {B: y}' has several values; write {"),
        (PROGRAM["env"], "A=1", "env: 'A=1' is no JSON"),
        (LAUNCH["launcher"], "opnmpi", "launch.launcher must be auto, mpirun_rsh, hydra, "),
        (LAUNCH["timeout"], "0", "launch.timeout must be above 0, not 0"),
        (LAUNCH["env"], "A", "env: 'A' is not NAME=VALUE"),
        (LAUNCH["container"], "{runtime: podman}", "launch.container lacks the key 'image'"),
        (LAUNCH["container"], "{a", "container: '{a' cannot be read; write {KEY: VALUE, ...}"),
        (LAUNCH["env"], "1A=2", "'1A' cannot name an environment variable"),
        (CASE["name"], "a b", "name is 'a b'; use letters, digits"),
        (CASE["np"], "0", "np must be a whole number from 1, not 0"),
        (MIN, "few", "min is no limit: expected a number"),
    ],
)
def test_rejects_values_with_the_message_of_the_loader(field, text, message):
    with pytest.raises(UsageError) as caught:
        parse_text(field, text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("field", "text", "values"),
    [
        (TILES["image_size"], "64, 128, 65x96", [64, 128, "65x96"]),
        (TILES["image_size"], "64..1024 *2", [64, 128, 256, 512, 1024]),
        (TILES["image_size"], "64..1000*2", [64, 128, 256, 512]),
        (TILES["halo_len"], "1..9 +2, 20", [1, 3, 5, 7, 9, 20]),
        (TILES["halo_len"], "1..3", [1, 2, 3]),
        (TILES["halo_len"], "4..4 *2", [4]),
        (TILES["overlap"], "on, off", ["on", "off"]),
        (MEMORY["size"], "8..1MiB *128", [8, "1KiB", "128KiB"]),
        (MEMORY["size"], "1KiB..2KiB +512B", ["1KiB", 1536, "2KiB"]),
        (MEMORY["size"], "8..16 +4", [8, 12, 16]),
        (LINK["sizes"], "[8, 64KiB], [8]", [[8, "64KiB"], [8]]),
        (SWEEP["algorithm"], "[ring, flat], native", [["ring", "flat"], "native"]),
        (SWEEP["order"], "[0, 1], [1, 0]", [[0, 1], [1, 0]]),
        (CASE["np"], "2..8 *2", [2, 4, 8]),
    ],
)
def test_parses_sweep_as_list_or_range(field, text, values):
    parsed = parse_sweep(field, text)
    assert repr(parsed) == repr(values)
    assert parse_sweep(field, format_sweep(parsed)) == values


def test_rejects_sweep_of_mappings_and_lines():
    for name in ("must", "metrics", "env"):
        with pytest.raises(UsageError, match=f"{name} takes one value"):
            parse_sweep(PROGRAM[name], "{a: b}, {c: d}")


def test_range_steps_do_not_drift():
    (field,) = (field for field in list_param_fields(SYNTHETIC) if field.name == "side")
    values = [0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95]
    assert parse_sweep(field, "0.25..1 +0.1") == values


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        (TILES["halo_len"], "", "halo_len is empty: give it a value or leave it out"),
        (TILES["halo_len"], "1,,2", "halo_len: '1,,2' cannot be read; write values with commas"),
        (TILES["halo_len"], "1], [2", "halo_len: '1], [2' cannot be read"),
        (TILES["halo_len"], "0..4", "halo_len: 0 is below the least value, 1"),
        (TILES["halo_len"], "4..1", "halo_len: 4..1 +1 does not rise from its first to its last"),
        (TILES["halo_len"], "1..4 *1", "halo_len: 1..4 *1 does not rise"),
        (TILES["halo_len"], "1..4 +0", "halo_len: 1..4 +0 does not rise"),
        (TILES["seed"], "0..4 *2", "seed: 0..4 *2 does not rise"),
        (TILES["halo_len"], "1..4 *two", "halo_len: 'two' is not a number; write FIRST..LAST"),
        (TILES["halo_len"], "1..4 *inf", "halo_len: 'inf' is not a finite number"),
        (TILES["halo_len"], "1..4 +0.5", "halo_len: 1.5 is not a whole number"),
        (TILES["image_size"], "8x8..64 *2", "image_size: '8x8' is not a number"),
        (TILES["halo_len"], "1..1001", "halo_len: 1..1001 +1 makes more than 1000 values"),
        (TILES["halo_len"], "1..600, 1..600", "halo_len: these are 1200 values; a sweep has at"),
        (TILES["dtype"], "fp32..bf16", "dtype: 'fp32..bf16' is none of"),
        (MEMORY["size"], "8..64 +x", "size: 'x' is no number of bytes"),
        (LAUNCH["timeout"], "1, 2", "timeout takes one value; only parameters and np can"),
    ],
)
def test_rejects_invalid_sweep(field, text, message):
    with pytest.raises(UsageError) as caught:
        parse_sweep(field, text)
    assert str(caught.value).startswith(message)


def test_accepts_a_sweep_of_1000_values():
    assert parse_sweep(TILES["halo_len"], "[1, 2, 4]") == [1, 2, 4]
    assert parse_sweep(TILES["halo_len"], "1..1000")[-1] == 1000
    assert parse_sweep(TILES["halo_len"], "1..10 *1e999999") == [1]


def parse_message(parse, field, text):
    """Return the error message, or the field's name if the text is accepted."""
    try:
        parse(field, text)
    except UsageError as error:
        return str(error)
    return field.name


@given(st.text(max_size=20))
def test_any_text_is_accepted_or_gets_a_message(text):
    fields = (TILES["image_size"], MEMORY["size"], LINK["sizes"], TILES["dtype"], CASE["np"])
    for field in (*fields, PROGRAM["argv"], PROGRAM["must"], PROGRAM["metrics"]):
        for parse in (parse_text, parse_sweep):
            assert field.name in parse_message(parse, field, text)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), ("force", "force")])
def test_switch_with_a_third_value_is_a_choice(text, value):
    field = LAUNCH["oversubscribe"]
    assert (field.kind, field.choices, field.default) == (
        "choice",
        ("true", "false", "force"),
        "true",
    )
    assert parse_text(field, text) == value
    assert format_text(field, value) == text
