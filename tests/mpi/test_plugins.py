"""A plug-in that pip installs: its benchmark, its launcher and its report format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT, TESTS
from support.runs import SPBENCH, run
from support.sample_events import make_complete_run, record_run

pytest.importorskip("hatchling", reason="hatchling, which builds the plug-in, is not installed")
pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

EXAMPLE = TESTS / "data" / "plugin_example"
SUITE = str(EXAMPLE / "plugin.yaml")


@pytest.fixture(scope="module")
def plugin_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the plug-in is installed next to spbench."""
    folder = tmp_path_factory.mktemp("plugin") / "site"
    command = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", *command, str(EXAMPLE)], check=True)
    return {"PYTHONPATH": str(folder)}


def spbench(*arguments: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    process = subprocess.run(
        [SPBENCH, *arguments],
        cwd=ROOT,
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == code, process.stdout + process.stderr
    return process


def test_plugin_runs_a_suite_and_writes_a_report(
    plugin_env: dict[str, str], tmp_path: Path
) -> None:
    result = run(SUITE, home=tmp_path / "home", env=plugin_env)
    assert result.code == 0, result.stdout + result.stderr
    assert set(result.statuses.values()) == {"passed"}
    assert {case["launch"]["launcher"] for case in result.report["cases"]} == {"example_local"}
    options = ("report", "last", "--format", "example_lines", "--home", str(result.home))
    lines = spbench(*options, **plugin_env).stdout.splitlines()
    assert lines == ["sum[count=10] passed", "sum[count=1000] passed", "copy passed"]
    # recorded runs need no plug-in
    output = spbench("results", "show", "last", "--home", str(result.home)).stdout
    assert "sum[count=1000]" in output


def test_fault_fails_the_check_of_the_plugin(plugin_env: dict[str, str], tmp_path: Path) -> None:
    options = ("-k", "sum", "--inject", "corrupt-sum")
    result = run(SUITE, *options, home=tmp_path / "home", env=plugin_env)
    assert result.code == 1, result.stdout + result.stderr
    assert set(result.statuses.values()) == {"failed"}


def test_plugin_is_listed_and_in_the_schema(plugin_env: dict[str, str]) -> None:
    assert "example.sum" in spbench("benchmarks", **plugin_env).stdout
    description = spbench("benchmarks", "example.sum", **plugin_env).stdout
    assert "from the plug-in spbench-example 1.2" in description
    schema = json.loads(spbench("schema", **plugin_env).stdout)
    assert "count" in schema["$defs"]["example.sum.params"]["properties"]
    launcher = schema["$defs"]["LaunchSettings"]["properties"]["launcher"]
    assert "example_local" in launcher["enum"]
    assert "example.sum" not in spbench("benchmarks").stdout


def test_names_of_a_missing_plugin_are_errors(tmp_path: Path) -> None:
    stderr = spbench("validate", SUITE, code=2).stderr
    assert "unknown benchmark 'example.sum'" in stderr
    assert "launch.launcher must be 'auto', 'mpirun_rsh'" in stderr or "must be auto" in stderr
    options = ("report", "nothing", "--format", "example_lines", "--home", str(tmp_path))
    assert spbench(*options, code=2).stderr


def test_reports_ranks_without_the_plugin(plugin_env: dict[str, str], tmp_path: Path) -> None:
    options = ("--set", "launch.launcher=openmpi", "--set", "launch.env.PYTHONPATH=/nowhere")
    result = run(SUITE, "-k", "sum", *options, home=tmp_path / "home", env=plugin_env)
    assert result.code in (3, 4), result.stdout
    reason = result.case("sum[count=10]")["reason"]
    assert "has no benchmark example.sum: install its plug-in for the ranks, too" in reason


def write_wrong_plugin(folder: Path, text: str, group: str = "benchmarks") -> dict[str, str]:
    """Write a plug-in with one module; return the environment that installs it."""
    info = folder / "spbench_wrong-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: spbench-wrong\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[spbench.{group}]\nwrong = spbench_wrong\n")
    (folder / "spbench_wrong.py").write_text(text)
    return {"PYTHONPATH": str(folder)}


ENTRY = """
from spbench_core.catalog.benchmark import TIME_MS, Benchmark, Metric
from spbench_core.catalog.parameters import Param
SPBENCH_PLUGIN_API = 1

BENCHMARKS = (Benchmark(**({"name": "wrong.one", "summary": "", "params": (),
    "metrics": (TIME_MS,), "checks": ("a",), "faults": ("b",), "worker": "nowhere"} | {MORE})),)
"""


WRONG = [
    ("import nowhere", "cannot import spbench_wrong: ModuleNotFoundError"),
    ("raise SystemExit", "cannot import spbench_wrong: SystemExit"),
    ("BENCHMARKS = ()", "spbench_wrong does not define SPBENCH_PLUGIN_API = 1"),
    ("SPBENCH_PLUGIN_API = 7", "is for another plug-in API (expected 1, got 7)"),
    ("SPBENCH_PLUGIN_API = 1", "does not define BENCHMARKS, as spbench.benchmarks requires"),
    ("SPBENCH_PLUGIN_API = 1\nBENCHMARKS = 3", "invalid BENCHMARKS (expected a tuple, got int)"),
    ("SPBENCH_PLUGIN_API = 1\nBENCHMARKS = (3,)", "(expected Benchmark, got int)"),
    (ENTRY.replace("{MORE}", '{"name": "memory.copy"}'), "name 'memory.copy' is used by spbench"),
    (ENTRY.replace("{MORE}", '{"name": "Wrong"}'), "invalid benchmark name 'Wrong'"),
    (ENTRY.replace("{MORE}", '{"metrics": ()}'), "metric time_ms is missing"),
    (ENTRY.replace("{MORE}", '{"checks": ()}'), "needs a check, and a fault"),
    (ENTRY.replace("{MORE}", '{"worker": None}'), "worker is missing (expected the module"),
    (ENTRY.replace("{MORE}", '{"params": (Param("a", "int", "x", ""),)}'), "invalid metric"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "warning"),
    [*WRONG[:3], *(pytest.param(*row, marks=pytest.mark.long) for row in WRONG[3:])],
)
def test_wrong_plugin_is_named_and_the_rest_works(text: str, warning: str, tmp_path: Path) -> None:
    process = spbench("benchmarks", **write_wrong_plugin(tmp_path, text))
    assert "memory.copy" in process.stdout
    assert "spbench: warning: plug-in spbench-wrong 0.1: " in process.stderr
    assert warning in process.stderr
    assert len(process.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ('{"resolve": lambda p: 1 / 0}', ("validate", "{suite}"), "resolve of wrong.one raised"),
        (
            '{"resolve": lambda p: None}',
            ("validate", "{suite}"),
            "resolve of wrong.one returned the wrong",
        ),
        (
            '{"ranks": lambda p: 2}',
            ("validate", "{suite}"),
            "ranks of wrong.one returned the wrong type",
        ),
    ],
)
def test_error_in_the_code_of_a_plugin_names_it(
    fields: str, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        "schema: spbench.suite/1\nname: wrong\ncases: [{name: a, benchmark: wrong.one}]\n"
    )
    env = write_wrong_plugin(tmp_path / "site", ENTRY.replace("{MORE}", fields))
    process = subprocess.run(
        [SPBENCH, *(argument.format(suite=suite) for argument in arguments)],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode in (2, 4)
    assert f"plug-in spbench-wrong 0.1: {message}" in process.stderr
    assert "Traceback" not in process.stderr


def test_incomplete_launcher_is_left_out(tmp_path: Path) -> None:
    text = "SPBENCH_PLUGIN_API = 1\nclass LAUNCHER: name = 'wrong'\n"
    env = write_wrong_plugin(tmp_path, text, "launchers")
    process = spbench("schema", **env)
    assert "plug-in spbench-wrong 0.1: launcher wrong lacks libraries" in process.stderr


def test_failing_format_is_an_error_with_its_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    record_run(home, make_complete_run(), verdict="passed")
    text = "SPBENCH_PLUGIN_API = 1\ndef report(run): return 1 / 0\n"
    env = write_wrong_plugin(tmp_path / "site", text, "reports")
    options = ("report", "last", "--format", "wrong", "--home", str(home))
    stderr = spbench(*options, code=4, **env).stderr
    assert "plug-in spbench-wrong 0.1: format wrong raised ZeroDivisionError" in stderr
