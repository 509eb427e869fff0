"""Swept parameters as columns of the Results page's tables."""

from spbench.tui.results.swept_columns import choose_swept_columns
from spbench.tui.widgets.table_columns import Column, lay_out

OTHERS = (Column("case", "case", 14, flexible=True), Column("time", "time ms", 8, "right"))
CASES = [
    f"exchange[slice_method={method},halo_len={halo},np=4]"
    for method in ("vertical", "horizontal")
    for halo in (1, 12)
]


def list_titles(swept):
    return [column.title for column in swept.columns(OTHERS)]


def test_differing_parameters_get_columns_if_there_is_room():
    swept = choose_swept_columns(CASES, OTHERS, 80)
    assert list_titles(swept) == ["case", "slice_method", "halo_len", "time ms"]
    assert swept.cells(CASES[0]) == ["exchange[np=4]", "vertical", "1"]
    assert lay_out(swept.columns(OTHERS), 80).left_out == 0


def test_case_without_the_parameter_has_an_empty_cell():
    swept = choose_swept_columns([*CASES, "small"], OTHERS, 80)
    assert swept.cells("small") == ["small", "", "", ""]


def test_ids_stay_complete_without_room():
    others = (*OTHERS, Column("note", "note", 60))
    names = [f"x[a={number}]" for number in (1, 2)]
    roomy = choose_swept_columns(names, (*OTHERS, Column("note", "note", 85)), 100)
    assert (list_titles(roomy), roomy.cells(names[0])) == (["case", "time ms"], [names[0]])
    assert choose_swept_columns(CASES, others, 80).cells(CASES[0]) == [CASES[0]]


def test_does_not_add_a_column_at_the_cost_of_another():
    others = (*OTHERS, Column("note", "note", 40, drop_priority=1))
    assert list_titles(choose_swept_columns(CASES, others, 80)) == ["case", "time ms"]


def test_dispensable_column_makes_room_for_ids():
    others = (
        *OTHERS,
        Column("unit", "unit", 30, drop_priority=2),
        Column("note", "note", 20, drop_priority=1),
    )
    swept = choose_swept_columns(CASES, others, 80)
    assert "slice_method" in list_titles(swept)
    assert [placement.column.key for placement in lay_out(swept.columns(others), 80).placed][
        -1
    ] == "note"


def test_parameters_are_sorted_by_value_then_texts():
    texts = ["-1", "0.5", "2.5", "10.5", "nan", "none"]
    cases = [f"x[a={text}]" for text in texts]
    swept = choose_swept_columns(cases, OTHERS, 80)
    (column,) = (column.key for column in swept.columns(OTHERS) if column.title == "a")
    shuffled = [*cases[1::2], *cases[::2]]
    assert sorted(shuffled, key=lambda case: swept.sort_value(case, column) or ()) == cases


def test_integers_are_sorted_by_value():
    swept = choose_swept_columns(CASES, OTHERS, 80)
    (column,) = (column.key for column in swept.columns(OTHERS) if column.title == "halo_len")
    value_1, value_12 = (swept.sort_value(case, column) for case in CASES[:2])
    assert swept.contains(column)
    assert not swept.contains("case")
    assert value_1 < value_12
