"""Every command in README.md, CONTRIBUTING.md and docs/ runs, and ends as the text says."""

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

AT_THE_TOP = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES = sorted([*AT_THE_TOP, *DOCS.rglob("*.md")])
BIN = Path(sys.executable).parent


def commands() -> dict[str, str]:
    """Each command of the pages' ``sh`` blocks once, and the page where it stands first."""
    found: dict[str, str] = {}
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            for line in block.splitlines():
                found.setdefault(line, page.name)
    return found


@cache
def environment() -> dict[str, str]:
    """The venv first; then the stand-ins, since some pages speak of launchers not installed."""
    path = f"{BIN}:{os.environ['PATH']}:{STANDINS}"
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return os.environ | as_root | {"PATH": path}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for the commands of a page, with a run in it that ``last`` finds."""
    path = tmp_path_factory.mktemp("home")
    demo = files("spbench") / "demo"
    recorded = path / "runs" / json.loads((demo / "run.json").read_text())["id"]
    shutil.copytree(str(demo), recorded)
    return path


def marks(command: str, page: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a command: one process runs those of a page, in their order.

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
        pytest.param(command, page, marks=marks(command, page))
        for command, page in commands().items()
    ],
)
def test_command_of_the_docs_runs(command: str, page: str, tmp_path: Path, home: Path) -> None:
    line, _, told = command.partition("  # exit ")
    words = shlex.split(line)
    if words[0] == "make":
        # CI calls these themselves, right before and around this test.
        words.insert(1, "--dry-run")
    line = shlex.join(words).replace(" out.", f" {tmp_path}/out.")
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT,
        env=environment() | {"SPBENCH_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == int(told or 0), f"{page}: {command}\n{done.stdout}{done.stderr}"


PROGRAMS = [
    (page.name, block)
    for page in PAGES
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
]


@pytest.mark.parametrize(("page", "program"), PROGRAMS, ids=[page for page, _ in PROGRAMS])
def test_program_of_the_docs_runs(page: str, program: str, tmp_path: Path) -> None:
    """One that uses the workers runs on six ranks, any other by itself."""
    path = tmp_path / "program.py"
    path.write_text(program)
    ranks = ["mpirun", "--oversubscribe", "-n", "6", sys.executable, "-m", "mpi4py", str(path)]
    threads = {"OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_osc": "^ucx"}
    on_ranks = "spbench_parallel" in program
    done = subprocess.run(
        ranks if on_ranks else [sys.executable, str(path)],
        cwd=tmp_path if on_ranks else ROOT,
        env=environment() | threads,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{page}:\n{done.stdout}{done.stderr}"


def test_commands_that_measure_for_minutes_say_what_they_measure() -> None:
    found = [
        line
        for page in PAGES
        for block in re.findall(r"^```text\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]
    # Those that open the console are run by tests/tui/test_terminal.py.
    measuring = [line for line in found if not line.startswith("spbench")]
    assert len(measuring) == 33
    for line in measuring:
        words = [*shlex.split(line), "--help"]
        done = subprocess.run(
            words, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
        )
        assert "usage" in done.stdout


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
