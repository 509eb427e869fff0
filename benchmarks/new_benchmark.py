"""Add a benchmark to a copy of a tree, run it, and print the changed files.

    python -m benchmarks.new_benchmark [TREE ...]

Each TREE is a checkout; without one, this checkout is used. The benchmark is ``link.jitter``: the
percentiles of a ping-pong's round trips, with a check, a fault, a test and documentation. Files
that `make generate` writes are marked. The test runs two ranks with the sources of the copy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.goals import make_argument_parser

ROOT = Path(__file__).parents[1]
COPIED = ("core", "console", "workers", "docs", "suites", "tests", "pyproject.toml")
SCHEMA = Path("console/spbench/schemas/suite.schema.json")
ENTRY = """    Benchmark(
        name="link.jitter",
        summary="percentiles of the round trips of pairs of ranks",
        measures="link",
        params=(
            Param("size", "bytes", 8, "bytes of a message", minimum=1, maximum=1 << 30),
            *params_of_loop,
        ),
        metrics=(
            make_time_metric("one round trip"),
            Metric("p99_us", "us", "lower", "99th percentile of a round trip, slowest rank"),
        ),
        checks=("echo",),
        faults=("corrupt-message",),
        ranks=lambda _: Ranks(minimum=2),
    ),
)
"""
RUN = '''"""The benchmark ``link.jitter``: percentiles of the round trips of pairs of ranks."""

from __future__ import annotations

from statistics import quantiles

from {messages} import compare_bytes, random_bytes
from spbench_workers.context import Context
from spbench_workers.timing import measure


def run(context: Context) -> None:
    """Run the case."""
    comm, rank = context.world.comm, context.world.rank
    other = rank ^ 1 if rank ^ 1 < comm.size else rank
    expected = random_bytes(context.seed_for("jitter", min(rank, other)), context.params["size"])
    sent, received = bytearray(expected), bytearray(len(expected))

    def trip() -> None:
        if rank < other:
            comm.Send(sent, other)
            comm.Recv(received, other)
        elif rank > other:
            comm.Recv(received, other)
            comm.Send(received, other)
        else:
            received[:] = sent

    times = measure(context, trip)
    if context.planted("corrupt-message"):
        received[0] ^= 0xFF
    difference = compare_bytes(bytes(received), expected)
    context.check("echo", difference.error, 0.0, difference.detail)
    context.metric("p99_us", 1e3 * quantiles(times, n=100)[98])
'''
TEST = '''"""The benchmark link.jitter: it passes, and its fault is found."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(("fault", "code"), [(None, 0), ("corrupt-message", 1)])
def test_jitter_passes_and_its_fault_is_found(tmp_path, fault, code):
    suite = tmp_path / "jitter.yaml"
    suite.write_text(
        "schema: spbench.suite/1\\\\nname: jitter\\\\ncases:\\\\n"
        "  - {{name: jitter, benchmark: link.jitter, np: 2, params: {{iterations: 200}}}}\\\\n"
    )
    fault_arguments = ["--inject", fault] if fault else []
    report = tmp_path / "report.json"
    files = ["--home", str(tmp_path), "--json", str(report)]
    command = [sys.executable, "-m", "spbench", "run", str(suite), "--headless", *files]
    command += fault_arguments
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == code, completed.stdout + completed.stderr
    (case,) = json.loads(report.read_text())["cases"]
    assert case["metrics"]["p99_us"]["value"] > 0
'''
DOCS = (
    "| ``link.jitter`` | percentiles of the round trips of pairs of ranks | random bytes, compared "
    "on both sides | none |\n"
)


@dataclass(frozen=True, slots=True)
class BenchmarkPaths:
    """The files of a benchmark of the family ``link`` in a tree.

    Attributes:
        entry: The module with the family's entries.
        run: The module that runs the benchmark.
        test: Its test.
        loop: The parameters of the timed loop, as source.
    """

    entry: Path
    run: Path
    test: Path
    loop: str


VERTICAL = BenchmarkPaths(
    Path("workers/spbench_workers/benchmarks/link/entry.py"),
    Path("workers/spbench_workers/benchmarks/link/jitter.py"),
    Path("tests/benchmarks/link/test_jitter.py"),
    "params_of(LoopParams)",
)
BY_LAYER = BenchmarkPaths(
    Path("core/spbench_core/catalog/link.py"),
    Path("workers/spbench_workers/link/jitter.py"),
    Path("tests/unit/workers/link/test_jitter.py"),
    "_LOOP",
)


def main() -> int:
    """Add the benchmark to each tree; return 1 if its test fails in one."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("trees", nargs="*", type=Path, default=[ROOT], help="checkouts")
    failed = False
    for tree in parser.parse_args().trees:
        with tempfile.TemporaryDirectory(prefix="spbench-new-") as folder:
            copy = Path(folder) / "spbench"
            _copy_tree(tree, copy)
            touched = add_benchmark(copy)
            passed = _run_test(copy)
            failed |= not passed
        trees = {path.parts[0] for path in touched if path != SCHEMA}
        print(f"{tree}: {len(touched) - 1} files by hand in {len(trees)} trees, 1 generated")
        for path in touched:
            print(f"  {path}{' (generated)' if path == SCHEMA else ''}")
        print(f"  its test {'passes' if passed else 'FAILS'}")
    return int(failed)


def _copy_tree(tree: Path, copy: Path) -> None:
    copy.mkdir()
    for name in COPIED:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(tree / name, copy / name)
    git = ["git", "-c", "user.name=spbench", "-c", "user.email=spbench@localhost"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "the tree before"]):
        subprocess.run([*git, *arguments], cwd=copy, check=True)


def add_benchmark(copy: Path) -> list[Path]:
    """Add the benchmark to a copy of a tree; return the files that differ, sorted."""
    layout = VERTICAL if (copy / VERTICAL.entry).is_file() else BY_LAYER
    entry = copy / layout.entry
    text = entry.read_text()
    if "import Param\n" not in text and "import Param," not in text:
        text = text.replace(
            "from spbench_core.catalog.typed_params",
            "from spbench_core.catalog.parameters import Param\n"
            "from spbench_core.catalog.typed_params",
            1,
        )
    # Earlier commits have other names for the time metric and for the messages of a ping-pong.
    time_metric = "make_time_metric" if "make_time_metric" in text else "time_of"
    messages = copy / layout.run.with_name("messages.py")
    if not messages.is_file():
        messages = messages.with_name("payload.py")
    compare = "compare_bytes" if "def compare_bytes" in messages.read_text() else "compare"
    added = ENTRY.replace("params_of_loop", layout.loop).replace("make_time_metric", time_metric)
    entry.write_text(re.sub(r"\)\n\Z", lambda _: added, text))
    package = ".".join(layout.run.parts[1:-1])
    module = RUN.replace("{messages}", f"{package}.{messages.stem}")
    (copy / layout.run).write_text(module.replace("compare_bytes", compare))
    (copy / layout.test).write_text(TEST.format().replace("\\\\n", "\\n"))
    docs = copy / "docs/benchmarks.md"
    docs.write_text(docs.read_text().replace("| `link.ring` |", f"{DOCS}| `link.ring` |", 1))
    schema = _run_python(copy, "-m", "spbench", "schema")
    (copy / SCHEMA).write_text(schema.stdout)
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=copy,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (Path(line[3:]) for line in changed.stdout.splitlines())
    return sorted(path for path in paths if path.suffix in (".py", ".md", ".json", ".toml"))


def _run_test(copy: Path) -> bool:
    layout = VERTICAL if (copy / VERTICAL.entry).is_file() else BY_LAYER
    completed = _run_python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(layout.test))
    if completed.returncode:
        sys.stderr.write(completed.stdout + completed.stderr)
    return completed.returncode == 0


def _run_python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the sources of a copy."""
    sources = os.pathsep.join(str(copy / name) for name in ("core", "console", "workers"))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": sources},
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
