"""Complete runs on real ranks: report, order of cases, output of `command`."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import subprocess
from pathlib import Path

import jsonschema
import pytest

from spbench.record.runs.folder import RunFolder
from spbench.report.build import build_report
from spbench.report.model import report_schema
from spbench_core.catalog import BENCHMARKS
from support.paths import ROOT, TEST_SUITES
from support.runs import SPBENCH, RunResult, run, run_python

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

MIXED = str(TEST_SUITES / "mixed.yaml")
HALO = "suites/halo.yaml"


@pytest.fixture(scope="module")
def halo(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(HALO, home=tmp_path_factory.mktemp("halo") / "home")


@pytest.fixture(scope="module")
def mixed_run(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(MIXED, home=tmp_path_factory.mktemp("mixed") / "home")


def find_run_folder(result: RunResult) -> RunFolder:
    (path,) = (result.home / "runs").iterdir()
    return RunFolder(path)


def test_halo_suite_passes_every_check_on_four_ranks(halo: RunResult) -> None:
    assert halo.code == 0, halo.stdout + halo.stderr
    jsonschema.validate(halo.report, report_schema())
    assert 0 < len(halo.report["cases"]) <= 12
    for case in halo.report["cases"]:
        assert case["np"] == 4
        assert case["status"] == "passed"
        assert [rank["rank"] for rank in case["ranks"]] == [0, 1, 2, 3]
        checks = {check["name"]: check["ranks_passed"] for check in case["checks"]}
        assert checks == dict.fromkeys(BENCHMARKS[case["benchmark"]].checks, 4)
        assert case["choices"]["transport"]["value"] in ("packed", "datatype", "shm")
        assert "the fastest of packed" in case["choices"]["transport"]["reason"]
        assert case["metrics"]["time_ms"]["n"] == len(case["samples"]["time_ms"][0])
        if case["benchmark"] == "halo.exchange":
            assert case["limits"]["time_ms"]["measured_by"]


def test_lines_in_a_pipe_fit_and_have_times_with_units(halo: RunResult) -> None:
    lines = [line for line in halo.stdout.splitlines() if not line.startswith("report: ")]
    assert max(map(len, lines)) <= 120
    rows = [line for line in lines if re.match(r"\[ *\d+/12\] ✓ passed", line)]
    assert len(rows) == len(halo.report["cases"])
    for row in rows:
        assert re.search(r"  \d{1,3}(\.\d+)? (ns|us|ms|s)  ", row), row
    assert not re.search(r"\d[eE][+-]\d", halo.stdout)
    assert sum(line.startswith("next: ") for line in lines[-2:]) == 1


def test_run_json_has_counts_and_the_index_has_launches(halo: RunResult) -> None:
    cases = halo.report["cases"]
    assert find_run_folder(halo).read_json("run.json")["counts"] == {"passed": len(cases)}
    case = cases[0]
    median = case["medians"]["time_ms"]
    with sqlite3.connect(halo.home / "index.sqlite") as index:
        rows = index.execute(
            "SELECT median FROM launches WHERE case_id = ? AND metric = 'time_ms'", (case["id"],)
        )
        assert [value for (value,) in rows] == median


def test_one_job_runs_all_cases_with_equal_settings(halo: RunResult) -> None:
    assert {case["launch"]["job"] for case in halo.report["cases"]} == {1}


def test_time_of_an_iteration_is_that_of_the_slowest_rank(halo: RunResult) -> None:
    samples: dict[tuple[str, int], list[float]] = {}
    for event in halo.events:
        if event["event"] == "samples" and event["metric"] == "time_ms":
            samples.setdefault((event["case"], event["rank"]), []).extend(event["values"])
    for case in halo.report["cases"]:
        columns = zip(*(samples[case["id"], rank] for rank in range(4)), strict=True)
        assert case["samples"]["time_ms"] == [[max(column) for column in columns]]


def test_replayed_events_give_the_same_report(halo: RunResult) -> None:
    assert build_report(find_run_folder(halo).replay()) == halo.report
    assert find_run_folder(halo).read_json("report.json") == halo.report


def test_report_has_the_cases_in_the_order_of_the_suite(mixed_run: RunResult) -> None:
    cases = mixed_run.report["cases"]
    assert [case["id"] for case in cases] == ["wide", "narrow", "wide-again", "strict"]
    # The other two repeats of narrow run after each job has run once.
    assert [case["launch"]["job"] for case in cases] == [1, 5, 1, 3]


def test_missed_expectation_fails_the_run(mixed_run: RunResult) -> None:
    assert mixed_run.code == 1
    assert mixed_run.statuses["strict"] == "failed"
    (expectation,) = mixed_run.case("strict")["expectations"]
    assert expectation["status"] == "failed"
    assert expectation["value"] > 0
    assert mixed_run.case("narrow")["expectations"][0]["status"] == "passed"


def test_samples_of_repeats_are_separate(mixed_run: RunResult) -> None:
    case = mixed_run.case("narrow")
    assert [len(samples) for samples in case["samples"]["time_ms"]] == [5, 5, 5]
    assert case["metrics"]["time_ms"]["n"] == 15
    assert case["metrics"]["latency_us"]["n"] == 3


def test_each_repeat_is_a_separate_launch(mixed_run: RunResult) -> None:
    case = mixed_run.case("narrow")
    assert case["launches"] == [2, 4, 5]
    assert len(case["medians"]["time_ms"]) == len(case["medians"]["latency_us"]) == 3
    assert mixed_run.case("wide")["launches"] == [1]


def test_order_together_runs_repeats_in_one_launch(
    tmp_path: Path,
) -> None:
    together_run = run(MIXED, "--set", "order=together", "-k", "narrow", home=tmp_path / "together")
    assert together_run.case("narrow")["launches"] == [1]
    assert [len(samples) for samples in together_run.case("narrow")["samples"]["time_ms"]] == [
        5,
        5,
        5,
    ]
    result = run(MIXED, "-k", "narrow", "--inject", "raise@narrow", home=tmp_path / "raises")
    assert result.statuses == {"narrow": "error"}
    assert result.case("narrow")["launches"] == [1]


GATED = """\
schema: spbench.suite/1
name: gated
cases:
  - {name: a, benchmark: link.pingpong, np: 2, repeat: 4, params: {sizes: [8], iterations: 5}}
"""
REPEATED = """\
schema: spbench.suite/1
name: repeated
cases:
  - {name: whole, benchmark: link.pingpong, np: 2, repeat: 2, params: {sizes: [8], iterations: 5}}
  - {name: broken, benchmark: link.pingpong, np: 2, params: {sizes: [8], iterations: 5}}
  - name: on
    benchmark: link.pingpong
    np: 2
    params: {sizes: [8], iterations: 5}
    until: {interval: 0.9, max_time: 60}
"""


@pytest.mark.long
def test_repeats_run_once_after_a_fault_or_until_an_interval(
    tmp_path: Path,
) -> None:
    suite = tmp_path / "repeated.yaml"
    suite.write_text(REPEATED)
    result = run(str(suite), "--inject", "raise@broken", home=tmp_path / "home")
    assert result.statuses == {"whole": "passed", "broken": "error", "on": "passed"}
    passed = result.case("whole")
    on = result.case("on")
    assert [len(samples) for samples in passed["samples"]["time_ms"]] == [5, 5]
    assert passed["launches"][0] == 1
    assert on["until"]["why"] == "interval"
    assert on["until"]["width"] <= 0.9
    assert len(on["launches"]) >= 6
    assert f"it ran {len(on['launches'])} times: the 95 % interval of its median" in result.stdout
    assert build_report(find_run_folder(result).replay()) == result.report
    result.assert_no_event_missing()


@pytest.mark.long
def test_run_is_compared_with_a_baseline_at_its_end(tmp_path: Path) -> None:
    home = tmp_path / "home"
    suite = tmp_path / "gate.yaml"
    path = tmp_path / "main.json"
    suite.write_text(GATED)
    base = ["--home", str(home)]
    assert run(str(suite), home=home).code == 0
    subprocess.run([SPBENCH, "baseline", "set", str(path), *base], check=True)
    content = json.loads(path.read_text())
    times = content["cases"][0]["metrics"]["time_ms"]
    times["launches"] = [launch / 100 for launch in times["launches"]]
    path.write_text(json.dumps(content))
    page = tmp_path / "page.html"
    result = run(str(suite), "--baseline", str(path), "--html", str(page), home=home)
    assert result.code == result.report["run"]["exit_code"] == 1
    assert re.search(r"^▼ worse  a .* [num]s .*x  .* to ", result.stdout, re.MULTILINE)
    jsonschema.validate(result.report, report_schema())
    [case_comparison] = result.report["comparison"]["cases"]
    assert case_comparison["rows"][0]["outcome"] == "worse"
    assert "against baseline main: 1 of 1 case judged (1 worse)" in result.stdout
    assert "Comparison with the baseline" in page.read_text()
    assert 'class="verdict failed"' in page.read_text()


@pytest.mark.long
def test_run_without_a_judged_case_fails_the_gate(tmp_path: Path) -> None:
    home = tmp_path / "home"
    suite = tmp_path / "gate.yaml"
    suite.write_text(GATED.replace("repeat: 4", "repeat: 1"))
    assert run(str(suite), home=home).code == 0
    subprocess.run([SPBENCH, "baseline", "set", "main", "--home", str(home)], check=True)
    # From one launch, a noisy case is not judged, even if its time differs on a busy machine.
    path = home / "baselines" / "main.json"
    path.write_text(path.read_text().replace('"noisy": null', '"noisy": "as if"'))
    result = run(str(suite), "--baseline", "main", "-q", home=home)
    assert result.code == result.report["run"]["exit_code"] == 6
    assert result.report["run"]["verdict"] == "failed"
    assert "Not judged, too few launches (1 in a, 1 in b, 4 per side needed): a." in result.stdout
    assert "With fewer launches, noisy cases are never judged." in result.stdout
    last_lines = result.stdout.splitlines()[-2:]
    assert last_lines[0] == "against baseline main: 0 of 1 case judged, 1 not judged"
    assert last_lines[1] == "error: no case was judged against main"
    options = ("--baseline", "main", "--fail-on", "never", "-q")
    result_without_gate = run(str(suite), *options, home=home)
    assert result_without_gate.code == 0
    assert result_without_gate.stdout.endswith(
        "against baseline main: 0 of 1 case judged, 1 not judged\n"
    )


def test_command_prints_the_launched_commands(mixed_run: RunResult) -> None:
    process = subprocess.run(
        [SPBENCH, "command", MIXED, "--home", str(mixed_run.home)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    lines = process.stdout.splitlines()
    for number in (1, 2, 3):
        argv = find_run_folder(mixed_run).read_json(f"jobs/{number}/argv.json")["argv"]
        assert any(line.endswith(shlex.join(argv)) for line in lines)


def test_ranks_have_the_environment_of_their_case(mixed_run: RunResult) -> None:
    for job, colour in ((1, "blue"), (3, "red $HOME; it's")):
        assert "COLOUR" in find_run_folder(mixed_run).read_json(f"jobs/{job}/argv.json")["argv"]
        assert find_run_folder(mixed_run).read_json(f"jobs/{job}/env.json")["COLOUR"] == colour


def test_token_is_in_no_file_and_no_argument(mixed_run: RunResult) -> None:
    hellos = [event for event in mixed_run.events if event["event"] == "hello"]
    assert {event["token"] for event in hellos} == {"shown"}
    text = "".join(path.read_text() for path in find_run_folder(mixed_run).path.rglob("*.json"))
    assert "SPBENCH_TOKEN" not in text


def test_json_is_the_only_output_on_stdout(tmp_path: Path) -> None:
    process = subprocess.run(
        [SPBENCH, "run", MIXED, "-k", "narrow", "--json", "-", "--no-samples"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"SPBENCH_HOME": str(tmp_path)},
    )
    report = json.loads(process.stdout)
    jsonschema.validate(report, report_schema())
    assert report["cases"][0]["samples"] == {}
    assert process.returncode == 0, process.stderr
    assert "passed" in process.stderr


PRINT_IMPORTS = """
import json, sys
from spbench.__main__ import main
sys.argv = ["spbench", *sys.argv[1:]]
try:
    main()
finally:
    print("\\n" + json.dumps(sorted({"torch", "mpi4py", "numpy", "textual"} & set(sys.modules))))
"""


def test_controller_imports_neither_torch_nor_mpi(tmp_path: Path) -> None:
    arguments = [
        "run",
        "suites/smoke.yaml",
        "--case",
        "link",
        "--headless",
        "--home",
        str(tmp_path),
    ]
    output = run_python(PRINT_IMPORTS, *arguments)
    assert "passed: 1 passed" in output
    assert json.loads(output.splitlines()[-1]) == []


@pytest.mark.parametrize("allocator", ["system", "tcmalloc"])
def test_report_names_the_allocator_of_the_ranks(tmp_path: Path, allocator: str) -> None:
    result = run(
        MIXED, "-k", "narrow", "--set", f"launch.allocator={allocator}", home=tmp_path / "home"
    )
    if result.code == 3 and "no libtcmalloc" in result.stderr:
        pytest.skip("libtcmalloc-minimal4 is not installed")
    name = result.report["environment"]["ranks"]["allocator"]
    assert name.startswith("glibc" if allocator == "system" else allocator)
