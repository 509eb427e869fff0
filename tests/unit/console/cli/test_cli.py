"""Tests of the command line: arguments, suites, rejected runs and recorded runs."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from typer.main import get_command

from spbench import __version__
from spbench.cli.app import app
from spbench.cli.runs.run import parse_time
from spbench.errors import ExitCode, UsageError
from spbench.report.model import report_schema
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.default_texts import list_default_texts
from spbench_core.catalog.planted_fault import COMMON_FAULTS
from support.commands import CommandResult
from support.paths import HOSTFILES, ROOT, SUITES
from support.sample_events import (
    case_judged,
    make_complete_run,
    make_started_run,
    record_run,
    run_end,
    run_start,
)

HALO = str(SUITES / "halo.yaml")


def run_spbench_process(*args, **environ):
    """Run a command in a child process."""
    done = subprocess.run(
        [sys.executable, "-m", "spbench", *args],
        capture_output=True,
        text=True,
        env=os.environ | environ,
        cwd=ROOT,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


# Arguments


@pytest.mark.parametrize("command", sorted(get_command(app).commands))  # type: ignore[attr-defined]
def test_narrowed_app_has_the_same_help(command, spbench, monkeypatch):
    single = spbench(command, "--help")
    monkeypatch.setattr("spbench.cli.app._narrow_app", lambda args: app)
    assert spbench(command, "--help") == single
    assert (single.status, single.err) == (0, "")
    assert f"spbench {command}" in single.out


@pytest.mark.parametrize("args", [["--version"], ["--version", "run"], ["--version", "-h"]])
def test_version_ends_the_command(spbench, args):
    done = spbench(*args)
    assert (done.status, done.out, done.err) == (0, f"spbench {__version__}\n", "")


def test_process_prints_the_version():
    done = run_spbench_process("--version")
    assert (done.status, done.out, done.err) == (0, f"spbench {__version__}\n", "")


@pytest.mark.parametrize("args", [[], ["results"]])
def test_missing_command_prints_help_to_stderr(spbench, args):
    done = spbench(*args)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("Usage: spbench")
    assert "\n  " in done.err


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["run", "--help"], ["results", "list", "-h"]])
def test_help_goes_to_stdout(spbench, args):
    done = spbench(*args)
    assert (done.status, done.err) == (0, "")
    assert "Usage: spbench" in done.out


def test_help_lists_the_exit_codes(spbench):
    lines = [
        line.split() for line in spbench("--help").out.partition("Exit codes:")[2].splitlines()
    ]
    codes = {int(word.rstrip(",")) for cells in lines for word in cells[:2] if word[:1].isdigit()}
    assert codes == set(ExitCode)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["rnu"], "unknown command rnu (did you mean run?)"),
        (["--verbos"], "--verbos"),
        (["run"], "name a suite"),
        (["run", HALO, "--headles"], "unknown option --headles (did you mean --headless?)"),
        (["run", HALO, "more.yaml"], "unexpected more.yaml"),
        (["run", HALO, "--set"], "--set needs a value"),
        (["validate"], "missing argument SUITE"),
        (["results", "lst"], "unknown command lst (did you mean list?)"),
        (["doctor", "--np", "many"], "--np: must be a valid integer"),
        (["run", HALO, "--retries", "101"], "--retries: must be less than or equal to 100"),
        (
            ["compare", "a", "b", "--fail-on", "no"],
            "--fail-on: 'no' is not one of 'worse', 'any', 'never'",
        ),
        (["plan", "p.json"], "missing option --global-batch-size"),
        (["results", "--"], "missing command"),
        (["schema", "reports"], "reports"),
        (["benchmarks", "halo.exchang"], "did you mean halo.exchange?"),
        (["completion", "tcsh"], "tcsh"),
        (["results", "show"], "last"),
    ],
)
def test_invalid_argument_is_a_one_line_error(spbench, args, message):
    done = spbench(*args)
    assert (done.status, done.out) == (2, "")
    assert done.error_line.startswith("spbench: error: ")
    assert message in done.error_line


@pytest.mark.slow
def test_process_exits_with_the_status_of_the_command():
    done = run_spbench_process("run", HALO, "--headles")
    assert (done.status, done.out) == (2, "")
    assert "--headles" in done.error_line


# Suites and the catalog


def test_validate_counts_cases(spbench):
    done = spbench("validate", HALO, HALO)
    assert (done.status, done.err) == (0, "")
    assert done.out == f"{HALO}: 12 cases, no errors\n" * 2


def test_validate_lists_cases_and_applies_overrides(spbench):
    done = spbench("validate", HALO, "-v", "--set", "halo_len=2")
    assert "  small[slice_method=vertical]: halo.exchange, 4 ranks\n" in done.out
    assert "halo_len=" not in done.out


def test_validate_reports_all_errors_with_positions(spbench, tmp_path, messages):
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        "schema: spbench.suite/1\nname: s\ncases:\n"
        "  - {name: a, benchmark: halo.exchang}\n"
        "  - {name: b, benchmark: halo.exchange, params: {halo_length: 1}}\n"
    )
    done = spbench("validate", str(bad), HALO)
    assert done.status == 2
    first, second = done.err.splitlines()
    assert first.startswith(f"{bad}:4:")
    assert "error: " in first
    messages.check(first)
    assert second.startswith(f"{bad}:5:")
    messages.check(second)
    assert done.out == f"{HALO}: 12 cases, no errors\n"


def test_missing_suite_hides_no_errors_of_another(spbench, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        "schema: spbench.suite/1\nname: s\ncases: [{name: a, benchmark: halo.exchang}]\n"
    )
    done = spbench("validate", "missing.yaml", str(bad), HALO)
    assert done.status == 2
    missing, wrong = done.err.splitlines()
    assert missing.startswith("spbench: error: ")
    assert "missing.yaml" in missing
    assert wrong.startswith(f"{bad}:3:")
    assert done.out == f"{HALO}: 12 cases, no errors\n"


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_unreadable_suite_is_a_one_line_error(spbench, name):
    done = spbench("validate", name)
    assert done.status == 2
    assert name in done.error_line


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["suite", "report", "plan", "cluster", "profile"])
def test_schema_command_prints_json_schema(spbench, kind):
    done = spbench("schema", kind)
    assert (done.status, done.err) == (0, "")
    document = json.loads(done.out)
    jsonschema.Draft202012Validator.check_schema(document)
    assert f"spbench.{kind}/1" in done.out


def test_schema_path_is_printed(spbench):
    done = spbench("schema", "--path")
    assert (done.status, done.err) == (0, "")
    assert Path(done.out.strip()).read_text() == spbench("schema").out
    done = spbench("schema", "report", "--path")
    assert done.status == 2
    assert "is no file" in done.error_line


def test_benchmarks_are_listed_with_summaries(spbench):
    out = spbench("benchmarks").out
    lines = [line for line in out.splitlines() if not line.startswith(" ")]
    assert [line.split()[0] for line in lines] == list(BENCHMARKS)
    for entry in BENCHMARKS.values():
        assert entry.summary in " ".join(out.split())


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmark_description_is_complete(spbench, name):
    out = spbench("benchmarks", name).out
    entry = BENCHMARKS[name]
    for parts in (entry.params, entry.metrics):
        for part in parts:
            assert f"  {part.name} " in out
    for word in (*entry.checks, *entry.faults, *COMMON_FAULTS):
        assert word in out


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize("width", [80, 120])
def test_description_fits_the_terminal(spbench, monkeypatch, name, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for args in (["benchmarks"], ["benchmarks", name]):
        assert max(map(len, spbench(*args).out.splitlines())) <= width


@pytest.mark.parametrize(
    ("benchmark", "name", "default"),
    [
        ("halo.exchange", "num_spatial_parts", "4"),
        ("halo.exchange", "grid", "2x2"),
        ("halo.exchange", "device_ids", "all"),
        ("halo.compute", "halo_len", "1"),
        ("model.resnet", "num_spatial_parts", "4"),
        ("model.resnet", "slice_method", "square"),
        ("model.resnet", "memory_format", "contiguous"),
        ("model.resnet", "halo_D2", "auto"),
        ("kvstore.push_pull", "sharding", "hash"),
        ("allreduce.sweep", "max_bytes", "1MiB"),
        ("allreduce.sweep", "in_place", "off"),
        ("model.resnet", "depth", "110"),
        ("model.resnet", "learning_rate", "0.001"),
        ("model.resnet", "baseline", "on"),
        ("model.network", "weights", "random"),
        ("program.run", "env", ""),
        ("model.network", "network", ""),
    ],
)
def test_default_of_a_parameter_is_its_value_in_a_case(benchmark, name, default):
    assert list_default_texts(BENCHMARKS[benchmark])[name] == default


@pytest.mark.parametrize("name", BENCHMARKS)
def test_defaults_are_values_without_prose(spbench, name):
    text = " ".join(spbench("benchmarks", name).out.split())
    assert "(default" not in text
    assert ", default)" not in text
    assert not re.search(r"; else \w+ \[default", text)


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_calls_spbench(spbench, shell):
    done = spbench("completion", shell)
    assert (done.status, done.err) == (0, "")
    assert f"_SPBENCH_COMPLETE=complete_{shell}" in done.out


@pytest.mark.slow
@pytest.mark.parametrize(
    "environ",
    [
        {
            "_SPBENCH_COMPLETE": "complete_bash",
            "COMP_WORDS": "spbench res",
            "COMP_CWORD": "1",
        },
        {"_SPBENCH_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "spbench res"},
        {
            "_SPBENCH_COMPLETE": "complete_fish",
            "_TYPER_COMPLETE_ARGS": "spbench res",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
    ],
    ids=["bash", "zsh", "fish"],
)
def test_completion_requests_are_answered(environ):
    done = run_spbench_process(**environ)
    assert done.err == ""
    assert "results" in done.out
    assert "benchmarks" not in done.out


# Rejected runs


def test_empty_selection_exits_with_5_and_a_report(spbench, tmp_path, messages):
    path = tmp_path / "report.json"
    done = spbench("run", HALO, "-k", "nothing", "--json", str(path))
    assert (done.status, done.out) == (5, "")
    assert "-k 'nothing' selects none of the 12 cases" in done.error_line
    report = json.loads(path.read_text())
    jsonschema.validate(report, report_schema())
    assert report["cases"] == []
    messages.check(report["errors"])
    assert report["run"]["exit_code"] == 5
    assert report["run"]["argv"] == ["run", HALO, "-k", "nothing", "--json", str(path)]


def test_case_and_keyword_must_both_match(spbench):
    done = spbench("run", HALO, "--case", "small", "-k", "uneven")
    assert done.status == 5
    assert "-k 'uneven' selects none of the 3 cases" in done.error_line


@pytest.mark.parametrize("word", ["--bogus", "more.yaml"])
def test_run_with_unknown_arguments_writes_a_report(spbench, tmp_path, word):
    path = tmp_path / "report.json"
    done = spbench("run", HALO, "--json", str(path), word)
    assert (done.status, done.out) == (2, "")
    assert word in done.error_line
    report = json.loads(path.read_text())
    jsonschema.validate(report, report_schema())
    assert (report["cases"], report["run"]["exit_code"]) == ([], 2)
    assert word in report["errors"][0]


def test_unknown_option_before_json_leaves_no_report(spbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = spbench("run", HALO, "--bogus", "--json")
    assert done.status == 2
    assert list(tmp_path.iterdir()) == []


def test_dry_run_rejects_json(spbench, tmp_path):
    path = tmp_path / "report.json"
    done = spbench("run", HALO, "--dry-run", "--json", str(path))
    assert (done.status, done.out) == (2, "")
    assert "--dry-run runs nothing that --json could report" in done.error_line
    assert json.loads(path.read_text())["run"]["exit_code"] == 2


def test_dry_run_warns_of_too_many_ranks(spbench, monkeypatch, messages):
    pytest.importorskip("mpi4py")
    monkeypatch.setattr("spbench.engine.capacity.count_cores", lambda: 2)
    args = ("run", str(SUITES / "links.yaml"), "-k", "pair", "--set", "np=10")
    done = spbench(*args, "--dry-run")
    assert done.status == 0
    messages.check(done.err)
    assert spbench(*args, "--dry-run", "--oversubscribe").err == ""
    refused = spbench(*args)
    assert refused.status == 3
    assert refused.error_line.endswith("or add --oversubscribe")


def test_rejected_run_prints_only_json_to_stdout(spbench):
    done = spbench("run", HALO, "-k", "nothing", "--json", "-")
    assert json.loads(done.out)["run"]["verdict"] == "skipped"
    assert "selects none" in done.error_line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--hostfile", "missing.hosts"], "missing.hosts"),
        (["--hosts", "node["], "node["),
        (["--hostfile", "a", "--hosts", "b"], "--hostfile and --hosts"),
        (["--set", "halo_length=3"], "did you mean halo_len"),
        (["--set", "launch.timout=3"], "did you mean launch.timeout"),
        (["--set", "halo_len"], "halo_len"),
        (["--budget", "5x"], "--budget 5x"),
        (["--budget", "0"], "--budget 0"),
        (["--budget", ""], "--budget"),
        (["--inject", "slwo"], "did you mean slow?"),
        (["--inject", "slow@lrge"], "did you mean large"),
        (["--inject", "slow", "--inject", "raise@large"], "has the fault slow already"),
        (["--set", "halo_len=1", "--set", "halo_len=2"], "halo_len is set twice"),
        (["-k", "small", "-k", "large"], "-k takes one value, and is given 2 times"),
        (["--baseline", "a", "--baseline", "b"], "--baseline takes one value"),
        (["--junit", "a.xml", "--junit", "b.xml"], "--junit takes one value"),
        (["--launcher", "mpirum"], "mpirum"),
        (["-k", "small and"], "expected a word"),
        (["--case", "smal"], "did you mean small?"),
    ],
)
def test_run_rejects_invalid_options(spbench, home, tmp_path, args, message, monkeypatch):
    monkeypatch.chdir(tmp_path)  # --junit writes its report also if the command is refused
    path = tmp_path / "report.json"
    done = spbench("run", HALO, "--headless", "--json", str(path), *args)
    assert (done.status, done.out) == (2, "")
    assert message in done.error_line
    report = json.loads(path.read_text())
    jsonschema.validate(report, report_schema())
    assert (report["cases"], report["run"]["exit_code"]) == ([], 2)
    assert report["errors"]
    assert not home.exists()


def test_bad_line_of_a_hostfile_is_reported(spbench, tmp_path):
    hosts = tmp_path / "bad.hosts"
    hosts.write_text("node01 slots=many\n")
    done = spbench("run", HALO, "--hostfile", str(hosts))
    assert done.status == 2
    assert f"{hosts}:1" in done.error_line


def test_assumed_library_is_shown_and_not_run(spbench, home, messages):
    hosts = str(HOSTFILES / "mvapich2.hosts")
    args = ["--hostfile", hosts, "--launcher", "mpirun_rsh", "--assume", "mvapich2-2.3.7"]
    shown = spbench("command", HALO, *args)
    assert (shown.status, shown.err) == (0, "")
    assert "mpirun_rsh of MVAPICH2 2.3.7 (assumed, not run)" in shown.out
    printed = spbench("run", HALO, "--dry-run", *args).out.splitlines()
    [duration] = [line for line in printed if line.startswith("# duration: ")]
    assert duration.endswith("(estimated from the work, within a factor of 5)")
    assert sum(": about " in line for line in printed) == 12 + 1, "one for each case, and the sum"
    assert [line for line in printed if ": about " not in line] == shown.out.splitlines()
    refused = spbench("run", HALO, *args)
    assert refused.status == 2
    messages.check(refused.err)


def test_error_for_an_unknown_launcher_lists_choices(spbench, home):
    choices = "known are auto, mpirun_rsh, hydra, openmpi, srun"
    for name, hint in (("pbs", ""), ("openmp", " (did you mean openmpi?)")):
        done = spbench("run", HALO, "--launcher", name)
        assert (done.status, done.out) == (2, "")
        message = f"--launcher {name}: unknown launcher{hint}; {choices}"
        assert done.err.startswith(f"spbench: error: {message} (spbench script")


def test_missing_hostfile_is_reported_without_a_line(spbench, home, messages):
    done = spbench("run", HALO, "--hostfile", "nope.hosts")
    assert done.status == 2
    messages.check(done.err)


def test_missing_launcher_exits_with_3(spbench, home, tmp_path, monkeypatch):
    pytest.importorskip("mpi4py")
    path = tmp_path / "report.json"
    monkeypatch.setenv("PATH", "")
    done = spbench("run", HALO, "--launcher", "mpirun_rsh", "--json", str(path))
    assert (done.status, done.out) == (3, "")
    assert "launcher mpirun_rsh is not installed" in done.error_line
    report = json.loads(path.read_text())
    assert (report["cases"], report["run"]["exit_code"]) == ([], 3)
    assert not home.exists()


def test_broken_interpreter_exits_with_3(spbench, home):
    done = spbench("run", HALO, "--set", "launch.python=/missing/python", "--json", "-")
    assert done.status == 3
    assert "/missing/python cannot run" in done.error_line
    assert json.loads(done.out)["run"]["exit_code"] == 3
    assert not home.exists()


def test_rejection_is_reported_if_the_report_is_unwritable(spbench, tmp_path):
    (tmp_path / "file").write_text("")
    done = spbench("run", HALO, "-k", "nothing", "--json", str(tmp_path / "file" / "x.json"))
    assert done.status == 5
    unwritten, refused = done.err.splitlines()
    assert "x.json" in unwritten
    assert "nothing" in refused


@pytest.mark.parametrize(
    ("text", "number"), [("90", 90), ("90s", 90), ("5m", 300), ("1.5h", 5400), (" 2m ", 120)]
)
def test_budget_accepts_units(text, number):
    assert parse_time(text) == number


@pytest.mark.parametrize("text", ["", "0", "-5", "5d", "m", "1e3", "nan", "five", "1 m"])
def test_rejects_invalid_budget(text, messages):
    with messages.raises(UsageError):
        parse_time(text)


# Recorded runs


def record_unfinished_run(home):
    return record_run(
        home, [*make_started_run(), case_judged("a", "error", "rank 0 on node01: no")]
    )


def test_runs_are_listed_with_their_status(spbench, home):
    first = record_run(home, make_complete_run(), verdict="passed")
    host = socket.gethostname()
    second = record_run(home, [run_start()], console={"pid": 1, "host": host, "started": 1e9})
    lines = {
        line.split()[0]: line.split()[1:] for line in spbench("results", "list").out.splitlines()
    }
    assert lines == {
        "run": ["started", "status", "passed", "took", "suite", "host"],
        first.id: ["1970-01-01T00:16:40Z", "passed", "made-up", host],
        second.id: ["2001-09-09T01:46:40Z", "unfinished", "made-up", host],
    }


def test_list_of_no_runs_is_empty(spbench):
    done = spbench("results", "list")
    assert (done.status, done.out, done.err) == (0, "", "")


def test_show_prints_the_run_from_its_events(spbench, home):
    folder = record_run(home, make_complete_run(), verdict="passed")
    done = spbench("results", "show")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("status       case  ")
    assert "\n✓ passed     a " in done.out
    assert "2.00 ms" in done.out
    assert "All alike." in done.out
    assert "passed: 1 passed in" in done.out
    assert done.out.endswith(f"no report was written; events: {folder.events}\n")


def test_show_accepts_a_prefix_of_the_id(spbench, home):
    folder = record_run(home, make_complete_run())
    assert spbench("results", "show", folder.id[:-1]).out == spbench("results", "show").out


def test_home_option_selects_the_home(spbench, home, tmp_path):
    record_run(tmp_path / "other", make_complete_run())
    assert spbench("results", "show").status == 2
    assert spbench("results", "show", "--home", str(tmp_path / "other")).status == 0


def test_show_prints_an_unfinished_run(spbench, home):
    folder = record_unfinished_run(home)
    done = spbench("results", "show")
    assert (done.status, done.err) == (0, "")
    assert "✗ error      a" in done.out
    assert "rank 0 on node01: no" in done.out
    assert f"unfinished: the console ended before the run did; events: {folder.events}" in done.out


def test_torn_last_line_makes_a_run_unfinished(spbench, home):
    folder = record_run(home, [*make_complete_run()[:-1], run_end("failed", 1)])
    text = folder.events.read_bytes()
    folder.events.write_bytes(text[:-10])
    assert "unfinished: " in spbench("results", "show").out


@pytest.mark.parametrize("content", [None, b"", b'{"event":"run_st'])
def test_run_killed_at_its_start_is_unfinished(spbench, home, content):
    folder = record_run(home, [])
    folder.events.unlink()
    if content is not None:
        folder.events.write_bytes(content)
    done = spbench("results", "show")
    assert done.status == 0
    assert done.out.startswith("unfinished: ")


# Damaged folders


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "{",
        '{"console": 5, "suite": 7}',
        '{"console": {"started": "soon", "host": []}}',
        '{"console": {"started": 1e300}}',
        '{"console": {"started": Infinity}}',
        '{"verdict": {"a": 1}}',
        '{"verdict": ["passed"], "suite": {}}',
        "\x00\xff",
    ],
)
def test_damaged_folder_does_not_break_the_list(spbench, home, text):
    good = record_run(home, make_complete_run(), verdict="passed")
    bad = record_run(home, [run_start()])
    (bad.path / "run.json").write_text(text)
    done = spbench("results", "list")
    assert (done.status, done.err) == (0, "")
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert lines.keys() == {"run", good.id, bad.id}
    assert "passed" in lines[good.id]


@pytest.mark.parametrize(
    "line",
    [
        b"garbage\n",
        b"[1]\n",
        b"null\n",
        b"{}\n",
        b"\xff\n",
        b'{"event":"case_judged"}\n',
        b'{"event":"samples","case":"z","rank":0}\n',
        b'{"event":[],"time":1}\n',
    ],
)
def test_damaged_log_is_reported_with_its_position(spbench, home, line):
    folder = record_run(home, make_complete_run())
    lines = folder.events.read_bytes().splitlines(keepends=True)
    folder.events.write_bytes(b"".join([*lines[:3], line, *lines[3:]]))
    done = spbench("results", "show")
    assert (done.status, done.err) == (0, "")
    assert (
        f"{folder.events}:4: this is no event of a run; what it reported was left out" in done.out
    )
    assert "passed: 1 passed in" in done.out


@pytest.mark.parametrize(
    "args", [("results", "export"), ("compare", "last", "last"), ("results", "series", "a")]
)
def test_damaged_log_is_reported_on_stderr(spbench, home, args):
    folder = record_run(home, make_complete_run())
    with folder.events.open("a") as file:
        file.write("garbage\n")
    done = spbench(*args)
    assert done.status == 0
    notes = set(done.err.splitlines())
    assert len(notes) == 1
    assert "this is no event of a run; what it reported was left out" in notes.pop()


def test_rejects_a_log_without_its_beginning(spbench, home):
    folder = record_run(home, make_complete_run())
    lines = folder.events.read_bytes().splitlines(keepends=True)
    folder.events.write_bytes(b"".join(lines[1:]))
    done = spbench("results", "show")
    assert (done.status, done.out) == (2, "")
    assert done.error_line.startswith(
        f"spbench: error: the beginning of this run is lost: {folder.events}:1: "
    )


def test_unreadable_log_is_a_one_line_error(spbench, home):
    folder = record_run(home, make_complete_run())
    folder.events.unlink()
    folder.events.mkdir()
    done = spbench("results", "show")
    assert done.status != 0
    assert str(folder.events) in done.error_line


@pytest.mark.parametrize("library", ["openmpi-5.0", "mpich-4.2", "mvapich2-2.3.7", "mvapich-4.0"])
def test_each_launcher_prints_commands_of_programs(spbench, library):
    hosts = ("--hosts", "node[1-2]:2", "--oversubscribe")
    shown = spbench("command", "shipped:programs", "--assume", library, *hosts)
    assert (shown.status, shown.err) == (0, "")
    assert sum(line.endswith("count=2000") for line in shown.out.splitlines()) == 2
