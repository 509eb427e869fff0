"""Launch commands of the jobs of a suite, and standalone commands of cases."""

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
def preparations(monkeypatch):
    """Collect an entry for each preparation of a job."""
    calls = []

    def library(*_):
        calls.append(1)
        return MpiLibrary("openmpi", "Open MPI v5.0.11")

    monkeypatch.setattr(jobs, "detect_mpi_library", library)
    return calls


@pytest.fixture
def make_request(preparations, tmp_path, python_next_to_mpirun):
    """Return a function that builds requests; mpirun only prints its version."""

    def make(launcher="openmpi"):
        path = tmp_path / "suite.yaml"
        path.write_text(SUITE.format(python=python_next_to_mpirun, launcher=launcher))
        return Request(path, tmp_path / "home", {"PATH": ""})

    return make


def test_each_job_has_a_command_and_each_case_a_standalone_one(make_request, messages):
    first, second = build_commands(plan_run(make_request()))
    messages.check(first.heading)
    messages.check(second.heading)
    assert "-n 2" in first.line
    assert [case for case, _ in first.standalone] == ["pair[iterations=5]", "pair[iterations=6]"]
    for command in (first, second):
        for _, standalone in command.standalone:
            assert standalone.startswith(command.line)
        assert command.line.startswith(" ".join(command.added))
    assert first.standalone[1][1].endswith("link.pingpong --iterations 6")


def test_prepares_each_job_once_for_all_its_commands(make_request, preparations):
    assert len(build_commands(plan_run(make_request()))) == 2
    assert len(preparations) == 2


@pytest.mark.long
@pytest.mark.slow
async def test_run_prepares_each_job_once_and_its_remainder_again(make_request, preparations):
    state = RunState()
    outcome = await Run(plan_run(make_request()), state, lambda event: None).execute()
    assert [case["status"] for case in outcome.report.cases] == ["error"] * 3
    # The first job had two cases; the second case was tried again in a separate job.
    assert len(state.jobs) == len(list(outcome.folder.path.glob("jobs/*/argv.json"))) == 3
    assert len(preparations) == 3


def test_command_of_a_case_is_that_of_its_job(make_request):
    planned = plan_run(make_request())
    commands = build_commands(planned)
    for job, case in ((0, "pair[iterations=6]"), (1, "copy")):
        command = build_case_command(planned, case)
        assert (command.heading, command.line) == (commands[job].heading, commands[job].line)
        assert command.standalone == ((case, dict(commands[job].standalone)[case]),)


def test_commands_are_a_valid_shell_script(make_request):
    planned = plan_run(make_request())
    lines = list(format_commands(planned))
    subprocess.run(["sh", "-n"], input="\n".join(lines), text=True, check=True)
    commands = [shlex.split(line) for line in lines if not line.startswith("#")]
    assert len(commands) == 5
    assert sum(line.startswith("#   by hand, ") for line in lines) == 3


def test_missing_launcher_is_an_error_before_any_line(make_request):
    with pytest.raises(MissingError, match="srun"):
        next(format_commands(plan_run(make_request("srun"))))
