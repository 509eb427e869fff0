"""The program of each rank: interpreter, container, setup lines, by-hand arguments."""

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


def keys(**given: object) -> LaunchSettings:
    return LaunchSettings.model_validate(given)


def case(benchmark: str, **given: object) -> Case:
    params = BENCHMARKS[benchmark].complete(given)
    return Case("x", "x", benchmark, params, None, 1, (), keys(), 1)


def test_a_rank_runs_the_worker_with_this_interpreter():
    assert build_worker_argv(keys()) == (sys.executable, "-m", "mpi4py", "-m", "spbench_workers")
    assert find_interpreter(keys(python="/opt/py/bin/python3")) == "/opt/py/bin/python3"


def test_a_container_stands_before_the_interpreter():
    words = build_worker_argv(
        keys(container="apptainer exec 'my image.sif'", python="python3"), ["x"]
    )
    assert words[:4] == ("apptainer", "exec", "my image.sif", "python3")
    assert words[-1] == "x"
    with pytest.raises(UsageError, match=r"launch\.container: .* No closing quotation"):
        build_worker_argv(keys(container="apptainer 'open"))


def test_an_image_has_its_own_interpreter():
    words = build_worker_argv(keys(container={"image": "i.sif"}))
    assert words[-5:] == ("python3", "-m", "mpi4py", "-m", "spbench_workers")
    assert words[-6] == "i.sif"
    assert find_interpreter(keys(container={"image": "i"}, python="/opt/python")) == "/opt/python"


def run(setup: tuple[str, ...], *argv: str) -> subprocess.CompletedProcess[str]:
    words = wrap_argv(keys(setup=setup), argv)
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_setup_lines_run_first_and_arguments_arrive_whole():
    done = run(("export A=1 # as ever", 'B="$A 2"\nexport B'), "printenv", "B")
    assert (done.stdout, done.returncode) == ("1 2\n", 0)
    done = run(("true",), "printf", "%s|", "it's", "$HOME", "", "a\nb")
    assert done.stdout == "it's|$HOME||a\nb|"


def test_a_failing_setup_line_stops_the_rank():
    done = run(("true", "cd /no/such/folder", "true"), "echo", "started")
    assert (done.stdout, done.returncode) == ("", 1)
    assert "spbench: setup line failed: cd /no/such/folder" in done.stderr
    done = run(("false # it's so",), "echo", "started")
    assert (done.stdout, done.returncode) == ("", 1)


def test_by_hand_arguments_are_what_differs_from_the_defaults():
    assert build_standalone_args(case("halo.exchange")) == ("halo.exchange",)
    words = build_standalone_args(
        case("halo.exchange", image_size="64x32", halo_len=3, slice_method="vertical")
    )
    assert words == (
        "halo.exchange",
        *("--image-size", "64x32", "--slice-method", "vertical", "--halo-len", "3"),
    )
    words = build_standalone_args(case("link.pingpong", sizes=[8, 1024]))
    assert words == ("link.pingpong", "--sizes", "8,1024")


@pytest.mark.parametrize(
    "given",
    [
        {"grid": "2x3"},
        {"num_spatial_parts": 16},
        {"num_spatial_parts": 9, "slice_method": "horizontal"},
        {"grid": "4x1", "dtype": "fp16"},
    ],
)
def test_by_hand_arguments_read_back_to_the_same_parameters(given):
    exact = case("halo.exchange", **given)
    words = build_standalone_args(exact)[1:]
    flags = {param.flag: param.name for param in exact.entry.params}
    again = {flags[flag]: value for flag, value in zip(words[::2], words[1::2], strict=True)}
    assert exact.entry.complete(again) == exact.params
