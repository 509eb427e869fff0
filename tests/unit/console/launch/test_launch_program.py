"""Tests of the program of a rank: interpreter, container, setup, standalone args."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spbench.errors import UsageError
from spbench.launch.program import (
    build_standalone_args,
    build_worker_argv,
    find_interpreter,
    wrap_argv,
)
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS


def make_settings(**fields: object) -> LaunchSettings:
    return LaunchSettings.model_validate(fields)


def build_case(benchmark: str, **values: object) -> Case:
    params = BENCHMARKS[benchmark].complete(values)
    return Case("x", "x", benchmark, params, None, 1, (), make_settings(), 1)


def test_rank_runs_the_worker_with_this_interpreter():
    assert build_worker_argv(make_settings()) == (
        sys.executable,
        "-m",
        "mpi4py",
        "-m",
        "spbench_workers",
    )
    assert find_interpreter(make_settings(python="/opt/py/bin/python3")) == "/opt/py/bin/python3"


def test_container_precedes_the_interpreter(messages):
    argv = build_worker_argv(
        make_settings(container="apptainer exec 'my image.sif'", python="python3"), ["x"]
    )
    assert argv[:4] == ("apptainer", "exec", "my image.sif", "python3")
    assert argv[-1] == "x"
    with messages.raises(UsageError):
        build_worker_argv(make_settings(container="apptainer 'open"))


def test_image_uses_its_python3():
    argv = build_worker_argv(make_settings(container={"image": "i.sif"}))
    assert argv[-5:] == ("python3", "-m", "mpi4py", "-m", "spbench_workers")
    assert argv[-6] == "i.sif"
    assert (
        find_interpreter(make_settings(container={"image": "i"}, python="/opt/python"))
        == "/opt/python"
    )


def run(setup: tuple[str, ...], *argv: str) -> subprocess.CompletedProcess[str]:
    command = wrap_argv(make_settings(setup=setup), argv)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_setup_lines_run_first_and_arguments_are_intact():
    process = run(("export A=1 # as ever", 'B="$A 2"\nexport B'), "printenv", "B")
    assert (process.stdout, process.returncode) == ("1 2\n", 0)
    process = run(("true",), "printf", "%s|", "it's", "$HOME", "", "a\nb")
    assert process.stdout == "it's|$HOME||a\nb|"


def test_failing_setup_line_stops_the_rank(messages):
    process = run(("true", "cd /no/such/folder", "true"), "echo", "started")
    assert (process.stdout, process.returncode) == ("", 1)
    messages.check(process.stderr)
    process = run(("false # it's so",), "echo", "started")
    assert (process.stdout, process.returncode) == ("", 1)


def test_standalone_args_are_the_non_default_values():
    assert build_standalone_args(build_case("halo.exchange")) == ("halo.exchange",)
    args = build_standalone_args(
        build_case("halo.exchange", image_size="64x32", halo_len=3, slice_method="vertical")
    )
    assert args == (
        "halo.exchange",
        *("--image-size", "64x32", "--slice-method", "vertical", "--halo-len", "3"),
    )
    args = build_standalone_args(build_case("link.pingpong", sizes=[8, 1024]))
    assert args == ("link.pingpong", "--sizes", "8,1024")


@pytest.mark.parametrize(
    "params",
    [
        {"grid": "2x3"},
        {"num_spatial_parts": 16},
        {"num_spatial_parts": 9, "slice_method": "horizontal"},
        {"grid": "4x1", "dtype": "fp16"},
    ],
)
def test_standalone_args_round_trip(params):
    case = build_case("halo.exchange", **params)
    args = build_standalone_args(case)[1:]
    flags = {param.flag: param.name for param in case.entry.params}
    parsed = {flags[flag]: value for flag, value in zip(args[::2], args[1::2], strict=True)}
    assert case.entry.complete(parsed) == case.params
