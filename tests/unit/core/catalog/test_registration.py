"""Registration of benchmarks: families are found by their folders, entries are checked."""

import subprocess
import sys
from dataclasses import replace

import pytest

from places import ROOT
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.registration import (
    RegistrationError,
    has_family,
    list_families,
    load_family_entries,
    load_family_modules,
    register,
)

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


def test_every_folder_with_an_entry_is_a_family():
    folders = {path.parent.name for path in FOLDERS.glob("*/entry.py")}
    assert set(list_families()) == folders
    assert {name.partition(".")[0] for name in BENCHMARKS if not BENCHMARKS[name].plugin} == folders


@pytest.mark.parametrize("family", list_families())
def test_the_catalog_has_the_entries_of_each_family_under_its_name(family):
    for name, entry in load_family_entries(family).items():
        assert BENCHMARKS[name] is entry
        assert name.partition(".")[0] == family


@pytest.mark.parametrize("name", ["", ".", "..", "halo/../link", "none", "__pycache__", "Halo"])
def test_other_names_are_no_families(name):
    assert not has_family(name)


def test_modules_of_families_are_those_that_have_one():
    modules = [module.__name__ for module in load_family_modules("scripts")]
    names = [f"spbench_workers.benchmarks.{name}.scripts" for name in ("halo", "kvstore", "model")]
    assert modules == names


def source_tree(tmp_path, family=None):
    """Return a copy of the sources without installed metadata, with a family more if asked for."""
    tree = tmp_path / "tree"
    for source in SOURCES:
        tree.mkdir(exist_ok=True)
        subprocess.run(["cp", "-r", str(source), str(tree)], check=True)
    if family is not None:
        folder = tree / "workers/spbench_workers/benchmarks" / family
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "entry.py").write_text(NEW_FAMILY)
    return tree


def printed(tree, program):
    """Return what a program prints that sees the sources of a tree, and no installed package."""
    paths = [str(tree / source.name) for source in SOURCES]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {paths!r}\n{program}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tree,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_source_tree_without_metadata_has_all_families(tmp_path):
    tree = source_tree(tmp_path)
    names = printed(tree, "from spbench_core.catalog import BENCHMARKS; print(*BENCHMARKS)")
    assert names == [name for name in BENCHMARKS if not BENCHMARKS[name].plugin]


def test_a_folder_with_an_entry_adds_a_family_at_its_position(tmp_path):
    tree = source_tree(tmp_path, "clock")
    names = printed(tree, "from spbench_core.catalog import BENCHMARKS; print(*BENCHMARKS)")
    assert names[names.index("clock.drift") - 1].startswith("halo.")
    assert names[names.index("clock.drift") + 1].startswith("link.")
    run = "from spbench_core.catalog import BENCHMARKS; print(BENCHMARKS['clock.drift'].module)"
    assert printed(tree, run) == ["spbench_workers.benchmarks.clock.drift"]


@pytest.mark.parametrize("name", ["POSITION", "BENCHMARKS"])
def test_an_entry_module_that_lacks_something_is_named(tmp_path, name):
    tree = source_tree(tmp_path, "clock")
    entry = tree / "workers/spbench_workers/benchmarks/clock/entry.py"
    entry.write_text(NEW_FAMILY.replace(f"{name} =", "OTHER ="))
    program = (
        "from spbench_core.catalog import BENCHMARKS, registration\ntry: list(BENCHMARKS)\n"
        "except registration.RegistrationError as error: print(error)"
    )
    module = "spbench_workers.benchmarks.clock.entry"
    text = f"{module} does not define {name}, which every family requires"
    assert " ".join(printed(tree, program)) == text


def test_a_name_imports_its_own_family_only(tmp_path):
    program = (
        "from spbench_core.catalog import BENCHMARKS; BENCHMARKS['kvstore.push_pull']; "
        "print(*(name for name in sys.modules if 'benchmarks.' in name and name.endswith('entry')))"
    )
    found = printed(source_tree(tmp_path), f"import sys; {program}")
    assert found == ["spbench_workers.benchmarks.kvstore.entry"]


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
def test_a_malformed_entry_of_ours_is_an_error(entry, problem):
    with pytest.raises(RegistrationError, match=problem):
        register([entry], {})


def test_two_entries_of_one_name_are_an_error():
    with pytest.raises(RegistrationError, match=r"name 'halo\.exchange' is used by spbench"):
        register([EXCHANGE, EXCHANGE], {})
