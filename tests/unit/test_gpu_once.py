"""The command for a GPU machine with a time limit: steps, execution and results."""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from benchmarks.gpu_once import __main__ as command
from benchmarks.gpu_once import session as sessions
from benchmarks.gpu_once.rank_changes import delay_copies
from benchmarks.gpu_once.results import (
    Status,
    build_case_rows,
    collect_machine_facts,
    judge_step,
    merge_results,
    render_page,
)
from benchmarks.gpu_once.session import Session
from benchmarks.gpu_once.steps import FIGURES, FOLDER, GPU_SUITE, STEPS, Step, SuiteRun

from spbench.launch.gpu_needs import needs_exclusive_gpu, needs_gpu
from spbench.suites.loader import load_suite_file
from spbench.suites.select import select_matching
from spbench_core.events.gpu_readings import GpuReading
from support.paths import ROOT

pytestmark = pytest.mark.slow

RUNS = [step.suite for step in STEPS if step.suite is not None]


def select_cases(run, expression):
    cases = load_suite_file(ROOT / run.path).cases
    return list(select_matching(cases, expression)) if expression else list(cases)


# The steps and their cases


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.select or run.path)
def test_selections_have_cases_that_share_a_gpu(run):
    cases = select_cases(run, run.select)
    assert cases
    assert all(needs_gpu(case) and not needs_exclusive_gpu(case) for case in cases)
    if run.path == GPU_SUITE:
        assert {case.name.partition("-")[0] for case in cases} == {"shared"}


def test_steps_cover_each_case_that_one_gpu_can_run():
    runs = [run for run in RUNS if run.path == GPU_SUITE and "--inject" not in run.options]
    covered = {case.id for run in runs for case in select_cases(run, run.select)}
    assert covered == {
        case.id for case in select_matching(load_suite_file(ROOT / GPU_SUITE).cases, "shared")
    }


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.select or run.path)
def test_rehearsal_runs_some_cases_of_each_selection(run):
    arguments = run.build_command(60, ROOT / "report.json", rehearse=True)
    expression = arguments[arguments.index("-k") + 1] if "-k" in arguments else ""
    case_ids = {case.id for case in select_cases(run, expression)}
    assert case_ids
    assert case_ids <= {case.id for case in select_cases(run, run.select)}


def test_steps_with_faults_expect_failure():
    for step in STEPS:
        has_fault = step.suite is not None and "--inject" in step.suite.options
        assert step.exit_code == (1 if has_fault else 0)


def test_budget_of_a_run_ends_before_its_step():
    arguments = SuiteRun(FIGURES).build_command(50, ROOT / "report.json", rehearse=False)
    assert arguments[arguments.index("--budget") + 1] == "38s"
    assert "-k" not in arguments


def test_rejects_unknown_step_and_lists_known_ones(messages):
    with messages.raises(SystemExit):
        command.main(["halo"])


# Execution of steps


@pytest.fixture
def session(tmp_path):
    session = Session(
        tmp_path / "output", 30, rehearse=False, min_step_seconds=0.1, kill_seconds=0.5
    )
    yield session
    session.close()


def make_shell_step(name, text, seconds=10.0, **fields):
    return Step(name, seconds, ("sh", "-c", text), **fields)


def test_continues_after_a_failed_step(session, tmp_path, messages):
    session.run(make_shell_step("bad", "echo broken; exit 3"))
    session.run(make_shell_step("good", "echo whole"))
    assert [result.status for result in session.results] == [Status.FAILED, Status.PASSED]
    messages.check(session.results[0].detail)
    log = (tmp_path / "output/log.txt").read_text()
    assert "broken\n" in log
    assert "whole\n" in log
    messages.check((tmp_path / "output/summary.txt").read_text())


def test_time_limit_stops_a_step_and_its_children(session, tmp_path):
    start = time.monotonic()
    result = session.run(make_shell_step("slow", f"sleep 60 & echo $! >{tmp_path}/pid; wait", 0.5))
    assert result.status == Status.TIMEOUT
    assert time.monotonic() - start < 10
    status = Path(f"/proc/{int((tmp_path / 'pid').read_text())}/status")
    assert not status.exists() or "zombie" in status.read_text()


def test_kills_a_step_that_ignores_the_first_signal(session):
    result = session.run(
        make_shell_step("stubborn", "trap '' TERM; while :; do sleep 0.1; done", 0.5)
    )
    assert result.status == Status.TIMEOUT


def test_skips_a_step_without_remaining_time(tmp_path):
    session = Session(tmp_path, 5, rehearse=False)
    result = session.run(make_shell_step("late", "true"))
    session.close()
    assert (result.status, result.detail) == (Status.SKIPPED, "no time is left")


def test_step_with_missing_program_is_skipped_or_fails(session):
    assert (
        session.run(make_shell_step("a", "true", needs="no-such-program")).status == Status.SKIPPED
    )
    failed = session.run(Step("b", 10, ("no-such-program",)))
    assert (failed.status, failed.detail) == (Status.FAILED, "exit 127, expected 0; ")


def test_step_gets_variables_and_changes_of_its_mode(tmp_path):
    step = Step(
        "show",
        10,
        ("sh", "-c", "env"),
        environment={"OF_CUDA": "1"},
        changes=("a.module=b.module:change",),
    )
    for rehearse in (False, True):
        session = Session(tmp_path / str(rehearse), 300, rehearse=rehearse)
        session.run(step)
        session.close()
        log = (tmp_path / str(rehearse) / "log.txt").read_text()
        assert ("OF_CUDA=1" in log) != rehearse
        assert ("standins.late_gpu:take_late_device" in log) == rehearse
        assert "a.module=b.module:change\n" in log


def test_interrupt_keeps_results_of_earlier_steps(tmp_path, monkeypatch):
    exit_codes = iter([0])

    def execute_or_interrupt(self, *_):
        try:
            return next(exit_codes)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(Session, "_execute", execute_or_interrupt)
    output = ["--installed", "--output", str(tmp_path)]
    assert command.main(["facts", "doctor", *output]) == 130
    results = json.loads((tmp_path / "results.json").read_text())
    assert [(step["name"], step["status"]) for step in results["steps"]] == [("facts", "passed")]
    assert set(results["machine"]) == {"python", "torch"}
    assert (tmp_path / "summary.txt").exists()
    with tarfile.open(tmp_path / "reports.tar.gz") as archive:
        assert archive.getnames() == ["reports"]


def test_failed_setup_ends_the_command_with_a_remedy(tmp_path, monkeypatch, messages):
    monkeypatch.setattr(sessions, "SETUP", tmp_path / "none")
    with messages.raises(SystemExit):
        command.main(["facts", "--output", str(tmp_path)])


# Results of steps

REPORT = {
    "environment": {"spbench": "0.2", "kernel": "6.1"},
    "cases": [
        {
            "id": "halo[dtype=fp32]",
            "name": "halo",
            "benchmark": "halo.exchange",
            "np": 4,
            "status": "passed",
            "reason": None,
            "metrics": {"time_ms": {"value": 0.123456, "unit": "ms", "p50": 1}},
            "limits": {"copy": {"value": 0.1, "unit": "ms", "measured_by": "x"}},
            "choices": {"device": {"value": "cuda:0 NVIDIA H100", "reason": "driver 580"}},
            "launch": {"version": "Open MPI 5.0.11"},
        },
        {
            "id": "links",
            "name": "links",
            "benchmark": "link.pingpong",
            "np": 2,
            "status": "failed",
            "reason": "check echo failed | on rank 1",
        },
    ],
}


@pytest.mark.parametrize(
    ("expected", "exit_code", "status"),
    [
        (0, 0, Status.PASSED),
        (0, 1, Status.FAILED),
        (1, 1, Status.FAILED),  # one of the cases passed with the fault
        (1, 0, Status.FAILED),
        (1, 4, Status.FAILED),
        (0, None, Status.TIMEOUT),
        (0, 124, Status.FAILED),  # of a program that is not a run of a suite
        (0, -9, Status.FAILED),
    ],
)
def test_step_passes_only_with_the_expected_exit_code(expected, exit_code, status, messages):
    result = judge_step(Step("a", 1, exit_code=expected), exit_code, 1.0, REPORT)
    assert result.status == status
    messages.check(result.detail)


def test_run_without_remaining_budget_is_a_timeout():
    step = Step("a", 1, suite=SuiteRun(FIGURES))
    assert judge_step(step, 124, 1.0, REPORT).status == Status.TIMEOUT


def test_fault_step_passes_if_every_case_failed():
    report = {"cases": [REPORT["cases"][1]]}
    assert judge_step(Step("a", 1, exit_code=1), 1, 1.0, report).status == Status.PASSED
    assert judge_step(Step("a", 1, exit_code=1), 1, 1.0, {}).status == Status.FAILED


@pytest.mark.parametrize(("printed", "status"), [("seen", Status.PASSED), ("", Status.FAILED)])
def test_step_without_evidence_of_its_ranks_fails(session, printed, status):
    folder = session._work / "home/runs/1/jobs/1"
    folder.mkdir(parents=True)
    (folder / "stderr").write_text(f"{printed}\n")
    assert session.run(make_shell_step("a", "true", evidence="seen")).status == status


def test_page_has_machine_steps_and_cases():
    steps = [
        {"name": name, "status": "failed", "seconds": 12.3, "detail": "a | b", "cases": cases}
        for name, cases in (
            ("halos", build_case_rows(REPORT)),
            ("fault-x", build_case_rows(REPORT)),
        )
    ]
    page = render_page(
        {"date": "2026-01-02", "machine": collect_machine_facts(REPORT), "steps": steps}
    )
    assert "- device: cuda:0 NVIDIA H100\n- about: driver 580\n" in page
    assert "- launcher: Open MPI 5.0.11\n" in page
    assert "| halos | failed | 12 s | a / b |\n" in page
    row = "| `halo[dtype=fp32]` | halos | halo.exchange | 4 | passed | 0.123 ms | 0.1 ms | - |\n"
    assert page.count(row) == 1, "cases with a planted fault are no results"
    assert (
        "| `links` | halos | link.pingpong | 2 | failed | - | - | check echo failed / on rank 1 |"
        in page
    )


def test_last_result_of_a_step_wins():
    first = {"date": "a", "steps": [{"name": "x", "status": 1}, {"name": "y", "status": 1}]}
    second = {"date": "b", "steps": [{"name": "x", "status": 2}]}
    assert merge_results([first, second]) == {
        "date": "b",
        "steps": [{"name": "x", "status": 2}, {"name": "y", "status": 1}],
    }


# Changes of modules in ranks


def test_module_is_changed_on_import(tmp_path):
    (tmp_path / "changed.py").write_text("value = 1\n")
    (tmp_path / "changer.py").write_text("def change(module):\n    module.value += 1\n")
    folders = os.pathsep.join((str(ROOT / FOLDER / "rank_site"), str(tmp_path)))
    completed = subprocess.run(
        [sys.executable, "-c", "import changed, json; print(changed.value)"],
        env={"PYTHONPATH": folders, "GPU_ONCE_CHANGES": "changed=changer:change other=x:y"},
        capture_output=True,
        text=True,
    )
    assert (completed.stdout, completed.stderr) == ("2\n", "")


def test_changes_name_existing_modules_and_functions():
    changes = {change for step in STEPS for change in (*step.changes, *step.stand_in)}
    for change in changes:
        module, changer = change.split("=")
        source, function = changer.split(":")
        assert importlib.util.find_spec(module) is not None
        assert callable(getattr(importlib.import_module(source), function))


def test_copy_stream_sleeps_before_each_use(monkeypatch):
    torch = pytest.importorskip("torch")
    calls = []

    class Streams:
        @contextmanager
        def use_copy_stream(self):
            calls.append("enter")
            yield
            calls.append("leave")

    module = ModuleType("streams")
    vars(module)["CudaStreams"] = Streams
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: calls.append("sleep"), raising=False)
    delay_copies(module)
    with Streams().use_copy_stream():
        calls.append("copy")
    assert calls == ["enter", "sleep", "copy", "leave"]


def test_delays_the_copy_stream_of_the_product(monkeypatch):
    streams = pytest.importorskip("spbench_parallel.device.streams")
    monkeypatch.setattr(streams.CudaStreams, "use_copy_stream", streams.CudaStreams.use_copy_stream)
    before = streams.CudaStreams.use_copy_stream
    delay_copies(streams)
    assert streams.CudaStreams.use_copy_stream is not before


@pytest.fixture
def gpu_load():
    pytest.importorskip("torch")
    pytest.importorskip("spbench_parallel")
    return importlib.import_module("benchmarks.gpu_once.gpu_load")


def test_values_that_nvml_does_not_report_are_not_checked(gpu_load, monkeypatch, capsys):
    import torch

    from spbench_parallel.device import gpus

    cpu = torch.device("cpu")
    monkeypatch.setattr(torch, "device", lambda *_: cpu)
    monkeypatch.setattr(gpus, "read_pci_address", lambda _: "0000:81:00.0")
    monkeypatch.setattr(gpu_load, "keep_busy", nullcontext)
    monkeypatch.setattr(gpu_load, "LOAD_SECONDS", 0.0)
    monkeypatch.setattr(gpu_load, "ALLOCATED_BYTES", 8)
    meter = SimpleNamespace(facts=GpuReading(0, address="0000:81:00.0"), read=lambda: GpuReading(0))
    assert list(gpu_load.compare_with_torch([meter])) == []
    assert capsys.readouterr().out.count("not checked: ") == 2


def test_error_of_the_multiplying_thread_is_raised(gpu_load, monkeypatch):
    import torch

    def fail(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu_load, "SIZE", 2)
    monkeypatch.setattr(torch, "mm", fail)
    with pytest.raises(RuntimeError, match="out of memory"), gpu_load.keep_busy("cpu"):
        pass


def test_size_of_copied_files_is_limited(monkeypatch, capsys, tmp_path, messages):
    monkeypatch.setattr(command, "ROOT", tmp_path)
    (tmp_path / ".whl").mkdir()
    (tmp_path / ".whl/a.whl").write_bytes(bytes(3 << 20))
    (tmp_path / "file").write_bytes(bytes(2 << 20))

    def run(arguments, **_):
        return SimpleNamespace(returncode=0, stdout="file\0gone\0")

    monkeypatch.setattr(subprocess, "run", run)
    assert command.prepare() == 0
    messages.check(capsys.readouterr().out)
    assert command.prepare(max_bytes=4 << 20) == 1
