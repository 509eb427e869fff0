"""Modules that commands, packages and ranks import, and the import contracts."""

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
from spbench.tui.start import open_tui
assert open_tui(home=Path(sys.argv[1]) / "home") == 0
import json
print("\\n" + json.dumps(sorted(sys.modules)))
"""

EVERY_MODULE = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(info.name)
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


def list_imported_modules(program, *arguments):
    """Run a program and return the modules that its last line lists."""
    return set(json.loads(run_python(program, *arguments).splitlines()[-1]))


def list_packages(modules):
    return {name.partition(".")[0] for name in modules}


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["validate", "suites/halo.yaml"],
        ["benchmarks"],
        ["networks"],
        ["schema", "report"],
        ["run", "suites/halo.yaml", "--dry-run"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_command_without_torch_does_not_import_it(arguments):
    if arguments[0] == "run":
        pytest.importorskip("mpi4py", reason="a launch is prepared with the MPI of the ranks")
    assert not list_packages(list_imported_modules(COMMAND, *arguments)) & HEAVY


@pytest.mark.slow
def test_parameters_of_a_benchmark_need_no_yaml():
    assert "yaml" not in list_packages(
        list_imported_modules(COMMAND, "benchmarks", "link.pingpong")
    )


@pytest.mark.slow
def test_planning_imports_neither_torch_nor_mpi(tmp_path):
    profile = tmp_path / "profile.txt"
    profile.write_text(TORCHGRAPH)
    arguments = [
        "--global-batch-size",
        "8",
        "--profile-batch-size",
        "1",
        "--machines",
        "2",
        "--format",
        "json",
    ]
    imported = list_packages(list_imported_modules(COMMAND, "plan", str(profile), *arguments))
    assert "numpy" in imported
    assert not imported & {"torch", "mpi4py", "textual"}


@pytest.mark.slow
def test_tui_imports_neither_torch_nor_mpi(tmp_path):
    imported = list_packages(list_imported_modules(CONSOLE, str(tmp_path)))
    assert "textual" in imported
    assert not imported & {"torch", "mpi4py", "numpy"}


def test_first_page_waits_for_no_library_but_textual():
    modules = list_imported_modules(IMPORTS, "spbench.tui.start", "spbench.tui.suites.page")
    assert "spbench.tui.suites.tree" in modules
    assert not list_packages(modules) & (
        HEAVY - {"textual"} | {"typer", "pydantic", "ClusterShell"}
    )
    assert not modules & {"spbench.engine.plan", "spbench.suites.loader", "spbench_core.catalog"}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["run"], ["plan"], ["results"], ["tui"]], ids=" ".join)
def test_help_page_imports_no_library_but_typer(arguments):
    modules = list_imported_modules(COMMAND, *arguments, "--help")
    assert not list_packages(modules) & (HEAVY | {"rich", "yaml", "ClusterShell"})
    assert not modules & {"spbench.engine.plan", "spbench.suites.loader", "spbench_core.catalog"}


def test_version_imports_only_the_standard_library():
    modules = list_imported_modules(COMMAND, "--version")
    assert not list_packages(modules) & {"typer", "pydantic", "yaml", "rich"}
    assert {name for name in modules if name.startswith("spbench")} == {
        "spbench",
        "spbench.__main__",
        "spbench.cli",
        "spbench.cli.opening_line",
    }


@pytest.mark.slow
def test_validate_imports_only_the_entries_of_the_suite():
    modules = list_imported_modules(COMMAND, "validate", "suites/halo.yaml")
    assert "spbench_workers.benchmarks.halo.entry" in modules
    others = {f"spbench_workers.benchmarks.{family}.entry" for family in ("kvstore", "model")}
    assert not modules & others


def test_core_imports_only_the_standard_library():
    assert list_packages(list_imported_modules(EVERY_MODULE, "spbench_core")) <= STANDARD | {
        "spbench_core"
    }


def test_channel_imports_only_the_core():
    imported = list_packages(list_imported_modules(IMPORTS, "spbench_workers.channel.opening"))
    assert imported <= STANDARD | {"spbench_core", "spbench_workers"}


@pytest.mark.slow
def test_no_module_of_the_console_imports_torch_or_mpi():
    pytest.importorskip("textual_serve", reason="spbench.tui.web needs the extra serve")
    imported = list_packages(list_imported_modules(EVERY_MODULE, "spbench"))
    assert {"spbench", "textual"} <= imported
    assert not imported & {"torch", "mpi4py", "spbench_workers"}


@pytest.mark.slow
def test_workers_import_nothing_of_the_console():
    pytest.importorskip("torch")
    names = ["session", "standalone.program", "benchmarks.link.pingpong"]
    modules = list_imported_modules(IMPORTS, *(f"spbench_workers.{name}" for name in names))
    assert "spbench_workers.session" in modules
    assert "spbench" not in list_packages(modules)


def check_contracts(folder):
    """Return the exit code and the output of import-linter on a copy of the tree."""
    if importlib.util.find_spec("importlinter") is None:
        pytest.skip("import-linter is not installed; it is in the extra dev")
    completed = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(str(folder / root) for root in ROOTS)},
        check=False,
    )
    return completed.returncode, completed.stdout + completed.stderr


@pytest.fixture(scope="module")
def project_copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for root in ROOTS:
        shutil.copytree(ROOT / root, folder / root, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.slow
def test_import_contracts_hold(project_copy):
    code, output = check_contracts(project_copy)
    assert code == 0, output
    assert "0 broken" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "line", "message"),
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
def test_planted_import_breaks_its_contract(project_copy, path, line, message):
    module = project_copy / path
    before = module.read_text() if module.exists() else None
    module.parent.mkdir(exist_ok=True)
    try:
        module.write_text(f"{before or ''}\n{line}\n")
        code, output = check_contracts(project_copy)
    finally:
        if before is None:
            shutil.rmtree(module.parent)
        else:
            module.write_text(before)
    assert code == 1
    assert message in output, output


@pytest.mark.slow
def test_host_ping_pong_imports_neither_torch_nor_numpy():
    pytest.importorskip("mpi4py")
    modules = list_imported_modules(IMPORTS, "spbench_workers.benchmarks.link.pingpong")
    assert not list_packages(modules) & {"torch", "numpy"}


def test_packages_of_benchmarks_import_nothing():
    folders = [ROOT / "workers/spbench_workers", *(ROOT / FAMILIES).iterdir(), ROOT / FAMILIES]
    files = [folder / "__init__.py" for folder in folders if (folder / "__init__.py").exists()]
    assert len(files) > 8
    for path in files:
        body = ast.parse(path.read_text()).body
        assert not any(isinstance(node, ast.Import | ast.ImportFrom) for node in body), path
