"""Columns of the Results page that fit their cells."""

from spbench.tui.results.fitted_columns import MAX_MEASURED_ROWS, choose_columns
from spbench.tui.widgets.table_columns import MAX_COLUMN_WIDTH, Column, lay_out

COLUMNS = (
    Column("case", "case", 12, flexible=True),
    Column("time", "time", 8, "right"),
    Column("interval", "interval", 14, drop_priority=2),
    Column("reason", "reason", 30, drop_priority=5),
)
CASES = [f"small[how={direction},length=4]" for direction in ("vertical", "across")]


class FewRows:
    """Rows with the given cells after the case."""

    def __init__(self, *cells, cases=CASES):
        self._cells = cells
        self._cases = cases

    def keys(self):
        return self._cases

    def cells(self, key):
        return (key, *self._cells)


def choose_layout(rows, width, cases=CASES):
    swept, columns = choose_columns(COLUMNS, rows, cases, width)
    return swept, {column.key: column.width for column in columns}, lay_out(columns, width)


def test_columns_are_as_wide_as_their_cells_or_titles():
    _, widths, _ = choose_layout(FewRows("12.5 ms", "1 to 2", "x" * 99), 120)
    assert (widths["time"], widths["interval"], widths["reason"]) == (7, 8, MAX_COLUMN_WIDTH)


def test_empty_columns_at_the_end_are_left_out():
    _, widths, layout = choose_layout(FewRows("12.5 ms", "", ""), 120)
    assert "interval" not in widths
    assert layout.left_out == 0


def test_dispensable_columns_make_room_for_whole_ids():
    cases = [f"exchange-of-halos-{letter}" for letter in "ab"]
    _, widths, layout = choose_layout(
        FewRows("12.5 ms", "1.20 to 1.30", "", cases=cases), 40, cases
    )
    assert [placement.column.key for placement in layout.placed] == ["case", "time"]
    assert widths["case"] == len(cases[0])
    assert layout.width < 40, "the mark of the column that is left out has a cell of its own"


def test_ids_that_never_fit_remove_no_column():
    cases = [f"{'long' * 20}{number}" for number in (1, 2)]
    _, widths, layout = choose_layout(FewRows("12.5 ms", "1 to 2", "", cases=cases), 40, cases)
    assert widths["case"] == 12
    assert layout.left_out == 0


def test_long_tables_are_not_measured():
    cases = [f"case-{number}" for number in range(MAX_MEASURED_ROWS + 1)]
    _, widths, _ = choose_layout(FewRows("1 s", "", "", cases=cases), 120, cases)
    assert (widths["time"], widths["interval"]) == (8, 14)
