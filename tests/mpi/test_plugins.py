"""A plug-in, installed with pip: its benchmark, its launcher and its format of reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT, TESTS
from support.runs import SPBENCH, run

pytest.importorskip("hatchling", reason="hatchling, which builds the plug-in, is not installed")
pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

EXAMPLE = TESTS / "data" / "plugin_example"
SUITE = str(EXAMPLE / "plugin.yaml")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the plug-in is installed beside spbench."""
    folder = tmp_path_factory.mktemp("plugin") / "site"
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", *words, str(EXAMPLE)], check=True)
    return {"PYTHONPATH": str(folder)}


def spbench(*words: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [SPBENCH, *words],
        cwd=ROOT,
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_its_suite_runs_by_its_launcher_and_its_report_is_written(
    installed: dict[str, str], tmp_path: Path
) -> None:
    ended = run(SUITE, home=tmp_path / "home", env=installed)
    assert ended.code == 0, ended.stdout + ended.stderr
    assert set(ended.statuses.values()) == {"passed"}
    assert {case["launch"]["launcher"] for case in ended.report["cases"]} == {"example_local"}
    words = ("report", "last", "--format", "example_lines", "--home", str(ended.home))
    lines = spbench(*words, **installed).stdout.splitlines()
    assert lines == ["sum[count=10] passed", "sum[count=1000] passed", "copy passed"]
    # the record needs no plug-in
    shown = spbench("results", "show", "last", "--home", str(ended.home)).stdout
    assert "sum[count=1000]" in shown


def test_its_check_is_seen_to_fail(installed: dict[str, str], tmp_path: Path) -> None:
    words = ("-k", "sum", "--inject", "corrupt-sum")
    ended = run(SUITE, *words, home=tmp_path / "home", env=installed)
    assert ended.code == 1, ended.stdout + ended.stderr
    assert set(ended.statuses.values()) == {"failed"}


def test_it_is_listed_described_and_in_the_schema(installed: dict[str, str]) -> None:
    assert "example.sum" in spbench("benchmarks", **installed).stdout
    described = spbench("benchmarks", "example.sum", **installed).stdout
    assert "from the plug-in spbench-example 1.2" in described
    schema = json.loads(spbench("schema", **installed).stdout)
    assert "count" in schema["$defs"]["example.sum.params"]["properties"]
    launcher = schema["$defs"]["LaunchSettings"]["properties"]["launcher"]
    assert "example_local" in launcher["enum"]
    assert "example.sum" not in spbench("benchmarks").stdout


def test_without_it_each_of_its_names_is_an_error_of_the_suite(tmp_path: Path) -> None:
    told = spbench("validate", SUITE, code=2).stderr
    assert "unknown benchmark 'example.sum'" in told
    assert "launch.launcher must be 'auto', 'mpirun_rsh'" in told or "must be auto" in told
    words = ("report", "nothing", "--format", "example_lines", "--home", str(tmp_path))
    assert spbench(*words, code=2).stderr


def test_ranks_without_it_are_told_to_install_it(installed: dict[str, str], tmp_path: Path) -> None:
    words = ("--set", "launch.launcher=openmpi", "--set", "launch.env.PYTHONPATH=/nowhere")
    ended = run(SUITE, "-k", "sum", *words, home=tmp_path / "home", env=installed)
    assert ended.code in (3, 4), ended.stdout
    reason = ended.case("sum[count=10]")["reason"]
    assert "has no benchmark example.sum: install its plug-in for the ranks, too" in reason


def wrong_plugin(folder: Path, text: str, group: str = "benchmarks") -> dict[str, str]:
    """The environment with a plug-in that is one module."""
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
    ("text", "told"),
    [*WRONG[:3], *(pytest.param(*one, marks=pytest.mark.long) for one in WRONG[3:])],
)
def test_what_is_wrong_with_a_plugin_names_it_and_leaves_the_rest_alive(
    text: str, told: str, tmp_path: Path
) -> None:
    done = spbench("benchmarks", **wrong_plugin(tmp_path, text))
    assert "memory.copy" in done.stdout
    assert "spbench: warning: plug-in spbench-wrong 0.1: " in done.stderr
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("more", "words", "told"),
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
def test_a_defect_in_a_plugins_code_is_its_own(
    more: str, words: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        "schema: spbench.suite/1\nname: wrong\ncases: [{name: a, benchmark: wrong.one}]\n"
    )
    env = wrong_plugin(tmp_path / "site", ENTRY.replace("{MORE}", more))
    done = subprocess.run(
        [SPBENCH, *(word.format(suite=suite) for word in words)],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (2, 4)
    assert f"plug-in spbench-wrong 0.1: {told}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_launcher_that_lacks_a_part_is_left_out(tmp_path: Path) -> None:
    text = "SPBENCH_PLUGIN_API = 1\nclass LAUNCHER: name = 'wrong'\n"
    env = wrong_plugin(tmp_path, text, "launchers")
    done = spbench("schema", **env)
    assert "plug-in spbench-wrong 0.1: launcher wrong lacks libraries" in done.stderr


def test_a_format_that_fails_is_an_error_with_its_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    memory = ("suites/smoke.yaml", "--case", "memory", "--headless", "--quiet")
    spbench("run", *memory, "--home", str(home))
    text = "SPBENCH_PLUGIN_API = 1\ndef report(run): return 1 / 0\n"
    env = wrong_plugin(tmp_path / "site", text, "reports")
    words = ("report", "last", "--format", "wrong", "--home", str(home))
    told = spbench(*words, code=4, **env).stderr
    assert "plug-in spbench-wrong 0.1: format wrong raised ZeroDivisionError" in told
