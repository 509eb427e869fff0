"""Public names of the training library, their documentation, former modules."""

import importlib
import subprocess
import sys

import pytest

from spbench_parallel import api
from support.paths import DOCS

PAGES = "".join((DOCS / name).read_text() for name in ("library.md", "spatial.md"))


@pytest.mark.parametrize("name", api.__all__)
def test_every_public_name_exists_and_is_documented(name):
    value = getattr(api, name)
    assert f"`{name}`" in PAGES
    if name != "Load":
        assert value.__name__ == name
        assert value.__doc__, "a docstring of its own, not torch's"


def test_an_unknown_name_raises_attribute_error(messages):
    with messages.raises(AttributeError):
        _ = api.Tile


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("spbench_workers.library", ["Box", "CannotRunError", "Load", "ParallelNetwork"]),
        ("spbench_workers.spatial", ["SpatialConv2d", "Tiling", "fuse"]),
    ],
)
def test_former_modules_have_the_same_names(module, names):
    former = importlib.import_module(module)
    assert [getattr(former, name) for name in names] == [getattr(api, name) for name in names]


def test_the_example_network_has_its_former_name_in_suites():
    former = importlib.import_module("spbench_workers.models.imported.example")
    current = importlib.import_module("spbench_parallel.models.imported.example")
    assert former.UNet is current.UNet


@pytest.mark.slow
def test_a_rank_loads_only_the_imported_operators():
    pytest.importorskip("torch")
    code = (
        "import sys; from spbench_parallel.api import Tiling; "
        "print(*(name for name in sys.modules if name.startswith('spbench_parallel.spatial')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {"spbench_parallel.spatial", "spbench_parallel.spatial.tiling"}
    assert set(run.stdout.split()) == modules
