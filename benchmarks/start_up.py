"""Start-up time of `spbench` commands that run nothing.

    python -m benchmarks.start_up [--rounds 15] [-v]

The commands run by turns, each in a process of its own, beside a bare `python -c pass`, the least
that any of them can take, and programs that do nothing but read a pydantic model and import PyYAML,
one of them as a command with an option: what the libraries take without spbench. With -v it also
tells which imports `spbench validate` spends its time on (python -X importtime, which is slower
than the command itself).
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.goals import Figure, argument_parser, table

REPOSITORY = Path(__file__).parent.parent
SPBENCH = str(Path(sys.executable).parent / "spbench")
VALIDATE = [SPBENCH, "validate", "suites/halo.yaml"]
LIBRARIES = """
import os
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
import yaml

def command(number: int = 1) -> None:
    from pydantic import BaseModel

    class Model(BaseModel):
        number: int

    Model.model_validate({"number": number})
"""
"""As spbench does it: without a search for plugins, and pydantic only where it is needed."""
PLAIN = f"import gc\ngc.disable()\n{LIBRARIES}\ncommand()"
WITH_OPTIONS = f"{LIBRARIES}\nimport typer\ntyper.run(command)"
COMMANDS: list[tuple[str, list[str], float | None]] = [
    ("python -c pass", [sys.executable, "-c", "pass"], None),
    ("pydantic and PyYAML alone", [sys.executable, "-c", PLAIN], None),
    ("typer, pydantic and PyYAML alone", [sys.executable, "-c", WITH_OPTIONS], None),
    ("spbench --version", [SPBENCH, "--version"], 0.15),
    ("spbench benchmarks", [SPBENCH, "benchmarks"], 0.3),
    ("spbench validate suites/halo.yaml", VALIDATE, 0.2),
    ("spbench validate -v suites/halo.yaml", [*VALIDATE, "-v"], None),
]
IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| +(\S+)")
SLOWEST = 10


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each (default: 15)")
    parser.add_argument("-v", "--verbose", action="store_true", help="the slowest imports too")
    words = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name, _, _ in COMMANDS}
    for _ in range(words.rounds):
        for name, command, _ in COMMANDS:
            started = time.monotonic()
            run(command)
            seconds[name].append(time.monotonic() - started)
    print(f"median of {words.rounds} runs")
    print(table([Figure(name, median(seconds[name]), "s", most) for name, _, most in COMMANDS]))
    if words.verbose:
        print(f"\n{imports()}")


def run(command: list[str]) -> str:
    """Run a command in the repository and return what it says on stderr."""
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"start_up: {' '.join(command)}: exit {ended.returncode}\n{ended.stderr}")
    return ended.stderr


def imports() -> str:
    """Return the modules of `spbench validate` that take longest, themselves and with theirs."""
    found = IMPORT.findall(run([sys.executable, "-X", "importtime", *VALIDATE]))
    times = sorted(((int(own), int(whole), name) for own, whole, name in found), reverse=True)
    total = sum(own for own, _, _ in times)
    lines = [f"{len(times)} modules, {total / 1e3:.0f} ms; ms alone, ms with what it imports"]
    lines += [
        f"{own / 1e3:8.1f} {whole / 1e3:8.1f}  {name}" for own, whole, name in times[:SLOWEST]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
