"""Parameters: reading, bounds and rejected values; entries of the catalog."""

import importlib
import json
import math
from dataclasses import replace

import jsonschema
import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.parameters import Param
from spbench_core.catalog.planted_fault import COMMON_FAULTS, JOB_FAULTS


def read_value(kind, value, **fields):
    return Param("p", kind, None, "", **fields).read(value)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", 3, 3),
        ("int", "3", 3),
        ("int", 3.0, 3),
        ("float", "1e3", 1000.0),
        ("float", 2, 2.0),
        ("bool", True, True),
        ("bool", "off", False),
        ("bool", "yes", True),
        ("pair", 65, 65),
        ("pair", "65", 65),
        ("pair", "65x33", "65x33"),
        ("pair", "2X3", "2x3"),
        ("pair", "03", 3),
        ("bytes", 8, 8),
        ("bytes", "64KiB", 65536),
        ("bytes", "64k", 64000),
        ("bytes", "1MB", 1000000),
        ("bytes", "2 GiB", 2 << 30),
        ("bytes_list", "8,1KiB,1M", [8, 1024, 1000000]),
        ("bytes_list", [8, "1KiB"], [8, 1024]),
        ("bytes_list", 8, [8]),
        ("ints", "0, 2,1", [0, 2, 1]),
        ("ints", [3, "4"], [3, 4]),
        ("ints", 5, [5]),
        ("text", "4,2", "4,2"),
        ("text", 4, "4"),
        ("text", [4, "2"], "4,2"),
        ("text", " ./train ", "./train"),
        ("words", "./x --y 'a b'", ["./x", "--y", "a b"]),
        ("words", ["./x", 8, "a b"], ["./x", "8", "a b"]),
        ("lines", "a b", ["a b"]),
        ("lines", "[a]\n\nb", ["[a]", "b"]),
        ("lines", ["a", 8], ["a", "8"]),
        ("data", {"a": {1: [2, None]}}, {"a": {"1": [2, None]}}),
        ("data", '{"a": 1.5}', {"a": 1.5}),
        ("data", [{"a": 1}], [{"a": 1}]),
    ],
)
def test_reads_values_of_each_kind(kind, value, expected):
    result = read_value(kind, value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", "3.5"),
        ("int", 3.5),
        ("int", True),
        ("int", "three"),
        ("int", []),
        ("float", "nan"),
        ("float", "inf"),
        ("float", "x"),
        ("float", True),
        ("bool", "maybe"),
        ("bool", 2),
        ("pair", "0"),
        ("pair", "3x"),
        ("pair", 2.5),
        ("pair", True),
        ("bytes", "64 furlongs"),
        ("bytes", -1),
        ("bytes", 1.5),
        ("bytes_list", []),
        ("bytes_list", "8,,9"),
        ("ints", "0,x"),
        ("ints", [0.5]),
        ("ints", []),
        ("text", ""),
        ("text", []),
        ("text", 1.5),
        ("text", True),
        ("text", {"a": 1}),
        ("words", ""),
        ("words", "a 'b"),
        ("words", [1.5]),
        ("lines", ""),
        ("lines", [[]]),
        ("data", "a: 1"),
        ("data", 3),
        ("data", []),
        ("data", {"a": {"b": object()}}),
    ],
)
def test_rejects_invalid_values_of_each_kind(kind, value):
    with pytest.raises(ValueError, match=r"\w"):
        read_value(kind, value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 3),
        ("bool", True),
        ("bytes_list", [8, 1024]),
        ("words", ["./x", "a b", "", "'"]),
        ("lines", ["a, b", "[0-9]+"]),
        ("data", {"a": {"b": [1, "c"]}}),
    ],
)
def test_reads_back_a_formatted_value(kind, value):
    assert read_value(kind, Param("p", kind, None, "").format_argument(value)) == value


def test_bounds_apply_to_each_item(messages):
    assert read_value("int", 5, minimum=5, maximum=5) == 5
    with messages.raises(ValueError):
        read_value("int", 4, minimum=5)
    with messages.raises(ValueError):
        read_value("bytes_list", [8, 10], maximum=9)


def test_choices_accept_alternative_spellings(messages):
    choice = Param("p", "choice", "a", "", choices=("a", "b"), spellings={"fp_16": "b"})
    assert choice.read("fp_16") == "b"
    assert choice.json_schema()["enum"] == ["a", "b", "fp_16"]
    with messages.raises(ValueError):
        choice.read("c")


def test_reads_choices_as_a_list():
    choices = Param("p", "choices", "a", "", choices=("a", "b"), spellings={"B": "b"})
    assert choices.read("a, B") == choices.read(["a", "b"]) == ["a", "b"]
    assert choices.read("b") == ["b"]
    for value, message in (
        ("a,c", "'c' is none of a, b"),
        ("b,B", "b is listed twice"),
        ([], "empty"),
    ):
        with pytest.raises(ValueError, match=message):
            choices.read(value)
    schema = jsonschema.Draft202012Validator(choices.json_schema())
    assert all(schema.is_valid(value) for value in ("a", "a,b", ["a", "B"]))
    assert not any(schema.is_valid(value) for value in (1, ["c"], {"a": 1}))


def test_a_benchmark_without_points_is_a_single_case():
    entry = BENCHMARKS["memory.copy"]
    assert entry.list_cases({"size": 64}) == [({}, entry.complete({"size": 64}))]
    swept = replace(entry, points=lambda _: [{"size": 8, "seed": None}, {"size": 16}])
    cases = swept.list_cases({"size": 64, "seed": 3})
    assert [changes for changes, _ in cases] == [{"size": 8}, {"size": 16}]
    assert [(params["size"], params["seed"]) for _, params in cases] == [(8, 0), (16, 3)]


def test_reports_all_invalid_parameters_at_once():
    with pytest.raises(ExceptionGroup) as caught:
        BENCHMARKS["halo.exchange"].complete({"halo_len": 0, "nonsense": 1, "dtype": "fp8"})
    assert sorted(error.param for error in caught.value.exceptions) == [
        "dtype",
        "halo_len",
        "nonsense",
    ]


@pytest.mark.parametrize(
    ("overrides", "grid", "parts", "method"),
    [
        ({}, "2x2", 4, "square"),
        ({"num_spatial_parts": 9}, "3x3", 9, "square"),
        ({"num_spatial_parts": "4", "slice_method": "vertical"}, "1x4", 4, "vertical"),
        ({"num_spatial_parts": 3, "slice_method": "horizontal"}, "3x1", 3, "horizontal"),
        ({"slice_method": "horizontal"}, "4x1", 4, "horizontal"),
        ({"grid": "2x3"}, "2x3", 6, None),
        ({"grid": 2}, "2x2", 4, "square"),
        ({"grid": "1x4", "slice_method": "vertical", "num_spatial_parts": 4}, "1x4", 4, "vertical"),
    ],
)
def test_derives_tiles_from_the_parameters(overrides, grid, parts, method):
    entry = BENCHMARKS["halo.exchange"]
    params = entry.complete(overrides)
    assert (params["grid"], params["num_spatial_parts"]) == (grid, parts)
    assert params["slice_method"] == method
    assert entry.ranks(params).exact == parts
    assert entry.complete(params) == params


@pytest.mark.parametrize(
    ("overrides", "param"),
    [
        ({"num_spatial_parts": 3}, "num_spatial_parts"),
        ({"grid": "2x3", "num_spatial_parts": 4}, "num_spatial_parts"),
        ({"grid": "2x3", "slice_method": "square"}, "grid"),
        ({"grid": "2x2", "slice_method": "vertical"}, "grid"),
        ({"grid": "5x1", "image_size": "4x100"}, "image_size"),
    ],
)
def test_rejects_contradicting_parameters(overrides, param):
    with pytest.raises(ExceptionGroup) as caught:
        BENCHMARKS["halo.exchange"].complete(overrides)
    assert [error.param for error in caught.value.exceptions] == [param]


@pytest.mark.parametrize(
    ("overrides", "kernel", "padding"),
    [
        ({}, 3, 1),
        ({"halo_len": 3}, 7, 3),
        ({"kernel": 5}, 5, 2),
        ({"kernel": "5", "halo_len": "2"}, 5, 2),
        ({"kernel": 2}, 2, 0),
        ({"kernel": 4, "dilation": 2}, 4, 3),
        ({"kernel": "1x7"}, "1x7", "0x3"),
        ({"halo_len": 3, "enable_one_h_dim_kernel": True}, "1x7", "0x3"),
        ({"halo_len": 2, "enable_one_w_dim_kernel": "on"}, "5x1", "2x0"),
        ({"dilation": 3, "padding": 0}, 3, 0),
        ({"padding": "0x2"}, 3, "0x2"),
    ],
)
@pytest.mark.parametrize("benchmark", ["halo.compute", "halo.fused"])
def test_derives_kernel_and_padding_from_the_parameters(benchmark, overrides, kernel, padding):
    entry = BENCHMARKS[benchmark]
    params = entry.complete(overrides)
    assert (params["kernel"], params["padding"]) == (kernel, padding)
    assert entry.complete(params) == params


@pytest.mark.parametrize(
    ("benchmark", "overrides", "param", "message"),
    [
        ("halo.compute", {"kernel": 5, "halo_len": 1}, "kernel", "not the 3x3 that halo_len 1"),
        ("halo.compute", {"halo_len": 0}, "halo_len", "below the least value, 1"),
        ("halo.exchange", {"halo_len": 0}, "halo_len", "below the least value, 1"),
        ("halo.exchange", {"fp16_allreduce": True}, "fp16_allreduce", "has no parameter"),
        ("halo.exchange", {"out_channels": 4}, "out_channels", "has no parameter"),
        (
            "halo.compute",
            {"image_size": 4, "grid": "2x2", "kernel": 9, "padding": 1},
            "kernel",
            "spans 9 pixels is larger than 4 pixels with padding 1",
        ),
        (
            "halo.compute",
            {"enable_one_h_dim_kernel": True, "enable_one_w_dim_kernel": True},
            "enable_one_w_dim_kernel",
            "give one of the two",
        ),
        ("halo.compute", {"padding": -1}, "padding", "number below 0"),
        ("halo.compute", {"transport": "nccl", "device": "cpu"}, "transport", "not of cpu"),
        ("halo.exchange", {"transport": "shm", "device": "cuda"}, "transport", "not of cuda"),
        ("halo.fused", {"fused_layers": 0}, "fused_layers", "below the least value, 1"),
        ("halo.fused", {"fused_layers": 5}, "fused_layers", "more than num_layers, 4"),
        (
            "halo.fused",
            {"image_size": 8, "padding": 0, "num_layers": 4},
            "num_layers",
            "layer 4: a kernel that spans 3 pixels is larger than 2",
        ),
    ],
)
def test_rejects_impossible_parameters_before_the_start(benchmark, overrides, param, message):
    with pytest.raises(ExceptionGroup) as caught:
        BENCHMARKS[benchmark].complete(overrides)
    (error,) = caught.value.exceptions
    assert error.param == param
    assert message in str(error)


@pytest.mark.parametrize("entry", BENCHMARKS.values(), ids=lambda entry: entry.name)
def test_metric_parts_have_the_unit_of_the_total_and_no_parts(entry):
    metrics = {metric.name: metric for metric in entry.metrics}
    for metric in entry.metrics:
        if metric.part_of is not None:
            total = metrics[metric.part_of]
            assert (total.unit, total.part_of) == (metric.unit, None)


def test_the_catalog_lacks_unknown_names():
    assert "halo.none" not in BENCHMARKS
    assert "none.halo" not in BENCHMARKS
    assert BENCHMARKS.get("halo") is None


def test_a_model_splits_its_step_time_into_phases():
    parts = {
        metric.name for metric in BENCHMARKS["model.resnet"].metrics if metric.part_of == "time_ms"
    }
    assert {"forward_ms", "backward_ms", "exchange_ms", "bubble_ms"} < parts


def test_ranks_own_tiles_in_row_order():
    entry = BENCHMARKS["halo.exchange"]
    params = entry.complete({"grid": "2x3"})
    assert [entry.place(params, rank)["tile"] for rank in (0, 2, 3, 5)] == [
        "0,0",
        "0,2",
        "1,0",
        "1,2",
    ]


def test_rejects_sizes_that_do_not_increase():
    entry = BENCHMARKS["link.pingpong"]
    assert entry.complete({"sizes": "1,2,4"})["sizes"] == [1, 2, 4]
    for sizes in ("4,2", "4,4"):
        with pytest.raises(ExceptionGroup) as caught:
            entry.complete({"sizes": sizes})
        assert caught.value.exceptions[0].param == "sizes"


@pytest.mark.parametrize("entry", BENCHMARKS.values(), ids=lambda entry: entry.name)
def test_entries_are_consistent(entry):
    names = [param.name for param in entry.params]
    assert len(set(names)) == len(names)
    if not entry.starts_program:
        assert "seed" in names
        assert {"warmup", "iterations"} <= set(names) or "num_batches" in names
    assert entry.metrics[0].name == "time_ms"
    assert entry.checks
    assert entry.faults
    assert not set(entry.faults) & set(COMMON_FAULTS)
    params = entry.complete(entry.begins_with)
    assert set(params) == set(names)
    json.dumps(params)
    json.dumps([param.json_schema() for param in entry.params])
    assert math.isfinite(entry.ranks(params).minimum)
    assert callable(importlib.import_module(entry.module).run)


@pytest.mark.parametrize("entry", BENCHMARKS.values(), ids=lambda entry: entry.name)
def test_finds_parameters_by_alias_and_no_unknown_ones(entry):
    assert entry.find_param("nonsense") is None
    for alias, name in entry.aliases.items():
        assert entry.find_param(alias).name == name


@pytest.mark.parametrize("name", ["halo.exchange", "halo.compute", "halo.fused", "model.resnet"])
def test_device_ids_select_cuda(name):
    entry = BENCHMARKS[name]
    assert entry.complete({"device_ids": 0})["device"] == "cuda"
    assert entry.complete({"device_ids": "0,3"})["device_ids"] == [0, 3]
    for overrides, message in (
        ({"device_ids": 0, "device": "cpu"}, "device_ids does nothing on device cpu"),
        ({"device_ids": "1,1"}, "names a GPU twice"),
    ):
        with pytest.raises(ExceptionGroup) as caught:
            entry.complete(overrides)
        assert message in str(caught.value.exceptions[0])


def test_faults_without_a_rank_are_faults_of_benchmarks():
    assert {fault for entry in BENCHMARKS.values() for fault in entry.faults} >= JOB_FAULTS
