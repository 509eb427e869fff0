import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT
from support.runs import run_python

STANDARD = sys.stdlib_module_names | {"__main__", "sitecustomize", "_distutils_hack"}
ROOTS = ("core", "console", "workers")
FAMILIES = "workers/spbench_workers/benchmarks"
HEAVY = {"torch", "textual", "mpi4py", "numpy"}

COMMAND = """
import sys
from spbench.__main__ import main
sys.argv = ["spbench", *sys.argv[1:]]
try:
    main()
finally:
    import json
    print("\\n" + json.dumps(sorted(sys.modules)))
"""

TORCHGRAPH = """
node1 -- Linear -- forward_compute_time=1.0, backward_compute_time=2.0, \
activation_size=4096.0, parameter_size=4096.0
node2 -- Linear -- forward_compute_time=1.0, backward_compute_time=2.0, \
activation_size=4096.0, parameter_size=4096.0
\tnode1 -- node2
""".lstrip()

CONSOLE = """
import os, sys
from pathlib import Path
os.environ["TEXTUAL_DRIVER"] = "textual.drivers.headless_driver:HeadlessDriver"
os.environ["TEXTUAL_PRESS"] = "1,2,3,4,5,ctrl+q"
from spbench.tui.start import open_console
assert open_console(home=Path(sys.argv[1]) / "home") == 0
import json
print("\\n" + json.dumps(sorted(sys.modules)))
"""

EVERY_MODULE = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(found.name)
import json
print(json.dumps(sorted(sys.modules)))
"""

IMPORTS = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
import json
print(json.dumps(sorted(sys.modules)))
"""


def modules_after(program, *words):
    """The modules that a program has imported when it ends; its last line says so."""
    return set(json.loads(run_python(program, *words).splitlines()[-1]))


def packages(modules):
    return {name.partition(".")[0] for name in modules}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["validate", "suites/halo.yaml"],
        ["benchmarks"],
        ["networks"],
        ["schema", "report"],
        ["run", "suites/halo.yaml", "--dry-run"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_needs_no_torch_imports_none(words):
    if words[0] == "run":
        pytest.importorskip("mpi4py", reason="a launch is prepared with the MPI of the ranks")
    assert not packages(modules_after(COMMAND, *words)) & HEAVY


@pytest.mark.slow
def test_the_parameters_of_a_benchmark_need_no_yaml():
    assert "yaml" not in packages(modules_after(COMMAND, "benchmarks", "link.pingpong"))


@pytest.mark.slow
def test_planning_imports_neither_torch_nor_mpi(tmp_path):
    profile = tmp_path / "profile.txt"
    profile.write_text(TORCHGRAPH)
    words = [
        "--global-batch-size",
        "8",
        "--profile-batch-size",
        "1",
        "--machines",
        "2",
        "--format",
        "json",
    ]
    found = packages(modules_after(COMMAND, "plan", str(profile), *words))
    assert "numpy" in found
    assert not found & {"torch", "mpi4py", "textual"}


@pytest.mark.slow
def test_the_console_in_a_terminal_imports_neither_torch_nor_mpi(tmp_path):
    found = packages(modules_after(CONSOLE, str(tmp_path)))
    assert "textual" in found
    assert not found & {"torch", "mpi4py", "numpy"}


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["run"], ["plan"], ["results"], ["tui"]], ids=" ".join)
def test_a_help_page_imports_no_library_but_typer(words):
    modules = modules_after(COMMAND, *words, "--help")
    assert not packages(modules) & (HEAVY | {"rich", "yaml", "ClusterShell"})
    assert not modules & {"spbench.engine.plan", "spbench.suites.loader", "spbench_core.catalog"}


def test_the_version_needs_nothing_but_the_standard_library():
    modules = modules_after(COMMAND, "--version")
    assert not packages(modules) & {"typer", "pydantic", "yaml", "rich"}
    assert {name for name in modules if name.startswith("spbench")} == {
        "spbench",
        "spbench.__main__",
    }


@pytest.mark.slow
def test_a_suite_is_checked_with_the_entries_of_its_own_benchmarks():
    modules = modules_after(COMMAND, "validate", "suites/halo.yaml")
    assert "spbench_workers.benchmarks.halo.entry" in modules
    others = {f"spbench_workers.benchmarks.{family}.entry" for family in ("kvstore", "model")}
    assert not modules & others


def test_the_core_imports_the_standard_library_only():
    assert packages(modules_after(EVERY_MODULE, "spbench_core")) <= STANDARD | {"spbench_core"}


def test_the_channel_needs_nothing_but_the_core():
    found = packages(modules_after(IMPORTS, "spbench_workers.channel.opening"))
    assert found <= STANDARD | {"spbench_core", "spbench_workers"}


@pytest.mark.slow
def test_no_module_of_the_console_brings_in_torch_or_mpi():
    pytest.importorskip("textual_serve", reason="spbench.tui.web needs the extra serve")
    found = packages(modules_after(EVERY_MODULE, "spbench"))
    assert {"spbench", "textual"} <= found
    assert not found & {"torch", "mpi4py", "spbench_workers"}


@pytest.mark.slow
def test_the_workers_import_nothing_of_the_console():
    pytest.importorskip("torch")
    names = ["session", "standalone.program", "benchmarks.link.pingpong"]
    modules = modules_after(IMPORTS, *(f"spbench_workers.{name}" for name in names))
    assert "spbench_workers.session" in modules
    assert "spbench" not in packages(modules)


def contracts(folder):
    """The exit code and the lines of import-linter on a copy of the tree."""
    if importlib.util.find_spec("importlinter") is None:
        pytest.skip("import-linter is not installed; it is in the extra dev")
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(str(folder / root) for root in ROOTS)},
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for root in ROOTS:
        shutil.copytree(ROOT / root, folder / root, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.slow
def test_packages_import_only_downwards(copied):
    code, said = contracts(copied)
    assert code == 0, said
    assert "0 broken" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "line", "broken"),
    [
        pytest.param(
            "console/spbench/engine/plan.py",
            "from spbench_parallel.validation.reference import ReferenceModel",
            "The console imports no module of the ranks BROKEN",
            id="the console takes a module of the workers",
        ),
        pytest.param(
            "core/spbench_core/schedule/orders.py",
            "import numpy",
            "The core is standard library only BROKEN",
            id="the core takes numpy",
        ),
        pytest.param(
            "console/spbench/record/state.py",
            "import spbench.engine.run",
            "The console's packages import only downwards BROKEN",
            id="a package of the console imports a higher one",
        ),
        pytest.param(
            "console/spbench/engine/plan.py",
            "import textual.app",
            "Only the console's TUI imports Textual BROKEN",
            id="the engine takes Textual",
        ),
        pytest.param(
            "console/spbench/another/__init__.py",
            "",
            "The console's packages import only downwards BROKEN",
            id="a package that no contract names",
        ),
    ],
)
def test_a_planted_import_breaks_its_contract(copied, path, line, broken):
    planted = copied / path
    before = planted.read_text() if planted.exists() else None
    planted.parent.mkdir(exist_ok=True)
    try:
        planted.write_text(f"{before or ''}\n{line}\n")
        code, said = contracts(copied)
    finally:
        if before is None:
            shutil.rmtree(planted.parent)
        else:
            planted.write_text(before)
    assert code == 1
    assert broken in said, said


@pytest.mark.slow
def test_a_ping_pong_of_the_host_imports_neither_torch_nor_numpy():
    pytest.importorskip("mpi4py")
    modules = modules_after(IMPORTS, "spbench_workers.benchmarks.link.pingpong")
    assert not packages(modules) & {"torch", "numpy"}


def test_packages_of_benchmarks_import_nothing():
    folders = [ROOT / "workers/spbench_workers", *(ROOT / FAMILIES).iterdir(), ROOT / FAMILIES]
    files = [folder / "__init__.py" for folder in folders if (folder / "__init__.py").exists()]
    assert len(files) > 8
    for path in files:
        body = ast.parse(path.read_text()).body
        assert not any(isinstance(node, ast.Import | ast.ImportFrom) for node in body), path
