"""Registration of benchmarks: families are found by folder, entries are checked."""

import subprocess
import sys
from dataclasses import replace

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.registration import (
    RegistrationError,
    has_family,
    list_families,
    load_family_entries,
    load_family_modules,
    select_valid_entries,
)
from support.paths import ROOT

SOURCES = [ROOT / name for name in ("core", "console", "workers")]
FOLDERS = ROOT / "workers/spbench_workers/benchmarks"
EXCHANGE = BENCHMARKS["halo.exchange"]

NEW_FAMILY = """
from dataclasses import replace
from spbench_core.catalog.benchmark import TIME_MS, Benchmark

POSITION = 15
BENCHMARKS = (
    Benchmark(
        name="clock.drift",
        summary="the drift of clocks",
        params=(),
        metrics=(TIME_MS,),
        checks=("order",),
        faults=("late",),
    ),
)
"""


def test_each_folder_with_an_entry_is_a_family():
    folders = {path.parent.name for path in FOLDERS.glob("*/entry.py")}
    assert set(list_families()) == folders
    assert {name.partition(".")[0] for name in BENCHMARKS if not BENCHMARKS[name].plugin} == folders


@pytest.mark.parametrize("family", list_families())
def test_the_catalog_has_all_entries_of_each_family(family):
    for name, entry in load_family_entries(family).items():
        assert BENCHMARKS[name] is entry
        assert name.partition(".")[0] == family


@pytest.mark.parametrize("name", ["", ".", "..", "halo/../link", "none", "__pycache__", "Halo"])
def test_other_names_are_not_families(name):
    assert not has_family(name)


def test_loads_a_module_only_from_families_that_have_it():
    modules = [module.__name__ for module in load_family_modules("scripts")]
    names = [f"spbench_workers.benchmarks.{name}.scripts" for name in ("halo", "kvstore", "model")]
    assert modules == names


def copy_sources(tmp_path, family=None):
    """Copy the sources without metadata; with `family`, add NEW_FAMILY to the copy."""
    tree_path = tmp_path / "tree"
    for source in SOURCES:
        tree_path.mkdir(exist_ok=True)
        subprocess.run(["cp", "-r", str(source), str(tree_path)], check=True)
    if family is not None:
        folder = tree_path / "workers/spbench_workers/benchmarks" / family
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "entry.py").write_text(NEW_FAMILY)
    return tree_path


def run_program(tree, program):
    """Return the words that a program prints if it imports only from a source tree."""
    paths = [str(tree / source.name) for source in SOURCES]
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {paths!r}\n{program}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tree,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.split()


def test_a_source_tree_without_metadata_has_all_families(tmp_path):
    tree = copy_sources(tmp_path)
    names = run_program(tree, "from spbench_core.catalog import BENCHMARKS; print(*BENCHMARKS)")
    assert names == [name for name in BENCHMARKS if not BENCHMARKS[name].plugin]


@pytest.mark.slow
def test_a_folder_with_an_entry_adds_a_family_at_its_position(tmp_path):
    tree = copy_sources(tmp_path, "clock")
    names = run_program(tree, "from spbench_core.catalog import BENCHMARKS; print(*BENCHMARKS)")
    assert names[names.index("clock.drift") - 1].startswith("halo.")
    assert names[names.index("clock.drift") + 1].startswith("link.")
    run = "from spbench_core.catalog import BENCHMARKS; print(BENCHMARKS['clock.drift'].module)"
    assert run_program(tree, run) == ["spbench_workers.benchmarks.clock.drift"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["POSITION", "BENCHMARKS"])
def test_names_an_entry_module_with_a_missing_constant(tmp_path, name):
    tree = copy_sources(tmp_path, "clock")
    entry = tree / "workers/spbench_workers/benchmarks/clock/entry.py"
    entry.write_text(NEW_FAMILY.replace(f"{name} =", "OTHER ="))
    program = (
        "from spbench_core.catalog import BENCHMARKS, registration\ntry: list(BENCHMARKS)\n"
        "except registration.RegistrationError as error: print(error)"
    )
    module = "spbench_workers.benchmarks.clock.entry"
    expected = f"{module} does not define {name}, which every family requires"
    assert " ".join(run_program(tree, program)) == expected


def test_a_lookup_imports_only_the_family_of_its_name(tmp_path):
    program = (
        "from spbench_core.catalog import BENCHMARKS; BENCHMARKS['kvstore.push_pull']; "
        "print(*(name for name in sys.modules if 'benchmarks.' in name and name.endswith('entry')))"
    )
    modules = run_program(copy_sources(tmp_path), f"import sys; {program}")
    assert modules == ["spbench_workers.benchmarks.kvstore.entry"]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (None, "expected Benchmark, got NoneType"),
        (replace(EXCHANGE, name="halo"), "invalid benchmark name 'halo'"),
        (replace(EXCHANGE, metrics=EXCHANGE.metrics[1:]), "metric time_ms is missing"),
        (replace(EXCHANGE, checks=()), "needs a check"),
        (
            replace(EXCHANGE, metrics=(*EXCHANGE.metrics, None)),
            "expected a Metric, got None",
        ),
    ],
    ids=["no entry", "name", "time", "checks", "metric"],
)
def test_rejects_malformed_built_in_entries(entry, problem):
    with pytest.raises(RegistrationError, match=problem):
        select_valid_entries([entry], {})


def test_rejects_a_duplicate_name(messages):
    with messages.raises(RegistrationError):
        select_valid_entries([EXCHANGE, EXCHANGE], {})
