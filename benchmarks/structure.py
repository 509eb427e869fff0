"""Count obstacles to reading the code: sets of strings, and scattered knowledge.

    python -m benchmarks.structure [TREE ...]

Each TREE is a checkout; without one, this checkout is counted. Columns are trees, rows are:

- comparisons with a status as a string, such as `status == "error"`
- names of launchers and of schedulers outside of their modules
- lists of launchers and of schedulers
- classes that keep the worst error so far
- functions of the training library that time rounds of something
- modules of the training library that import a benchmark's `Context`
- reads of a parameter by its name in modules that run a benchmark
- known definitions of each of `IDEAS`, which were written several times

With --list the positions are printed, too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.goals import make_argument_parser

ROOT = Path(__file__).parents[1]
SOURCES = ("core", "console", "workers")
STATUSES = frozenset(
    {
        *("waiting", "running", "passed", "failed", "error", "timeout", "cancelled", "skipped"),
        *("flaky", "unfinished", "starting", "ready", "setup", "done", "lost", "ended", "ok"),
        *("better", "worse", "same"),
    }
)
NOT_STATUSES = (
    "kind",
    "kinds",
    "padding",
    "event",
    "better",
    "fold",
    "name",
    "key",
    "word",
    "column",
    "field",
)
"""Names of other values that may equal the text of a status."""
LAUNCHERS = frozenset({"mpirun_rsh", "hydra", "openmpi", "srun"})
OWN_MODULES = ("launch/launchers/", "batch/schedulers/")
SCHEDULERS = frozenset({"slurm", "pbs", "lsf", "flux"})
LIBRARY = ("parallel", "spatial", "models", "images", "p2p")
Position = tuple[Path, int]


def main() -> int:
    """Print the counts of each tree."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("trees", nargs="*", type=Path, default=[ROOT], help="checkouts")
    parser.add_argument("--list", action="store_true", help="print the places")
    options = parser.parse_args()
    counts: dict[str, list[int]] = {}
    for tree in options.trees:
        modules = dict(_parse_modules(tree))
        for title, find in COUNTED.items():
            positions = [
                (path, line) for path, module in modules.items() for line in find(path, module)
            ]
            counts.setdefault(title, []).append(len(positions))
            for path, line in positions if options.list else ():
                print(f"{path.relative_to(tree)}:{line}: {title}")
    width = max(map(len, counts))
    for title, row in counts.items():
        print(f"{title:{width}}  {'  '.join(f'{count:5}' for count in row)}")
    return 0


def _parse_modules(tree: Path) -> Iterator[tuple[Path, ast.Module]]:
    for root in SOURCES:
        for path in sorted((tree / root).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def _find_status_comparisons(path: Path, module: ast.Module) -> Iterator[int]:
    """Yield the lines that compare something with a status as a string."""
    for node in ast.walk(module):
        if isinstance(node, ast.Compare):
            texts = set().union(*map(_list_strings, [node.left, *node.comparators]))
            if texts & STATUSES and not _is_other(node.left):
                yield node.lineno
        elif isinstance(node, ast.MatchValue) and _list_strings(node.value) & STATUSES:
            yield node.value.lineno


def _is_other(node: ast.expr) -> bool:
    """Return whether the left side of a comparison is not a status by its name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.rstrip("_") in NOT_STATUSES
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name in NOT_STATUSES
        case ast.Constant():
            return True  # `"error" in found`: a key
    return False


def _list_strings(node: ast.expr) -> set[str]:
    """Return the strings of a constant, or of a tuple, list or set of constants."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return set().union(*map(_list_strings, parts))
    return set()


def _list_keys(node: ast.Dict) -> set[str]:
    """Return the strings among the keys of a dictionary."""
    return {text for key in node.keys if key is not None for text in _list_strings(key)}


def _find_names_outside(names: frozenset[str]) -> Callable[[Path, ast.Module], Iterator[int]]:
    def find(path: Path, module: ast.Module) -> Iterator[int]:
        """Yield the lines that compare with a name, or use some as keys."""
        if any(module_path in path.as_posix() for module_path in OWN_MODULES):
            return
        for node in ast.walk(module):
            if isinstance(node, ast.Compare):
                parts = [node.left, *node.comparators]
                if any(_list_strings(part) & names for part in parts):
                    yield node.lineno
            elif isinstance(node, ast.Dict) and len(_list_keys(node) & names) > 1:
                yield node.lineno

    return find


def _find_lists(names: frozenset[str]) -> Callable[[Path, ast.Module], Iterator[int]]:
    def find(path: Path, module: ast.Module) -> Iterator[int]:
        """Yield the lines of collections with more than two of the names."""
        for node in ast.walk(module):
            if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
                texts = _list_keys(node) if isinstance(node, ast.Dict) else _list_strings(node)
                if len(texts & names) > 2:
                    yield node.lineno

    return find


def _find_worst_error_classes(path: Path, module: ast.Module) -> Iterator[int]:
    """Yield the lines of classes, by known names, that keep the largest error."""
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and node.name in WORST:
            names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            if node.name == "WorstError" or "WorstError" not in names:
                yield node.lineno


def _find_timed_rounds(path: Path, module: ast.Module) -> Iterator[int]:
    """Yield the lines of functions of the library that time rounds and take medians."""
    if not {*LIBRARY, "spbench_parallel"} & set(path.parts):
        return
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            loops = [loop for loop in ast.walk(node) if isinstance(loop, ast.For | ast.While)]
            heads = [loop.iter if isinstance(loop, ast.For) else loop.test for loop in loops]
            names = {
                name.id for head in heads for name in ast.walk(head) if isinstance(name, ast.Name)
            }
            if names & ROUNDS:
                yield node.lineno


ROUNDS = frozenset({"ROUNDS", "_ROUNDS", "rounds"})


WORST = frozenset(
    {
        *("Mismatch", "WorstDifference", "WorstError", "Worst", "PayloadDifference"),
        *("ProductErrors",),
    }
)


def _find_context_imports(path: Path, module: ast.Module) -> Iterator[int]:
    """Yield the line on which a module of the training library imports `Context`."""
    parts = path.parts
    package = parts[parts.index("spbench_workers") + 1] if "spbench_workers" in parts else ""
    if package not in LIBRARY and "spbench_parallel" not in parts:
        return
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == "spbench_workers.context":
            yield node.lineno
            return


def _find_named_reads(path: Path, module: ast.Module) -> Iterator[int]:
    """Yield the lines that read a parameter by its name.

    Modules that complete the parameters of an entry are left out: their values are incomplete.
    """
    short_path = "/".join(path.parts[-2:])
    if "spbench_workers" not in path.parts or {path.name, short_path} & COMPLETING:
        return
    for node in ast.walk(module):
        match node:
            case ast.Subscript(value=owner, slice=ast.Constant(value=str())):
                pass
            case ast.Call(func=ast.Attribute(value=owner, attr="get")):
                pass
            case _:
                continue
        if (
            isinstance(owner, ast.Name | ast.Attribute)
            and _read_last_name(owner).strip("_") == "params"
        ):
            yield node.lineno


def _read_last_name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


COMPLETING = frozenset(
    {
        *("entry.py", "entries.py", "scripts.py"),
        *("model/resolving.py", "model/layout.py", "model/params.py"),
        # These read any benchmark's parameters, which have no common dataclass.
        *("spbench_workers/session.py", "spbench_workers/timing.py", "spbench_workers/context.py"),
        "spbench_workers/device_choice.py",
    }
)
"""Modules that complete parameters or read those of any benchmark, with or without a folder."""


def _find_definitions(idea: frozenset[str]) -> Callable[[Path, ast.Module], Iterator[int]]:
    def find(path: Path, module: ast.Module) -> Iterator[int]:
        """Yield the lines of definitions at the top of a module that are one of an idea."""
        for node in module.body:
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    pass
                case ast.Assign(targets=[ast.Name(id=name)]):
                    pass
                case ast.AnnAssign(target=ast.Name(id=name)):
                    pass
                case _:
                    continue
            if name in idea or f"{path.parent.name}/{path.stem}.{name}" in idea:
                yield node.lineno

    return find


IDEAS = {
    "the type of an event": frozenset({"Event"}),
    "the type of rows and columns": frozenset(
        {"networks/graph.Pair", "models/parts.Pair", "spatial/conv.Pair", "layout/window.Pair"}
    ),
    "one number for rows and columns": frozenset(
        {
            "networks/graph._pair",
            "models/parts._pair",
            "spatial/conv._pair",
            "both_axes",
            "expand_pair",
        }
        | {"full_size/windows._two", "pipeline/later_weights._pair", "precision/int8._both"}
        | {"imported/counterparts._pair", "imported/over_tiles._pair", "device/convolution._across"}
        | {"parallel/network._sides", "spbench_parallel/network._sides"}
    ),
    "the shape of a map": frozenset({"Map", "MapShape"}),
    "the error of a network": frozenset({"ModelError", "NetworkError"}),
    "the simulation of a step": frozenset(
        {"schedule/simulation._Player", "schedule/timetable._Row"}
        | {"schedule/rounds_timetable._Step", "StepSimulation"}
    ),
    "a tuple of tensors": frozenset(
        {"parallel/layer_times.Tensors", "spbench_parallel/layer_times.Tensors"}
        | {"pipeline/stage_runner.Tensors", "pipeline/recomputation.Tensors"}
        | {"full_size/joints.Tensors", "fused/graph_blocks.Tensors", "TensorTuple"}
    ),
    "a count with its noun": frozenset(
        {"record/number_formatting.counted", "launch/gpu_needs._counted", "report/scaling._ranks"}
        | {"launch/devices._counted", "format_quantity"}
    ),
    "a number with three digits": frozenset(
        {"results/cells.figure", "run/cells.figure", "report/tables._figure"}
        | {"formats/words.figure", "record/number_formatting.format_value"}
    ),
    "a share in percent with three digits": frozenset(
        {"results/cells.percent", "gate/words.percent", "record/number_formatting.format_percent"}
    ),
}
"""Definitions of ideas that were written several times, by title.

A definition is a name that only this idea has, or the last folder, the module and the name. Names
of earlier commits are kept, because a tree may be older. New definitions under other names are
missed.
"""


COUNTED: dict[str, Callable[[Path, ast.Module], Iterator[int]]] = {
    "comparisons with a status as a string": _find_status_comparisons,
    "names of launchers outside of their modules": _find_names_outside(LAUNCHERS),
    "names of schedulers outside of their modules": _find_names_outside(SCHEDULERS),
    "lists of launchers": _find_lists(LAUNCHERS),
    "lists of schedulers": _find_lists(SCHEDULERS),
    "classes for the worst error so far": _find_worst_error_classes,
    "functions of the library that time rounds": _find_timed_rounds,
    "modules of the library that import Context": _find_context_imports,
    "reads of a parameter by its name": _find_named_reads,
    **{f"known definitions of {title}": _find_definitions(idea) for title, idea in IDEAS.items()},
}


if __name__ == "__main__":
    sys.exit(main())
