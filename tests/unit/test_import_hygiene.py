import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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

IMPORTS = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
import json
print(json.dumps(sorted(sys.modules)))
"""


def modules_after(program, *words):
    """The modules that a program has imported when it ends; its last line says so."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def packages(modules):
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["validate", "suites/halo.yaml"],
        ["benchmarks"],
        ["networks"],
        ["schema", "report"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_needs_no_torch_imports_none(words):
    assert not packages(modules_after(COMMAND, *words)) & HEAVY


def test_the_version_needs_nothing_but_the_standard_library():
    modules = modules_after(COMMAND, "--version")
    assert not packages(modules) & {"typer", "pydantic", "yaml", "rich"}
    assert {name for name in modules if name.startswith("spbench")} == {
        "spbench",
        "spbench.__main__",
    }


@pytest.mark.parametrize("name", ["protocol", "catalog", "layout", "networks", "models", "channel"])
def test_what_both_sides_share_imports_the_standard_library_only(name):
    found = packages(modules_after(IMPORTS, f"spbench_workers.{name}"))
    assert not found & (HEAVY | {"spbench", "pydantic", "yaml", "typer"})


def test_the_workers_import_nothing_of_the_console():
    names = ["session", "by_hand", "link.pingpong"]
    modules = modules_after(IMPORTS, *(f"spbench_workers.{name}" for name in names))
    assert "spbench_workers.session" in modules
    assert "spbench" not in packages(modules)


def test_the_rooms_import_only_downwards():
    if importlib.util.find_spec("importlinter") is None:
        pytest.skip("import-linter is not installed; it is in the extra dev")
    script = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [script, "--no-cache"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_ping_pong_of_the_host_imports_no_torch():
    assert "torch" not in packages(modules_after(IMPORTS, "spbench_workers.link.pingpong"))
