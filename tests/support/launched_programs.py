"""Small programs for ranks that record arguments and variables, or end early."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

UNUSUAL_VALUES = {
    "BLANKS": " two  words ",
    "QUOTES": """it's "so" and don't""",
    "SHELL": "$HOME `id` $(id); exit 3 & | * ? ~ # { } ! \\ <>",
    "LINES": "one\ntwo\n",
    "COMMAS": "a,b=c:d;e",
    "EMPTY": "",
    "LETTERS": "größe",
}
"""Values that a shell or a launcher could change."""
PASSED_VARIABLES = UNUSUAL_VALUES | {"SPBENCH_TOKEN": "t0ken"}
RANK_VARIABLES = {
    "openmpi": "OMPI_COMM_WORLD_RANK",
    "mpirun_rsh": "MV2_COMM_WORLD_RANK",
    "hydra": "PMI_RANK",
    "srun": "SLURM_PROCID",
}
RANK_PROGRAM = f"""
import json, os, signal, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
received = {{
    "rank": world.rank, "size": world.size, "sum": world.allreduce(world.rank),
    "argv": sys.argv[2:], "env": {{n: os.environ.get(n) for n in {[*PASSED_VARIABLES]!r}}},
    "named": {{n: os.environ.get(n) for n in {sorted(RANK_VARIABLES.values())!r}}},
    "blocked": sorted(int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "cpus": len(os.sched_getaffinity(0)),
}}
with open(f"{{sys.argv[1]}}/{{world.rank}}.json", "w") as file:
    json.dump(received, file)
"""
"""Writes the arguments and variables of a rank to a file. Launchers may break up output."""
SECRET_VALUES = {"LICENSE": "s3cret-value of a licence", "OMP_PLACES": "s3cret-value"}
FIND_SECRETS_PROGRAM = f"""
import json, os, pathlib, sys
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
argument_lists = []
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        continue
    if "s3cret-value" in text:
        argument_lists.append(text.split(chr(0)))
env = {{name: os.environ.get(name) for name in {[*SECRET_VALUES]!r}}}
with open(f"{{sys.argv[1]}}/{{rank}}.json", "w") as file:
    json.dump({{"rank": rank, "exposed": argument_lists, "env": env}}, file)
MPI.COMM_WORLD.Barrier()
"""
"""Writes the arguments of the processes of this host that show a secret value."""
END_PROGRAM = """
import os, sys
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 1:
    os.kill(os.getpid(), 9) if sys.argv[1] == "killed" else os._exit(3)
MPI.COMM_WORLD.Barrier()
"""


def run_command(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command without input, and wait for its end."""
    return subprocess.run(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def read_rank_files(folder: Path) -> list[dict[str, Any]]:
    """Return the contents of the files that the ranks wrote to a folder, by rank."""
    rows = [json.loads(path.read_text()) for path in folder.glob("[0-9]*.json")]
    return sorted(rows, key=lambda row: int(row["rank"]))
