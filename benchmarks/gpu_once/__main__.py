"""Run the checks of spbench that need a GPU, within a time limit.

On a machine with a package registry, make the bundle and print the size of the copy:

    python3 -m benchmarks.gpu_once --prepare

On the machine with a GPU, in the project's root, run all steps or those that you name:

    python3 -m benchmarks.gpu_once [--seconds 490] [--output FOLDER] [STEP ...]

The most useful steps run first. Each step has a time limit, and a failed step does not end the
command. The output folder receives ``log.txt``, ``summary.txt``, ``results.json`` and
``reports.tar.gz``, also if you interrupt the command. It exits with 1 if a step failed or was
stopped, and with 0 otherwise.

`--list` prints the steps. `--rehearse` runs them without a GPU: ranks then use a stand-in that does
its work late, and sizes are small. `--page FILE ...` prints docs/gpu_results.md from the
`results.json` of one run or several.

The module needs only Python's standard library, because it makes the environment of its steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu_once.results import Status, merge_results, render_page
from benchmarks.gpu_once.session import ROOT, Session
from benchmarks.gpu_once.steps import STEPS, Step

CARRIED_BYTES = 60 << 20
"""Maximum of bytes of tree and bundle. A larger copy may not arrive in time."""


def prepare(*, max_bytes: int = CARRIED_BYTES) -> int:
    """Make the bundle and print the size of the copy; return the exit code.

    A copy of more than ``max_bytes`` is an error.
    """
    bundling = subprocess.run(["docs/examples/bundle.sh"], cwd=ROOT)
    if bundling.returncode:
        return bundling.returncode
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [ROOT / name for name in listing.stdout.split("\0") if name]
    tree = sum(path.stat().st_size for path in files if path.is_file())
    wheels = sum(path.stat().st_size for path in (ROOT / ".whl").iterdir() if path.is_file())
    print(f"to copy: tree {tree >> 20} MiB, .whl {wheels >> 20} MiB")
    if tree + wheels > max_bytes:
        print(f"error: more than {max_bytes >> 20} MiB", file=sys.stderr)
        return 1
    return 0


def select_steps(names: Sequence[str]) -> list[Step]:
    """Return the steps of these names, in the order of `STEPS`; all without names.

    Raises:
        SystemExit: A name is unknown.
    """
    names_of_steps = {step.name for step in STEPS}
    if unknown := sorted(set(names) - names_of_steps):
        raise SystemExit(
            f"error: unknown step {unknown[0]}; choose from {', '.join(s.name for s in STEPS)}"
        )
    return [step for step in STEPS if not names or step.name in names]


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m benchmarks.gpu_once",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = Path(os.environ.get("OUT", "test-artefacts/gpu_once"))
    parser.add_argument("steps", nargs="*", metavar="STEP", help="the steps to run (default: all)")
    parser.add_argument("--seconds", type=float, default=490, help="time for all (default: 490)")
    parser.add_argument("--output", type=Path, default=default, help=f"(default: {default})")
    parser.add_argument("--list", action="store_true", help="print the steps and exit")
    parser.add_argument("--prepare", action="store_true", help="make the bundle and exit")
    parser.add_argument(
        "--rehearse", action="store_true", help="run without a GPU, with small sizes"
    )
    parser.add_argument(
        "--installed", action="store_true", help="use the current environment, not .whl/setup"
    )
    parser.add_argument(
        "--page", type=Path, nargs="+", metavar="FILE", help="print docs/gpu_results.md and exit"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = parse_arguments(argv)
    if arguments.prepare:
        return prepare()
    if arguments.page:
        runs = [json.loads(path.read_text()) for path in arguments.page]
        print(render_page(merge_results(runs)), end="")
        return 0
    steps = select_steps(arguments.steps)
    if arguments.list:
        for step in steps:
            print(f"{step.name:20} at most {step.seconds:3.0f} s")
        return 0
    session = Session(arguments.output.resolve(), arguments.seconds, rehearse=arguments.rehearse)
    try:
        if not arguments.installed:
            session.enter_environment()
        for step in steps:
            session.run(step)
    except KeyboardInterrupt:
        session.stop()
        return 130
    finally:
        session.save()
        session.close()
    failed = (Status.FAILED, Status.TIMEOUT)
    return 1 if any(result.status in failed for result in session.results) else 0


if __name__ == "__main__":
    sys.exit(main())
