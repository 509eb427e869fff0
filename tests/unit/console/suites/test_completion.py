"""Words that a suite allows at a position of a text that is being typed."""

import pytest

from spbench.suites.edit.completion import complete

TEXT = """\
schema: spbench.suite/1
name: a
defaults:
  params:
    |D
cases:
  - name: first
    |C
    benchmark: halo.exchange
    params:
      image_size: 64
      |P
      slice_method: |V
  - name: second
    benchmark: |B
    params: {|F
|T
"""


def complete_mark(mark, typed=""):
    text = TEXT.replace(f"|{mark}", f"{typed}\0")
    for other in "DCPVBFT":
        text = text.replace(f"|{other}", "")
    if mark != "B":
        text = text.replace("benchmark: \n    params: {", "benchmark: link.ring\n    params: {")
    lines = text.splitlines()
    row = next(number for number, line in enumerate(lines) if "\0" in line)
    column = lines[row].index("\0")
    lines[row] = lines[row].replace("\0", "")
    return complete(lines, row, column)


@pytest.mark.parametrize(
    ("mark", "present", "absent", "suffix"),
    [
        ("T", "launch", "name", ": "),
        ("D", "iterations", "np", ": "),
        ("C", "matrix", "benchmark", ": "),
        ("P", "halo_len", "image_size", ": "),
        ("V", "vertical", "halo_len", ""),
        ("B", "link.ring", "name", ""),
        ("F", "rings", "image_size", ": "),
    ],
)
def test_lists_the_words_of_the_section(mark, present, absent, suffix):
    completion = complete_mark(mark)
    assert present in completion.text_by_word
    assert absent not in completion.text_by_word
    assert completion.suffix == suffix


def test_replaces_the_typed_part_of_a_word():
    assert complete_mark("P", "hal").typed == "hal"
    assert complete_mark("B", "link.p").typed == "link.p"
    assert complete_mark("C", "matrix: 3 ") is not None
