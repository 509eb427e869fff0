"""Commands in README.md, CONTRIBUTING.md and docs/ run, with their exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

from support.paths import DOCS, ROOT, STANDINS

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]

TOP_PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES = sorted([*TOP_PAGES, *DOCS.rglob("*.md")])
BIN = Path(sys.executable).parent


def list_commands() -> dict[str, str]:
    """Return the commands of ``sh`` blocks, with the first page of each."""
    pages_by_command: dict[str, str] = {}
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            for line in block.splitlines():
                pages_by_command.setdefault(line, page.name)
    return pages_by_command


@cache
def make_environment() -> dict[str, str]:
    """Return the environment of commands.

    The folder of this Python comes first in PATH. The stand-ins come last, since some pages use
    launchers that are not installed.
    """
    path = f"{BIN}:{os.environ['PATH']}:{STANDINS}"
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return os.environ | as_root | {"PATH": path}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a home for the commands of a page, with a run for ``last``."""
    path = tmp_path_factory.mktemp("home")
    demo = files("spbench") / "demo"
    recorded = path / "runs" / json.loads((demo / "run.json").read_text())["id"]
    shutil.copytree(str(demo), recorded)
    return path


def choose_marks(command: str, page: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a command.

    One process runs the commands of a page, in their order.

    Some commands need both cores: the suite bringup expects ranks to be equally fast, and on a busy
    machine ranks of the scaling suite were silent for longer than its limit of 10 s.
    """
    needs_cores = ("spbench run suites/bringup.yaml", "spbench scale suites/scaling.yaml")
    group = pytest.mark.xdist_group(page)
    return [group, pytest.mark.alone] if command.startswith(needs_cores) else [group]


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "page"),
    [
        pytest.param(command, page, marks=choose_marks(command, page))
        for command, page in list_commands().items()
    ],
)
def test_command_of_the_docs_runs(command: str, page: str, tmp_path: Path, home: Path) -> None:
    line, _, exit_code = command.partition("  # exit ")
    arguments = shlex.split(line)
    if arguments[0] == "make":
        # CI runs these targets itself, before and around this test.
        arguments.insert(1, "--dry-run")
    line = shlex.join(arguments).replace(" out.", f" {tmp_path}/out.")
    completed = subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT,
        env=make_environment() | {"SPBENCH_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == int(exit_code or 0), (
        f"{page}: {command}\n{completed.stdout}{completed.stderr}"
    )


PROGRAMS = [
    (page.name, block)
    for page in PAGES
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
]


@pytest.mark.parametrize(
    ("page", "program"),
    [
        pytest.param(page, program, id=page, marks=pytest.mark.long if page == "library.md" else ())
        for page, program in PROGRAMS
    ],
)
def test_program_of_the_docs_runs(page: str, program: str, tmp_path: Path) -> None:
    """A program that uses the workers runs on six ranks, any other in one process."""
    path = tmp_path / "program.py"
    path.write_text(program)
    launch = ["mpirun", "--oversubscribe", "-n", "6", sys.executable, "-m", "mpi4py", str(path)]
    threads = {"OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_osc": "^ucx"}
    on_ranks = "spbench_parallel" in program
    completed = subprocess.run(
        launch if on_ranks else [sys.executable, str(path)],
        cwd=tmp_path if on_ranks else ROOT,
        env=make_environment() | threads,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, f"{page}:\n{completed.stdout}{completed.stderr}"


def test_long_commands_have_help() -> None:
    lines = [
        line
        for page in PAGES
        for block in re.findall(r"^```text\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]
    # tests/tui/test_terminal.py runs the commands that open the console.
    long_commands = [line for line in lines if not line.startswith("spbench")]
    assert len(long_commands) == 33
    for line in long_commands:
        arguments = [*shlex.split(line), "--help"]
        completed = subprocess.run(
            arguments, cwd=ROOT, env=make_environment(), capture_output=True, text=True, check=True
        )
        assert "usage" in completed.stdout


def test_links_between_pages_have_targets() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
