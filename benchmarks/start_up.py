"""Start-up time of `spbench` commands that run nothing.

    python -m benchmarks.start_up [--rounds 15] [-v]

The commands are interleaved, each in a separate process. They are compared with a bare `python -c
pass`, the minimum, and with programs that only read a pydantic model and import PyYAML, one of them
with a command-line option: the time of the libraries without spbench. With -v it also prints the
slowest imports of `spbench validate` (python -X importtime, which is slower than the command).
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.goals import Figure, format_figures, make_argument_parser

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
"""Like spbench: without a search for plugins, and pydantic only if a command needs it."""
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
    parser = make_argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each (default: 15)")
    parser.add_argument("-v", "--verbose", action="store_true", help="the slowest imports too")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name, _, _ in COMMANDS}
    for _ in range(options.rounds):
        for name, command, _ in COMMANDS:
            started = time.monotonic()
            run(command)
            seconds[name].append(time.monotonic() - started)
    print(f"median of {options.rounds} runs")
    print(
        format_figures(
            [Figure(name, median(seconds[name]), "s", goal) for name, _, goal in COMMANDS]
        )
    )
    if options.verbose:
        print(f"\n{list_slowest_imports()}")


def run(command: list[str]) -> str:
    """Run a command in the repository and return its stderr."""
    completed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if completed.returncode:
        sys.exit(f"start_up: {' '.join(command)}: exit {completed.returncode}\n{completed.stderr}")
    return completed.stderr


def list_slowest_imports() -> str:
    """Return the slowest imports of `spbench validate`, with own and cumulative times."""
    matches = IMPORT.findall(run([sys.executable, "-X", "importtime", *VALIDATE]))
    import_times = sorted(
        ((int(self_us), int(total_us), name) for self_us, total_us, name in matches), reverse=True
    )
    total = sum(self_us for self_us, _, _ in import_times)
    lines = [
        f"{len(import_times)} modules, {total / 1e3:.0f} ms; ms alone, ms with what it imports"
    ]
    lines += [
        f"{self_us / 1e3:8.1f} {total_us / 1e3:8.1f}  {name}"
        for self_us, total_us, name in import_times[:SLOWEST]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
