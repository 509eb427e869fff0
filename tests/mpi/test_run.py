"""Whole runs on real ranks: the report, the order of cases, what `command` prints."""

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
def mixed(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(MIXED, home=tmp_path_factory.mktemp("mixed") / "home")


def folder_of(ended: RunResult) -> RunFolder:
    (path,) = (ended.home / "runs").iterdir()
    return RunFolder(path)


def test_the_halo_suite_passes_on_four_ranks_with_every_check(halo: RunResult) -> None:
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


def test_the_lines_in_a_pipe_fit_and_each_row_has_a_time_with_its_unit(halo: RunResult) -> None:
    lines = [line for line in halo.stdout.splitlines() if not line.startswith("report: ")]
    assert max(map(len, lines)) <= 120
    rows = [line for line in lines if re.match(r"\[ *\d+/12\] ✓ passed", line)]
    assert len(rows) == len(halo.report["cases"])
    for row in rows:
        assert re.search(r"  \d{1,3}(\.\d+)? (ns|us|ms|s)  ", row), row
    assert not re.search(r"\d[eE][+-]\d", halo.stdout)
    assert sum(line.startswith("next: ") for line in lines[-2:]) == 1


def test_an_ended_run_tells_its_counts_and_the_index_its_launches(halo: RunResult) -> None:
    cases = halo.report["cases"]
    assert folder_of(halo).read_json("run.json")["counts"] == {"passed": len(cases)}
    case = cases[0]
    median = case["medians"]["time_ms"]
    with sqlite3.connect(halo.home / "index.sqlite") as index:
        rows = index.execute(
            "SELECT median FROM launches WHERE case_id = ? AND metric = 'time_ms'", (case["id"],)
        )
        assert [value for (value,) in rows] == median


def test_one_job_runs_all_cases_that_can_share_it(halo: RunResult) -> None:
    assert {case["launch"]["job"] for case in halo.report["cases"]} == {1}


def test_a_slow_iteration_is_the_slowest_ranks(halo: RunResult) -> None:
    samples: dict[tuple[str, int], list[float]] = {}
    for event in halo.events:
        if event["event"] == "samples" and event["metric"] == "time_ms":
            samples.setdefault((event["case"], event["rank"]), []).extend(event["values"])
    for case in halo.report["cases"]:
        columns = zip(*(samples[case["id"], rank] for rank in range(4)), strict=True)
        assert case["samples"]["time_ms"] == [[max(column) for column in columns]]


def test_the_events_replay_to_the_same_report(halo: RunResult) -> None:
    assert build_report(folder_of(halo).replay()) == halo.report
    assert folder_of(halo).read_json("report.json") == halo.report


def test_the_report_keeps_the_files_order_whatever_jobs_there_are(mixed: RunResult) -> None:
    cases = mixed.report["cases"]
    assert [case["id"] for case in cases] == ["wide", "narrow", "wide-again", "strict"]
    # The two repeats that are left of narrow come when each job has had its turn.
    assert [case["launch"]["job"] for case in cases] == [1, 5, 1, 3]


def test_a_broken_expectation_fails_the_run(mixed: RunResult) -> None:
    assert mixed.code == 1
    assert mixed.statuses["strict"] == "failed"
    (broken,) = mixed.case("strict")["expectations"]
    assert broken["status"] == "failed"
    assert broken["value"] > 0
    assert mixed.case("narrow")["expectations"][0]["status"] == "passed"


def test_repeats_share_an_id_and_keep_their_samples_apart(mixed: RunResult) -> None:
    case = mixed.case("narrow")
    assert [len(samples) for samples in case["samples"]["time_ms"]] == [5, 5, 5]
    assert case["metrics"]["time_ms"]["n"] == 15
    assert case["metrics"]["latency_us"]["n"] == 3


def test_each_repeat_is_a_launch_of_its_own(mixed: RunResult) -> None:
    case = mixed.case("narrow")
    assert case["launches"] == [2, 4, 5]
    assert len(case["medians"]["time_ms"]) == len(case["medians"]["latency_us"]) == 3
    assert mixed.case("wide")["launches"] == [1]


def test_repeats_run_together_where_the_suite_says_so_and_end_with_their_case(
    tmp_path: Path,
) -> None:
    together = run(MIXED, "--set", "order=together", "-k", "narrow", home=tmp_path / "together")
    assert together.case("narrow")["launches"] == [1]
    assert [len(samples) for samples in together.case("narrow")["samples"]["time_ms"]] == [5, 5, 5]
    ended = run(MIXED, "-k", "narrow", "--inject", "raise@narrow", home=tmp_path / "raises")
    assert ended.statuses == {"narrow": "error"}
    assert ended.case("narrow")["launches"] == [1]


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


def test_no_repeat_runs_twice_after_a_fault_and_some_repeat_until_they_are_known(
    tmp_path: Path,
) -> None:
    suite = tmp_path / "repeated.yaml"
    suite.write_text(REPEATED)
    ended = run(str(suite), "--inject", "raise@broken", home=tmp_path / "home")
    assert ended.statuses == {"whole": "passed", "broken": "error", "on": "passed"}
    whole = ended.case("whole")
    on = ended.case("on")
    assert [len(samples) for samples in whole["samples"]["time_ms"]] == [5, 5]
    assert whole["launches"][0] == 1
    assert on["until"]["why"] == "interval"
    assert on["until"]["width"] <= 0.9
    assert len(on["launches"]) >= 6
    assert f"it ran {len(on['launches'])} times: the 95 % interval of its median" in ended.stdout
    assert build_report(folder_of(ended).replay()) == ended.report
    ended.assert_no_event_missing()


@pytest.mark.long
def test_a_run_is_held_against_a_baseline_at_its_end(tmp_path: Path) -> None:
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
    ended = run(str(suite), "--baseline", str(path), "--html", str(page), home=home)
    assert ended.code == ended.report["run"]["exit_code"] == 1
    assert re.search(r"^▼ worse  a .* [num]s .*x  .* to ", ended.stdout, re.MULTILINE)
    jsonschema.validate(ended.report, report_schema())
    [pair] = ended.report["comparison"]["cases"]
    assert pair["rows"][0]["outcome"] == "worse"
    assert "against baseline main: 1 of 1 case judged (1 worse)" in ended.stdout
    assert "Comparison with the baseline" in page.read_text()
    assert 'class="verdict failed"' in page.read_text()


@pytest.mark.long
def test_a_run_of_which_nothing_is_judged_is_no_silent_pass(tmp_path: Path) -> None:
    home = tmp_path / "home"
    suite = tmp_path / "gate.yaml"
    suite.write_text(GATED.replace("repeat: 4", "repeat: 1"))
    assert run(str(suite), home=home).code == 0
    subprocess.run([SPBENCH, "baseline", "set", "main", "--home", str(home)], check=True)
    # A noisy case is not judged from one launch, however much its time differs on a busy machine.
    path = home / "baselines" / "main.json"
    path.write_text(path.read_text().replace('"noisy": null', '"noisy": "as if"'))
    ended = run(str(suite), "--baseline", "main", "-q", home=home)
    assert ended.code == ended.report["run"]["exit_code"] == 6
    assert ended.report["run"]["verdict"] == "failed"
    assert "Not judged, too few launches (1 in a, 1 in b, 4 per side needed): a." in ended.stdout
    assert "With fewer launches, noisy cases are never judged." in ended.stdout
    last = ended.stdout.splitlines()[-2:]
    assert last[0] == "against baseline main: 0 of 1 case judged, 1 not judged"
    assert last[1] == "error: no case was judged against main"
    words = ("--baseline", "main", "--fail-on", "never", "-q")
    never = run(str(suite), *words, home=home)
    assert never.code == 0
    assert never.stdout.endswith("against baseline main: 0 of 1 case judged, 1 not judged\n")


def test_command_prints_what_was_run(mixed: RunResult) -> None:
    printed = subprocess.run(
        [SPBENCH, "command", MIXED, "--home", str(mixed.home)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    lines = printed.stdout.splitlines()
    for number in (1, 2, 3):
        argv = folder_of(mixed).read_json(f"jobs/{number}/argv.json")["argv"]
        assert any(line.endswith(shlex.join(argv)) for line in lines)


def test_a_ranks_environment_is_the_cases(mixed: RunResult) -> None:
    for job, colour in ((1, "blue"), (3, "red $HOME; it's")):
        assert "COLOUR" in folder_of(mixed).read_json(f"jobs/{job}/argv.json")["argv"]
        assert folder_of(mixed).read_json(f"jobs/{job}/env.json")["COLOUR"] == colour


def test_the_token_is_in_no_file_and_no_word(mixed: RunResult) -> None:
    hellos = [event for event in mixed.events if event["event"] == "hello"]
    assert {event["token"] for event in hellos} == {"shown"}
    text = "".join(path.read_text() for path in folder_of(mixed).path.rglob("*.json"))
    assert "SPBENCH_TOKEN" not in text


def test_json_on_stdout_stands_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [SPBENCH, "run", MIXED, "-k", "narrow", "--json", "-", "--no-samples"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"SPBENCH_HOME": str(tmp_path)},
    )
    report = json.loads(done.stdout)
    jsonschema.validate(report, report_schema())
    assert report["cases"][0]["samples"] == {}
    assert done.returncode == 0, done.stderr
    assert "passed" in done.stderr


IMPORTED = """
import json, sys
from spbench.__main__ import main
sys.argv = ["spbench", *sys.argv[1:]]
try:
    main()
finally:
    print("\\n" + json.dumps(sorted({"torch", "mpi4py", "numpy", "textual"} & set(sys.modules))))
"""


def test_a_console_that_runs_ranks_imports_neither_torch_nor_mpi(tmp_path: Path) -> None:
    words = ["run", "suites/smoke.yaml", "--case", "link", "--headless", "--home", str(tmp_path)]
    printed = run_python(IMPORTED, *words)
    assert "passed: 1 passed" in printed
    assert json.loads(printed.splitlines()[-1]) == []


@pytest.mark.parametrize("asked", ["system", "tcmalloc"])
def test_the_report_names_the_allocator_that_the_ranks_have_loaded(
    tmp_path: Path, asked: str
) -> None:
    ended = run(MIXED, "-k", "narrow", "--set", f"launch.allocator={asked}", home=tmp_path / "home")
    if ended.code == 3 and "no libtcmalloc" in ended.stderr:
        pytest.skip("libtcmalloc-minimal4 is not installed")
    name = ended.report["environment"]["ranks"]["allocator"]
    assert name.startswith("glibc" if asked == "system" else asked)
