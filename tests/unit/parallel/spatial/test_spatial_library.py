"""The public names of `spbench_parallel.spatial`, which docs/spatial.md calls a library."""

import subprocess
import sys

import pytest

from places import DOCS
from spbench_parallel import spatial

PAGE = DOCS / "spatial.md"


@pytest.mark.parametrize("name", spatial.__all__)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(spatial, name)
    assert value.__name__ == name
    assert value.__doc__, "a docstring of its own, not torch's"
    assert f"`{name}`" in PAGE.read_text()


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"spatial' has no attribute 'Tile'"):
        _ = spatial.Tile


@pytest.mark.slow
def test_a_rank_loads_only_the_operators_that_it_asks_for():
    pytest.importorskip("torch")
    code = (
        "import sys; from spbench_parallel.spatial import Tiling; "
        "print(*(name for name in sys.modules if name.startswith('spbench_parallel.spatial')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) == {
        "spbench_parallel.spatial",
        "spbench_parallel.spatial.tiling",
    }
