"""The job files of docs/examples/ci: known keys and existing commands."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from typer.main import get_command

from spbench.cli.app import app
from spbench.stats.difference import compute_min_launches
from spbench.suites.loader import load_suite_file
from spbench.suites.yaml_nodes import parse_yaml
from support.paths import DOCS, ROOT

CI = DOCS / "examples" / "ci"
GITHUB = {"name", "on", "jobs", "env", "permissions", "concurrency", "defaults", "run-name"}
GITHUB_JOB = {"name", "runs-on", "needs", "if", "steps", "timeout-minutes", "env", "strategy"}
GITHUB_STEP = {"name", "id", "if", "uses", "with", "run", "env", "shell", "continue-on-error"}
GITLAB_JOB = {
    *("image", "stage", "timeout", "variables", "before_script", "script", "after_script"),
    *("cache", "artifacts", "rules", "tags", "needs", "retry", "allow_failure", "services"),
}
GITLAB_CACHE = {"key", "paths", "when", "policy", "untracked", "unprotect", "fallback_keys"}
GITLAB_ARTIFACTS = {"paths", "when", "reports", "expire_in", "name", "exclude", "expose_as"}
WHEN = {"always", "on_success", "on_failure"}
JENKINS = {"agent", "options", "environment", "stages", "post", "triggers", "parameters", "tools"}


def load_yaml(name: str) -> Any:
    """Return the data of a YAML 1.2 file, in which ``on`` is a string."""
    document = parse_yaml((CI / name).read_text())
    assert document.problems == ()
    return document.root.data


def test_github_workflow_has_known_keys() -> None:
    workflow = load_yaml("github.yml")
    assert {"on", "jobs"} <= workflow.keys() <= GITHUB
    for job in workflow["jobs"].values():
        assert {"runs-on", "steps"} <= job.keys() <= GITHUB_JOB
        for step in job["steps"]:
            assert step.keys() <= GITHUB_STEP
            assert len(step.keys() & {"uses", "run"}) == 1
            action = r"actions/[a-z-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})"
            assert re.fullmatch(action, step.get("uses", "actions/x@v1.0.0"))


def test_gitlab_job_has_known_keys() -> None:
    (job,) = load_yaml("gitlab.yml").values()
    assert re.fullmatch(r"python:3\.\d+\.\d+-[a-z]+(@sha256:[0-9a-f]{64})?", job["image"])
    assert {"script"} <= job.keys() <= GITLAB_JOB
    assert job["cache"].keys() <= GITLAB_CACHE
    assert job["artifacts"].keys() <= GITLAB_ARTIFACTS
    assert {job["cache"]["when"], job["artifacts"]["when"]} <= WHEN
    assert all(isinstance(line, str) for line in job["before_script"] + job["script"])


def parse_blocks(text: str) -> dict[str, Any]:
    """Return the blocks of a declarative Jenkinsfile by their headers."""
    root: dict[str, Any] = {}
    open_blocks = [root]
    for line in text.splitlines():
        code = re.sub(r"'[^']*'|\"[^\"]*\"", lambda quoted: quoted[0].replace("{", "("), line)
        if code.endswith("{"):
            block: dict[str, Any] = {}
            assert open_blocks[-1].setdefault(line[:-1].strip(), block) is block
            open_blocks.append(block)
        elif code.strip() == "}":
            open_blocks.pop()
        else:
            assert code.count("'") % 2 == code.count('"') % 2 == 0
            open_blocks[-1][line.strip()] = None
    assert len(open_blocks) == 1
    return root


def test_jenkinsfile_is_a_declarative_pipeline() -> None:
    (pipeline,) = parse_blocks((CI / "Jenkinsfile").read_text()).values()
    assert {"agent", "stages"} <= {key.split()[0] for key in pipeline} <= JENKINS
    for title, stage in pipeline["stages"].items():
        assert re.fullmatch(r"stage\('[^']+'\)", title)
        assert all(step.startswith("sh '") for step in stage["steps"])
    assert pipeline["post"].keys() <= {"always", "success", "failure", "cleanup"}


def test_finds_a_block_that_is_not_closed() -> None:
    with pytest.raises(AssertionError):
        parse_blocks("pipeline {\n  agent any\n")


@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml", "Jenkinsfile"])
def test_job_file_has_a_valid_spbench_command(name: str) -> None:
    (line,) = re.findall(r"spbench (run [^'\n]*)", (CI / name).read_text())
    verb, suite, *arguments = shlex.split(line)
    command = get_command(app).commands[verb]  # type: ignore[attr-defined]
    known_options = {option for param in command.params for option in param.opts}
    assert {argument for argument in arguments if argument.startswith("-")} <= known_options
    cases = load_suite_file(ROOT / suite).cases
    min_launches = compute_min_launches(len(cases))
    assert [case.id for case in cases if case.repeat < min_launches] == []
    assert len({case.np for case in cases}) == 1
