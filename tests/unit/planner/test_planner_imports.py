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


def test_the_planner_is_imported_without_numpy():
    names = [path.stem for path in Path(spbench.planner.__file__).parent.glob("[a-z]*.py")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
