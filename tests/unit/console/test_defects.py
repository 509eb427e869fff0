"""Tests of describing the origin of unexpected exceptions."""

import re
import runpy

import pytest

from spbench import errors
from spbench.errors import describe_defect, did_you_mean
from spbench_core.layout.tiles import make_grid


def catch_error(action):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any exception
        action()
    return caught.value


@pytest.mark.parametrize("folder", ["spbench", "spbench_core", "my/spbench/spbench"])
def test_file_of_a_user_is_not_attributed_to_spbench(tmp_path, folder, messages):
    script = tmp_path / folder / "plugin.py"
    script.parent.mkdir(parents=True)
    script.write_text("1 / 0\n")
    error = catch_error(lambda: runpy.run_path(str(script)))
    messages.check(describe_defect(error))


def test_innermost_line_of_spbench_is_reported(tmp_path):
    class Word(str):
        def __len__(self):
            raise OSError("of the user")

    error = catch_error(lambda: did_you_mean(Word("a"), ["b"]))
    assert re.fullmatch(
        r"a defect of spbench at errors\.py:\d+: OSError: of the user", describe_defect(error)
    )


def test_lines_of_the_core_belong_to_spbench():
    error = catch_error(lambda: make_grid("square", 3))
    assert re.match(r"a defect of spbench at layout/tiles\.py:\d+: ", describe_defect(error))


def test_package_folders_end_with_their_names():
    assert all(folder.endswith(("/spbench/", "/spbench_core/")) for folder in errors._PACKAGES)


def test_suggests_the_names_of_a_group():
    names = ["halo.compute", "compute.gemm", "compute.conv", "compute.noise", "compute.more"]
    expected = " (did you mean compute.gemm, compute.conv or compute.noise?)"
    assert did_you_mean("compute", names) == expected
    assert did_you_mean("compute.gem", names) == " (did you mean compute.gemm?)"
    assert did_you_mean("halo.comput", names) == " (did you mean halo.compute?)"
