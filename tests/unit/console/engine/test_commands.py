"""The commands that a suite's jobs are launched with, and those of their cases by hand."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from spbench.engine.commands import build_case_command, build_commands, format_commands
from spbench.engine.plan import Request, plan_run
from spbench.engine.run import Run
from spbench.errors import MissingError
from spbench.launch import jobs
from spbench.launch.mpi_probe import MpiLibrary
from spbench.record.state import RunState

SUITE = """\
schema: spbench.suite/1
name: two-jobs
launch: {{python: {python}, launcher: {launcher}, env: {{NAME: "a b"}}}}
cases:
  - {{name: pair, benchmark: link.pingpong, np: 2, matrix: {{iterations: [5, 6]}}}}
  - {{name: copy, benchmark: memory.copy, np: 1}}
"""


@pytest.fixture
def prepared(monkeypatch):
    """An item for each time that a job is prepared."""
    times = []

    def library(*_):
        times.append(1)
        return MpiLibrary("openmpi", "Open MPI v5.0.11")

    monkeypatch.setattr(jobs, "detect_mpi_library", library)
    return times


@pytest.fixture
def request_of(prepared, tmp_path, python_beside_mpirun):
    """Makes requests for the suite, beside an mpirun that only tells its version."""

    def make(launcher="openmpi"):
        path = tmp_path / "suite.yaml"
        path.write_text(SUITE.format(python=python_beside_mpirun, launcher=launcher))
        return Request(path, tmp_path / "home", {"PATH": ""})

    return make


def test_each_job_has_one_line_and_each_case_its_own_by_hand(request_of):
    first, second = build_commands(plan_run(request_of()))
    assert first.heading == "job 1: 2 ranks, 2 cases, Open MPI 5.0.11"
    assert second.heading == "job 2: 1 rank, 1 case, Open MPI 5.0.11"
    assert "-n 2" in first.line
    assert [case for case, _ in first.standalone] == ["pair[iterations=5]", "pair[iterations=6]"]
    for command in (first, second):
        for _, standalone in command.standalone:
            assert standalone.startswith(command.line)
        assert command.line.startswith(" ".join(command.added))
    assert first.standalone[1][1].endswith("link.pingpong --iterations 6")


def test_each_job_is_prepared_once_for_all_its_lines(request_of, prepared):
    assert len(build_commands(plan_run(request_of()))) == 2
    assert len(prepared) == 2


@pytest.mark.long
@pytest.mark.slow
async def test_each_job_is_prepared_once_for_a_run_and_the_rest_of_one_anew(request_of, prepared):
    state = RunState()
    outcome = await Run(plan_run(request_of()), state, lambda event: None).execute()
    assert [case["status"] for case in outcome.report.cases] == ["error"] * 3
    # The first had two cases, of which the second was tried once more by itself.
    assert len(state.jobs) == len(list(outcome.folder.path.glob("jobs/*/argv.json"))) == 3
    assert len(prepared) == 3


def test_a_cases_command_is_that_of_its_job_with_its_own_line_by_hand(request_of):
    planned = plan_run(request_of())
    whole = build_commands(planned)
    for job, case in ((0, "pair[iterations=6]"), (1, "copy")):
        command = build_case_command(planned, case)
        assert (command.heading, command.line) == (whole[job].heading, whole[job].line)
        assert command.standalone == ((case, dict(whole[job].standalone)[case]),)


def test_the_lines_are_a_script_that_a_shell_reads(request_of):
    planned = plan_run(request_of())
    lines = list(format_commands(planned))
    subprocess.run(["sh", "-n"], input="\n".join(lines), text=True, check=True)
    told = [shlex.split(line) for line in lines if not line.startswith("#")]
    assert len(told) == 5
    assert sum(line.startswith("#   by hand, ") for line in lines) == 3


def test_a_missing_launcher_is_told_before_any_line(request_of):
    with pytest.raises(MissingError, match="srun"):
        next(format_commands(plan_run(request_of("srun"))))
