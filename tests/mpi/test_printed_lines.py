"""Lines of ``--dry-run``: a shell can run them with the suite's variables."""

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


def test_printed_line_passes_variables_to_ranks(tmp_path):
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE)
    clean_env = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}
    environ = {**clean_env, "SPBENCH_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "spbench", "run", str(suite), "--dry-run"]
    output = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    launch, standalone = (line for line in output.splitlines() if not line.startswith("#"))
    variables = launch[: launch.index(" -n 2 ")]
    assert standalone.startswith(variables)
    assert "LICENSE=s3cret-value" in variables
    process = subprocess.run(
        ["sh", "-c", standalone],
        env=clean_env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert process.stdout.count("""<it's "so"; $HOME, a=b|s3cret-value>""") == 2
    # mpirun is the parent of a rank
    assert "mpirun" in process.stdout or "prterun" in process.stdout
    assert "LICENSE=s3cret-value" not in process.stdout
