"""What an unexpected exception says about its origin, wherever spbench and its user's files lie."""

import re
import runpy

import pytest

from spbench import errors
from spbench.errors import describe_defect, did_you_mean
from spbench_core.layout.tiles import make_grid


def raised(action):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it raises
        action()
    return caught.value


@pytest.mark.parametrize("folder", ["spbench", "spbench_core", "my/spbench/spbench"])
def test_a_users_file_is_not_taken_for_spbenchs_own(tmp_path, folder):
    script = tmp_path / folder / "plugin.py"
    script.parent.mkdir(parents=True)
    script.write_text("1 / 0\n")
    error = raised(lambda: runpy.run_path(str(script)))
    assert describe_defect(error) == "a defect of spbench: ZeroDivisionError: division by zero"


def test_the_innermost_line_of_spbench_is_named_before_the_users(tmp_path):
    class Word(str):
        def __len__(self):
            raise OSError("of the user")

    error = raised(lambda: did_you_mean(Word("a"), ["b"]))
    assert re.fullmatch(
        r"a defect of spbench at errors\.py:\d+: OSError: of the user", describe_defect(error)
    )


def test_lines_of_the_core_are_spbenchs_own():
    error = raised(lambda: make_grid("square", 3))
    assert re.match(r"a defect of spbench at layout/tiles\.py:\d+: ", describe_defect(error))


def test_packages_are_found_where_they_lie():
    assert all(folder.endswith(("/spbench/", "/spbench_core/")) for folder in errors._PACKAGES)
