"""Numbers with thousands of digits give one short error with its line."""

from contextlib import suppress
from pathlib import Path

import pytest

from spbench.errors import SpbenchError, SuiteError, UsageError
from spbench.launch.hosts.hosts import read_hostfile
from spbench.planner.cluster.cluster_file import read_cluster
from spbench.planner.errors import ClusterError
from spbench.suites.loader import load_suite_text
from spbench_core.catalog import BENCHMARKS

SUITE = """\
schema: spbench.suite/1
name: large
launch: {threads: 1, timeout: <timeout>}
cases:
  - name: halo
    benchmark: halo.exchange
    np: <np>
    repeat: <repeat>
    params: {image_size: <image_size>, num_spatial_parts: 2, slice_method: vertical}
    expect: {time_ms.p50: {max: <max>}}
    matrix: {halo_len: [1, <halo_len>]}
"""
VALUES = {
    "timeout": "9",
    "np": "2",
    "repeat": "1",
    "image_size": "64x96",
    "max": "5",
    "halo_len": "2",
}
NUMBERS = {
    "hex": "0x" + "f" * 4000,
    "short hex": "0x" + "f" * 260,
    "octal": "0o" + "7" * 5000,
    "decimal": "9" * 400,
    "long decimal": "9" * 5000,
    "negative": "-" + "9" * 5000,
    "binary": "0b" + "1" * 5000,
    "underscores": "1_000" * 1000,
    "sexagesimal": "59:" * 1000 + "59",
    "float": "1e999",
    "long exponent": "1e" + "9" * 5000,
    "negative float": "-1e999",
}
CLUSTER = """\
schema: spbench.cluster/1
devices: {v100: {memory: 16GB, speed: <number>}}
links: {nvlink: {bandwidth: 25GB/s}}
machines: [{name: a, devices: {v100: <number>}, link: nvlink}]
"""


def fill_suite(values):
    text = SUITE
    for key, value in values.items():
        text = text.replace(f"<{key}>", value)
    return text


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("key", VALUES)
def test_large_number_is_one_error_at_its_position(key, number):
    lines = SUITE.splitlines()
    line = next(index for index, text in enumerate(lines, 1) if f"<{key}>" in text)
    before = fill_suite({**VALUES, key: "<here>"}).splitlines()[line - 1]
    with pytest.raises(SuiteError) as caught:
        load_suite_text(fill_suite(VALUES | {key: number}), Path("s.yaml"))
    (error,) = caught.value.diagnostics
    assert (error.line, error.column) == (line, before.index("<here>") + 1)
    assert "int_max_str_digits" not in error.message


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("key", ["np", "repeat", "halo_len", "image_size", "launch.timeout"])
def test_large_number_in_an_override_is_one_error(key, number):
    with pytest.raises(UsageError) as caught:
        load_suite_text(fill_suite(VALUES), Path("s.yaml"), [f"{key}={number}"])
    message = str(caught.value)
    assert f"--set {key}=" in message
    assert "\n" not in message
    assert "int_max_str_digits" not in message


def test_override_is_shortened_in_messages():
    with pytest.raises(UsageError) as caught:
        load_suite_text(fill_suite(VALUES), Path("s.yaml"), ["np=" + "9" * 5000])
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("number", [*NUMBERS.values(), "9" * 5000 + "KiB"], ids=[*NUMBERS, "unit"])
def test_large_number_in_an_expression_is_one_error(number):
    expression = f"'2 * {number}'"
    with pytest.raises(SuiteError) as caught:
        load_suite_text(fill_suite(VALUES | {"max": expression}), Path("s.yaml"))
    (error,) = caught.value.diagnostics
    assert error.line == 10


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
def test_large_number_in_a_cluster_file_is_an_error_at_its_line(number):
    with pytest.raises(ClusterError) as caught:
        read_cluster(CLUSTER.replace("<number>", number), "c.yaml", "c")
    assert [error.line for error in caught.value.diagnostics] == [2, 4]
    assert "int_max_str_digits" not in str(caught.value)


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("line", ["node01 slots={}", "node01:{}", "node[1-{}]"])
def test_large_number_in_a_hostfile_is_an_error_at_its_line(tmp_path, line, number):
    path = tmp_path / "large.hosts"
    path.write_text("node00\n" + line.format(number) + "\n")
    with pytest.raises(UsageError) as caught:
        read_hostfile(path)
    assert str(caught.value).startswith(f"{path}:2: error: ")


PARAMETER_VALUES = {
    "250 digits": "9" * 250,
    "250 hex digits": "0x" + "f" * 250,
    "trillion": "1000000000000",
    "float": "1e300",
    "quoted": "'" + "9" * 5000 + "'",
    "quoted, short of Python's limit": "'" + "9" * 4200 + "'",
    "quoted pair": "'" + "9" * 4200 + "x" + "9" * 5000 + "'",
    "quoted list": "'1," + "9" * 5000 + "'",
    "quoted bytes": "'" + "9" * 5000 + "KiB'",
    "quoted JSON": '\'{"a": ' + "9" * 5000 + "}'",
}


@pytest.mark.parametrize("value", PARAMETER_VALUES.values(), ids=PARAMETER_VALUES)
@pytest.mark.parametrize("name", BENCHMARKS)
def test_no_parameter_crashes_on_a_large_number(name, value):
    for param in BENCHMARKS[name].params:
        entry = f"{{name: a, benchmark: {name}, params: {{{param.name}: {value}}}}}"
        text = f"schema: spbench.suite/1\nname: large\ncases: [{entry}]\n"
        with suppress(SpbenchError):
            load_suite_text(text, Path("s.yaml"))


@pytest.mark.parametrize(
    ("benchmark", "param", "value"),
    [
        ("model.resnet", "local_DP", "'" + "9" * 5000 + "'"),
        ("link.pingpong", "sizes", "'1," + "9" * 5000 + "KiB'"),
        ("halo.exchange", "halo_len", "'" + "9" * 5000 + "'"),
        ("kvstore.push_pull", "gpus", "'0," + "9" * 5000 + "'"),
    ],
)
def test_quoted_number_of_a_parameter_has_a_limit(benchmark, param, value):
    entry = f"{{name: a, benchmark: {benchmark}, params: {{{param}: {value}}}}}"
    with pytest.raises(SuiteError) as caught:
        load_suite_text(f"schema: spbench.suite/1\nname: a\ncases: [{entry}]\n", Path("s.yaml"))
    assert "the number has more than 250 digits" in str(caught.value)
