"""The lines that ``--dry-run`` prints run as they are printed, with the suite's variables."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.mpi

SUITE = """\
schema: spbench.suite/1
name: printed
launch:
  env: {NOTE: "it's \\"so\\"; $HOME, a=b", LICENSE: s3cret-value}
cases:
  - name: prints
    benchmark: program.run
    np: 2
    params:
      argv: [sh, -c, 'printf "<%s|%s>\\n" "$NOTE" "$LICENSE"; cat /proc/$PPID/cmdline']
"""


def test_the_printed_line_gives_ranks_the_variables(tmp_path):
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}
    environ = {**clean, "SPBENCH_HOME": str(tmp_path / "home")}
    words = [sys.executable, "-m", "spbench", "run", str(suite), "--dry-run"]
    printed = subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout
    launch, by_hand = (line for line in printed.splitlines() if not line.startswith("#"))
    variables = launch[: launch.index(" -n 2 ")]
    assert by_hand.startswith(variables)
    assert "LICENSE=s3cret-value" in variables
    ended = subprocess.run(
        ["sh", "-c", by_hand], env=clean, capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.count("""<it's "so"; $HOME, a=b|s3cret-value>""") == 2
    # the parent of a rank is mpirun
    assert "mpirun" in ended.stdout or "prterun" in ended.stdout
    assert "LICENSE=s3cret-value" not in ended.stdout
