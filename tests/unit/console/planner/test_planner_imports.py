"""Tests of the imports of the planner."""

import subprocess
import sys
from pathlib import Path

import spbench.planner

PROGRAM = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module("spbench.planner." + name)
print(*sorted({"numpy", "torch", "mpi4py", "textual"} & set(sys.modules)))
"""


def test_dir_lists_lazy_exports():
    assert set(spbench.planner.__all__) <= set(dir(spbench.planner))


def test_planner_imports_without_numpy():
    folder = Path(spbench.planner.__file__).parent
    paths = [path.relative_to(folder).with_suffix("") for path in folder.rglob("[a-z]*.py")]
    names = [".".join(path.parts) for path in paths]
    assert "search.best" in names
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == []
