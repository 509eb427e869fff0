"""The counts of `benchmarks.structure`, and those that must stay zero."""

import ast
from functools import cache
from pathlib import Path

import pytest
from benchmarks.structure import COUNTED, IDEAS, ROOT, SOURCES

pytestmark = pytest.mark.slow

STATUSES = "comparisons with a status as a string"
NAMES = "names of launchers outside of their modules"
PATH = Path("console/spbench/record/other.py")


def count_hits(title, text, path=PATH):
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
    assert count_hits(STATUSES, text) == 1


@pytest.mark.parametrize("text", ["status == CaseStatus.ERROR", 'event["event"] == "ready"'])
def test_enums_and_kinds_of_events_are_not_counted(text):
    assert count_hits(STATUSES, text) == 0


def test_finds_launchers_compared_by_name():
    assert count_hits(NAMES, 'launcher.name == "srun"') == 1
    launcher_module = Path("console/spbench/launch/launchers/srun.py")
    assert count_hits(NAMES, 'name == "srun"', launcher_module) == 0


@cache
def parse_modules():
    paths = (path for source in SOURCES for path in sorted((ROOT / source).rglob("*.py")))
    return [(path, ast.parse(path.read_text())) for path in paths]


def find_hits(title):
    return [
        f"{path.relative_to(ROOT)}:{line}"
        for path, module in parse_modules()
        for line in COUNTED[title](path, module)
    ]


def test_no_status_is_compared_as_a_string():
    assert find_hits(STATUSES) == []


def test_launchers_are_named_in_their_modules_only():
    assert find_hits(NAMES) == []


@pytest.mark.parametrize(
    "title",
    [
        *("lists of launchers", "lists of schedulers", "classes for the worst error so far"),
        *(f"known definitions of {idea}" for idea in IDEAS),
    ],
)
def test_idea_is_defined_once(title):
    assert len(find_hits(title)) == 1


def test_counts_definitions_by_name_and_by_module():
    title = "known definitions of one number for rows and columns"
    assert count_hits(title, "def both_axes(): ...", Path("core/networks/other.py")) == 1
    assert count_hits(title, "def _pair(): ...", Path("core/networks/graph.py")) == 1
    assert count_hits(title, "def _pair(): ...", Path("core/networks/other.py")) == 0
    title = "known definitions of the shape of a map"
    assert count_hits(title, "Map = tuple[int, int, int]", Path("core/networks/other.py")) == 1


def test_benchmarks_read_parameters_as_attributes():
    title = "reads of a parameter by its name"
    assert find_hits(title) == []
    module = Path("workers/spbench_workers/benchmarks/halo/compute.py")
    assert count_hits(title, 'context.params["kernel"]', module) == 1
    assert count_hits(title, 'params.get("kernel")', module) == 1
    assert count_hits(title, 'self._params["kernel"]', module) == 1
    assert count_hits(title, 'params["kernel"]', module.with_name("entry.py")) == 0


def test_library_does_not_import_context():
    title = "modules of the library that import Context"
    assert find_hits(title) == []
    path = Path("workers/spbench_parallel/engine.py")
    assert count_hits(title, "from spbench_workers.context import Context", path) == 1
