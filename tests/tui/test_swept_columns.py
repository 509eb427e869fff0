"""Swept parameters as columns of the Results page's tables."""

from spbench.tui.results.swept_columns import choose_swept_columns
from spbench.tui.widgets.table_columns import Column, lay_out

OTHERS = (Column("case", "case", 14, flexible=True), Column("time", "time ms", 8, "right"))
CASES = [
    f"exchange[slice_method={how},halo_len={halo},np=4]"
    for how in ("vertical", "horizontal")
    for halo in (1, 12)
]


def titles(found):
    return [column.title for column in found.columns(OTHERS)]


def test_what_differs_has_a_column_where_there_is_room():
    found = choose_swept_columns(CASES, OTHERS, 80)
    assert titles(found) == ["case", "slice_method", "halo_len", "time ms"]
    assert found.cells(CASES[0]) == ["exchange[np=4]", "vertical", "1"]
    assert lay_out(found.columns(OTHERS), 80).left_out == 0


def test_a_case_without_the_parameter_has_an_empty_cell():
    found = choose_swept_columns([*CASES, "small"], OTHERS, 80)
    assert found.cells("small") == ["small", "", "", ""]


def test_without_room_ids_stay_whole_or_lose_their_keys():
    others = (*OTHERS, Column("note", "note", 60))
    short = [case.replace("exchange", "x") for case in CASES]
    names = [f"x[a={number}]" for number in (1, 2)]
    roomy = choose_swept_columns(names, (*OTHERS, Column("note", "note", 73)), 100)
    assert (titles(roomy), roomy.cells(names[0])) == (["case", "time ms"], [names[0]])
    assert choose_swept_columns(short, others, 100).cells(short[0]) == ["x[vertical,1,4]"]
    assert choose_swept_columns(CASES, others, 80).cells(CASES[0]) == ["exchange[vertical,1,4]"]


def test_a_column_that_another_would_cost_is_not_added():
    others = (*OTHERS, Column("note", "note", 40, rank=1))
    assert titles(choose_swept_columns(CASES, others, 80)) == ["case", "time ms"]


def test_a_column_of_little_use_makes_room_where_ids_would_be_cut():
    others = (*OTHERS, Column("unit", "unit", 30, rank=2), Column("note", "note", 20, rank=1))
    found = choose_swept_columns(CASES, others, 80)
    assert "slice_method" in titles(found)
    assert [place.column.key for place in lay_out(found.columns(others), 80).placed][-1] == "note"


def test_whole_numbers_are_sorted_by_their_size():
    found = choose_swept_columns(CASES, OTHERS, 80)
    (column,) = (column.key for column in found.columns(OTHERS) if column.title == "halo_len")
    one, twelve = (found.sort_value(case, column) for case in CASES[:2])
    assert found.contains(column)
    assert not found.contains("case")
    assert one < twelve
