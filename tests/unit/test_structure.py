"""The counts of `benchmarks.structure`, and those that stay at nothing."""

import ast
from functools import cache
from pathlib import Path

import pytest
from benchmarks.structure import COUNTED, IDEAS, ROOT, SOURCES

pytestmark = pytest.mark.slow

STATUSES, NAMES = list(COUNTED)[:2]
PATH = Path("console/spbench/record/other.py")


def count(title, text, path=PATH):
    return len(list(COUNTED[title](path, ast.parse(text))))


@pytest.mark.parametrize(
    "text",
    [
        'case.status == "error"',
        'status not in ("passed", "failed")',
        'match status:\n    case "error":\n        pass',
    ],
)
def test_finds_statuses_that_are_compared_as_strings(text):
    assert count(STATUSES, text) == 1


@pytest.mark.parametrize("text", ["status == CaseStatus.ERROR", 'event["event"] == "ready"'])
def test_enums_and_kinds_of_events_are_not_counted(text):
    assert count(STATUSES, text) == 0


def test_finds_launchers_by_their_names():
    assert count(NAMES, 'launcher.name == "srun"') == 1
    own = Path("console/spbench/launch/launchers/srun.py")
    assert count(NAMES, 'name == "srun"', own) == 0


@cache
def modules():
    paths = (path for source in SOURCES for path in sorted((ROOT / source).rglob("*.py")))
    return [(path, ast.parse(path.read_text())) for path in paths]


def found(title):
    return [
        f"{path.relative_to(ROOT)}:{line}"
        for path, module in modules()
        for line in COUNTED[title](path, module)
    ]


def test_no_status_is_compared_as_a_string():
    assert found(STATUSES) == []


def test_launchers_are_known_by_name_in_their_modules_only():
    assert found(NAMES) == []


@pytest.mark.parametrize(
    "title",
    [
        *("lists of launchers", "lists of schedulers", "classes for the worst error so far"),
        *(f"known definitions of {idea}" for idea in IDEAS),
    ],
)
def test_there_is_one_of_each(title):
    assert len(found(title)) == 1


def test_counts_definitions_by_name_and_by_module():
    title = "known definitions of one number for rows and columns"
    assert count(title, "def both_axes(): ...", Path("core/networks/other.py")) == 1
    assert count(title, "def _pair(): ...", Path("core/networks/graph.py")) == 1
    assert count(title, "def _pair(): ...", Path("core/networks/other.py")) == 0
    title = "known definitions of the shape of a map"
    assert count(title, "Map = tuple[int, int, int]", Path("core/networks/other.py")) == 1


def test_benchmarks_read_parameters_as_attributes():
    title = "reads of a parameter by its name"
    assert found(title) == []
    module = Path("workers/spbench_workers/benchmarks/halo/compute.py")
    assert count(title, 'context.params["kernel"]', module) == 1
    assert count(title, 'params.get("kernel")', module) == 1
    assert count(title, 'self._params["kernel"]', module) == 1
    assert count(title, 'params["kernel"]', module.with_name("entry.py")) == 0


def test_the_library_imports_no_context_of_a_benchmark():
    title = "modules of the library that import Context"
    assert found(title) == []
    path = Path("workers/spbench_parallel/engine.py")
    assert count(title, "from spbench_workers.context import Context", path) == 1
