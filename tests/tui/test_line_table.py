"""The table of lines: columns, keys, sorting, filter, pause and scrolling."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.strip import Strip

from spbench.tui.widgets import table_order
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import MARGIN, Column, TableCell, lay_out
from spbench.tui.widgets.table_lines import crop_line
from spbench.tui.widgets.text import cell_width, fit, join_fitting, wrap_at_separators
from support.tui.app_driver import wait_until

COLUMNS = (
    Column("rank", "rank", 4, "right"),
    Column("host", "host", 8, flexible=True),
    Column("p50", "p50", 8, "right"),
    Column("p95", "p95", 8, "right", drop_priority=2),
    Column("check", "check", 9, drop_priority=1),
)


class NumberRows:
    """Rows with a number each: ``values[key]``, or None for a rank without a time."""

    def __init__(self, values):
        self.values = dict(enumerate(values))
        self.versions = dict.fromkeys(self.values, 0)
        self.requested_keys = []

    def set_value(self, key, value):
        self.values[key] = value
        self.versions[key] = self.versions.get(key, 0) + 1

    def keys(self):
        return list(self.values)

    def version(self, key):
        return self.versions[key]

    def cells(self, key):
        self.requested_keys.append(key)
        value = self.values[key]
        slow = value is not None and value > 90
        number_text = "" if value is None else f"{value:.3g}"
        check = TableCell("✗ failed", "failed") if slow else TableCell("✓ passed", "passed")
        return (
            str(key),
            f"node{key % 3}",
            number_text,
            TableCell(number_text, "slow" * slow),
            check,
        )

    def sort_value(self, key, column):
        return key if column == "rank" else self.values[key]

    def search_text(self, key):
        return f"{key} node{key % 3}"


class TableApp(App):
    def __init__(self, rows, **options):
        super().__init__()
        self.table = LineTable(COLUMNS, rows, id="ranks", **options)
        self.messages = []

    def compose(self):
        yield self.table

    def on_mount(self):
        self.table.update_rows()
        self.table.focus()

    def on_line_table_row_highlighted(self, message):
        assert message.control is self.table
        self.messages.append(("highlighted", message.key))

    def on_line_table_row_selected(self, message):
        self.messages.append(("chosen", message.key))

    def on_line_table_sort_changed(self, message):
        self.messages.append(("sorted", message.column, message.reverse))


def render_lines(table):
    return [table.render_line(y).text for y in range(table.size.height)]


def list_shown_ranks(table):
    return [int(line[MARGIN : MARGIN + 4]) for line in render_lines(table)[1:] if line.strip()]


@pytest.fixture
def pass_sort_interval(monkeypatch):
    """Return a function that lets a table sort again."""
    now = [time.monotonic()]
    monkeypatch.setattr("spbench.tui.widgets.line_table.monotonic", lambda: now[0])

    def wait():
        now[0] += table_order.SORT_INTERVAL

    return wait


async def test_heading_and_rows_are_aligned_in_columns():
    app = TableApp(NumberRows([5, 100, None]))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        heading, first, second, third, *other_lines = (
            line.rstrip() for line in render_lines(app.table)
        )
        assert heading.split() == ["rank", "host", "p50", "p95", "check"]
        assert first.startswith("▸    0  ")
        assert first.split()[2:] == ["node0", "5", "5", "✓", "passed"]
        assert second.split()[2:] == ["100", "100", "✗", "failed"]
        assert third.split() == ["2", "node2", "✓", "passed"]
        assert not any(other_lines)
        assert heading.index("p95") + 3 == second.rindex("100") + 3
        assert (app.table.match_count, app.table.row_count) == (3, 3)


async def test_scroll_bar_follows_a_table_that_fills_at_once():
    numbers = NumberRows([1])
    app = TableApp(numbers)
    async with app.run_test(size=(40, 8)) as pilot:
        await pilot.pause()
        for key in range(1, 100):
            numbers.set_value(key, 1)
        app.table.update_rows()
        app.table.move_to(99)
        await wait_until(pilot, lambda: app.table.show_vertical_scrollbar)
        assert app.table.vertical_scrollbar.position == app.table.scroll_offset.y == 93


@pytest.mark.parametrize("size", [(10, 1), (10, 2), (25, 4), (80, 24), (200, 60)])
async def test_lines_fill_the_widget_at_any_size(size):
    app = TableApp(NumberRows(range(100)))
    async with app.run_test(size=size) as pilot:
        for keys in (["G", "right", "right"], ["left", "pageup", "w"]):
            await pilot.press(*keys)
            assert {app.table.render_line(y).cell_length for y in range(1, size[1])} <= {size[0]}
            assert cell_width(render_lines(app.table)[0]) in (
                size[0],
                size[0] - 1,
            )  # the scroll bar's


async def test_keys_move_the_cursor_and_the_view_follows():
    app = TableApp(NumberRows(range(100)))
    async with app.run_test(size=(80, 11)) as pilot:
        table = app.table
        for keys, cursor in (
            (["j", "down"], 2),
            (["k"], 1),
            (["pagedown"], 11),
            (["G"], 99),
            (["up"], 98),
            (["end", "down"], 99),
            (["pageup"], 89),
            (["g", "up"], 0),
        ):
            await pilot.press(*keys)
            assert table.cursor_key == cursor
            assert cursor in list_shown_ranks(table)
            cursor_lines = [line for line in render_lines(table) if line.startswith("▸")]
            assert [line.split()[1] for line in cursor_lines] == [str(cursor)]
        assert app.messages[0] == ("highlighted", 0)
        assert ("highlighted", 99) in app.messages
        await pilot.press("enter")
        assert app.messages[-1] == ("chosen", 0)


async def test_cursor_stays_in_view_in_a_lower_table():
    app = TableApp(NumberRows(range(100)))
    async with app.run_test(size=(80, 11)) as pilot:
        app.table.move_to(8)
        await pilot.resize_terminal(80, 4)
        await wait_until(pilot, lambda: 8 in list_shown_ranks(app.table))
        assert any(line.startswith("▸") for line in render_lines(app.table))


async def test_sorting_puts_unknown_values_last_both_ways():
    app = TableApp(NumberRows([3, None, 1, 2]))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("s", "s", "s")
        assert app.messages[-1] == ("sorted", "p50", False)
        assert "p50▲" in render_lines(app.table)[0]
        assert list_shown_ranks(app.table) == [2, 3, 0, 1]
        await pilot.press("S")
        assert app.messages[-1] == ("sorted", "p50", True)
        assert "p50▼" in render_lines(app.table)[0]
        assert list_shown_ranks(app.table) == [0, 3, 2, 1]
        assert app.table.cursor_key == 0
        await pilot.press("s", "s", "s")
        assert app.messages[-1] == ("sorted", None, True)
        assert list_shown_ranks(app.table) == [3, 2, 1, 0]


async def test_clicks_sort_highlight_and_select():
    app = TableApp(NumberRows([3, 9, 1]))
    async with app.run_test(size=(80, 24)) as pilot:
        column = render_lines(app.table)[0].index("p95")
        await pilot.click("#ranks", offset=(column, 0))
        assert app.messages[-1] == ("sorted", "p95", False)
        await pilot.click("#ranks", offset=(column, 0))
        assert app.messages[-1] == ("sorted", "p95", True)
        assert list_shown_ranks(app.table) == [1, 0, 2]
        await pilot.click("#ranks", offset=(5, 3))
        assert app.messages[-1] == ("highlighted", 2)
        await pilot.click("#ranks", offset=(5, 2), times=2)
        assert app.messages[-1] == ("chosen", 0)
        before = list(app.messages)
        await pilot.click("#ranks", offset=(5, 20))  # below the last row
        assert app.messages == before


async def test_only_changed_lines_are_rebuilt(pass_sort_interval):
    rows = NumberRows(range(4096))
    app = TableApp(rows)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        rows.requested_keys.clear()
        for key in (3, 4000):
            rows.set_value(key, 500)
        app.table.update_rows()
        await pilot.pause()
        assert rows.requested_keys == [3]
        assert "500" in render_lines(app.table)[4]


async def test_wider_cells_are_never_drawn_cut(pass_sort_interval):
    rows = NumberRows([1])
    columns = (*COLUMNS[:2], Column("p50", "p50", 3), *COLUMNS[3:])
    app = TableApp(rows)
    async with app.run_test(size=(26, 6)) as pilot:
        table = app.table
        table.set_rows(rows, columns)
        await pilot.pause()
        assert "p95" in render_lines(table)[0]
        rows.set_value(0, 0.000125)
        table.update_rows()
        lines = render_lines(table)
        assert "0.000125" in lines[1]
        assert "…" not in "".join(lines)


async def test_moved_cursor_leaves_no_mark_next_to_its_old_row(monkeypatch):
    app = TableApp(NumberRows(range(5)))
    async with app.run_test(size=(60, 12)) as pilot:
        table = app.table
        await pilot.pause()
        regions = []
        monkeypatch.setattr(table, "refresh", lambda *regions_: regions.extend(regions_))
        table.move_to(3)
        assert {region.width for region in regions} == {table.size.width}


async def test_sorts_again_only_after_an_interval(pass_sort_interval):
    rows = NumberRows([1, 2, 3])
    app = TableApp(rows, sort="p50")
    async with app.run_test(size=(80, 24)) as pilot:
        rows.set_value(0, 9)
        app.table.update_rows()
        await pilot.pause()
        assert list_shown_ranks(app.table) == [0, 1, 2]
        assert render_lines(app.table)[1].split()[3] == "9"
        pass_sort_interval()
        app.table.update_rows()
        await pilot.pause()
        assert list_shown_ranks(app.table) == [1, 2, 0]
        assert app.table.cursor_key == 0
        assert render_lines(app.table)[3].startswith("▸")


async def test_removed_rows_vanish_and_new_ones_are_last(pass_sort_interval):
    rows = NumberRows([1, 2, 3])
    app = TableApp(rows, sort="p50", reverse=True)
    async with app.run_test(size=(80, 24)) as pilot:
        del rows.values[2]
        rows.set_value(7, 100)
        app.table.update_rows()
        await pilot.pause()
        assert list_shown_ranks(app.table) == [1, 0, 7]
        pass_sort_interval()
        app.table.update_rows()
        assert list_shown_ranks(app.table) == [7, 1, 0]


async def test_scrolled_view_keeps_the_cursor_in_its_line(pass_sort_interval):
    rows = NumberRows(range(200))
    app = TableApp(rows, sort="p50")
    async with app.run_test(size=(80, 11)) as pilot:
        app.table.move_to(100)
        await pilot.pause()
        line = [text.startswith("▸") for text in render_lines(app.table)].index(True)
        rows.set_value(100, 49.5)
        pass_sort_interval()
        app.table.update_rows()
        await pilot.pause()
        assert render_lines(app.table)[line].startswith("▸  100")
        assert app.table.cursor_key == 100
        assert app.table.scroll_offset.y == 50 + 1 - line


async def test_view_at_the_top_stays_there(pass_sort_interval):
    rows = NumberRows(range(200))
    app = TableApp(rows, sort="p50")
    async with app.run_test(size=(80, 11)) as pilot:
        rows.set_value(0, 1000)
        pass_sort_interval()
        app.table.update_rows()
        await pilot.pause()
        assert list_shown_ranks(app.table)[0] == 1
        assert app.table.cursor_key == 0


async def test_filter_needs_all_words_and_reports_no_match():
    app = TableApp(NumberRows(range(30)))
    async with app.run_test(size=(80, 24)) as pilot:
        app.table.filter = "NODE1 2"
        await pilot.pause()
        assert list_shown_ranks(app.table) == [22, 25, 28]
        assert (app.table.match_count, app.table.row_count) == (3, 30)
        assert app.table.cursor_key == 22
        app.table.filter = "nobody"
        await pilot.pause()
        assert render_lines(app.table)[1].rstrip() == "no row matches 'nobody': Escape shows all"
        assert app.table.cursor_key is None
        await pilot.press("enter", "down")
        assert app.messages[-1] == ("highlighted", 22)
        app.table.filter = ""
        await pilot.pause()
        assert app.table.match_count == 30


async def test_empty_table_shows_the_given_message():
    app = TableApp(NumberRows([]), empty="no run yet")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("j", "enter", "G", "pageup")
        assert render_lines(app.table)[1].rstrip() == "no run yet"
        assert app.messages == []
        assert app.table.cursor_key is None


async def test_paused_table_keeps_cells_but_can_scroll_and_sort(pass_sort_interval):
    rows = NumberRows(range(50))
    app = TableApp(rows, sort="p50")
    async with app.run_test(size=(80, 11)) as pilot:
        table = app.table
        table.paused = True
        await pilot.pause()
        before = render_lines(table)
        assert "held" in before[0]
        for key in range(50):
            rows.set_value(key, 77)
        rows.set_value(50, 0)
        del rows.values[49]
        pass_sort_interval()
        table.update_rows()
        await pilot.pause()
        assert render_lines(table) == before
        assert table.row_count == 50
        await pilot.press("G")
        assert list_shown_ranks(table)[-1] == 49
        assert not any("77" in line for line in render_lines(table))
        await pilot.press("S")
        assert list_shown_ranks(table)[:2] == [49, 48]
        table.paused = False
        pass_sort_interval()
        table.update_rows()
        await pilot.pause()
        assert "held" not in render_lines(table)[0]
        assert 49 not in list_shown_ranks(table)
        assert all("77" in line for line in render_lines(table)[1:5])


async def test_set_rows_replaces_the_rows():
    app = TableApp(NumberRows([1, 2]))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("G")
        app.table.set_rows(NumberRows([70, 80, 90]))
        await pilot.pause()
        assert [line.split()[-4] for line in render_lines(app.table)[1:4]] == ["70", "80", "90"]
        assert app.table.cursor_key == 1


class FewCells(NumberRows):
    """Rows with two cells."""

    def cells(self, key):
        return super().cells(key)[:2]


async def test_set_rows_with_more_columns_shows_their_cells():
    app = TableApp(NumberRows([1, 2]))
    async with app.run_test(size=(80, 24)) as pilot:
        app.table.set_rows(FewCells([3]), COLUMNS[:2])
        await pilot.pause()
        app.table.set_rows(NumberRows([70]), COLUMNS)
        await pilot.pause()
        assert render_lines(app.table)[1].split()[-4] == "70"


async def test_blanks_are_left_out_before_columns():
    rows = NumberRows([10])
    app = TableApp(rows)
    async with app.run_test(size=(36, 6)) as pilot:
        assert render_lines(app.table)[0].split() == ["rank", "host", "p50", "p95", "check"]
        rows.set_value(0, 123456)
        app.table.update_rows()
        # The cells are as wide as the usual width of their columns now.
        await wait_until(pilot, lambda: render_lines(app.table)[0].rstrip().endswith("»"))
        assert "1.23e+05" in render_lines(app.table)[1]


def test_ids_are_whole_if_dispensable_columns_can_go():
    columns = (
        Column("id", "id", 8, flexible=True),
        Column("time", "time", 8, drop_priority=1),
        Column("ranks", "ranks", 8, drop_priority=2),
    )
    for width, shown_columns in ((29, 3), (24, 2), (18, 2)):
        layout = lay_out(columns, width, cell_widths=[12, 4, 4])
        assert len(layout.placed) == shown_columns, width
        assert (layout.placed[0].width >= 12) == (width > 18)


def test_a_flexible_column_leaves_room_for_a_later_one():
    columns = (Column("host", "host", 4, flexible=True), Column("note", "note", 4, flexible=True))
    widths = [placed.width for placed in lay_out(columns, 33, cell_widths=[10, 50]).placed]
    assert widths == [10, 20]


def test_spare_width_does_not_separate_the_cells_of_a_row():
    columns = (
        Column("id", "id", 4, flexible=True),
        Column("time", "time", 8, "right"),
        Column("ranks", "ranks", 5, "right"),
    )
    layout = lay_out(columns, 120, cell_widths=[12, 8, 2])
    ends = [placed.x + placed.width for placed in layout.placed]
    gaps = [placed.x - end for end, placed in zip(ends, layout.placed[1:], strict=False)]
    assert layout.placed[0].width == 16
    assert gaps == [4, 4]
    last = lay_out(tuple(reversed(columns)), 120, cell_widths=[2, 8, 12])
    assert last.width == 120


def test_sort_column_has_space_for_its_arrow():
    columns = (Column("skew", "skew", 4, "right"), Column("check", "check", 9, drop_priority=1))
    for sort_column, width in ((None, 4), ("check", 4), ("skew", 5)):
        layout = lay_out(columns, 40, cell_widths=[4, 8], sort_column=sort_column)
        assert layout.placed[0].width == width


async def test_title_of_the_sort_column_is_whole():
    app = TableApp(NumberRows([5, 100, None]))
    async with app.run_test(size=(80, 24)) as pilot:
        app.table.sort_by("rank", reverse=True)
        await pilot.pause()
        assert "rank▼" in render_lines(app.table)[0]


def test_empty_columns_are_left_out_first():
    columns = (Column("a", "a", 9, drop_priority=3), Column("b", "b", 9, drop_priority=2))
    assert [placed.column.key for placed in lay_out(columns, 12, cell_widths=[9, 0]).placed] == [
        "a"
    ]


async def test_columns_are_left_out_by_rank_and_return():
    app = TableApp(NumberRows(range(3)))
    async with app.run_test(size=(28, 6)) as pilot:
        assert render_lines(app.table)[0].split() == ["rank", "host", "p50", "check", "»"]
        await pilot.press("w")
        await pilot.press("right", "right", "right")
        heading = render_lines(app.table)[0].rstrip()
        assert heading.startswith("«")
        assert heading.endswith("check")
        assert render_lines(app.table)[2].split()[0] == "1"  # the first column stays
        await pilot.press("left", "left", "left", "w")
        assert render_lines(app.table)[0].split() == ["rank", "host", "p50", "check", "»"]
        await pilot.click("#ranks", offset=(app.table.scrollable_content_region.width - 1, 0))
        assert app.table.max_scroll_x > 0


async def test_click_on_a_scrolled_heading_sorts_its_column():
    app = TableApp(NumberRows(range(3)))
    async with app.run_test(size=(30, 6)) as pilot:
        await pilot.press("w", "right", "right", "right", "right")
        column = render_lines(app.table)[0].index("check")
        await pilot.click("#ranks", offset=(column, 0))
        assert app.messages[-1] == ("sorted", "check", False)
        await pilot.click("#ranks", offset=(4, 0))
        assert app.messages[-1] == ("sorted", "rank", False)


async def test_wheel_scrolls_without_moving_the_cursor():
    app = TableApp(NumberRows(range(50)))
    async with app.run_test(size=(80, 11)) as pilot:
        app.table._on_mouse_scroll_down(make_scroll_event(app.table))
        await pilot.pause()
        assert app.table.scroll_offset.y > 0
        assert app.table.cursor_key == 0
        assert list_shown_ranks(app.table)[0] == app.table.scroll_offset.y


def make_scroll_event(widget):
    from textual.events import MouseScrollDown

    return MouseScrollDown(widget, 1, 1, 0, 1, 0, False, False, False)


async def test_status_is_visible_without_colour():
    app = TableApp(NumberRows([99, 1]))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        mark, *_ = app.table.render_line(1)
        styles = {segment.text.strip(): segment.style for segment in app.table.render_line(1)}
        assert mark.text.startswith("▸")
        assert styles["✗ failed"].bold
        assert styles["99"].underline
        plain, *_ = app.table.render_line(2)
        assert mark.style.bgcolor != plain.style.bgcolor


async def test_only_the_text_of_a_cell_is_underlined():
    app = TableApp(NumberRows([99, 1]))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        underlined = [s.text for s in app.table.render_line(1) if s.style.underline]
        assert underlined == ["99"]


async def test_redraws_in_the_colours_of_a_new_theme():
    app = TableApp(NumberRows([99]))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        before = app.table.render_line(1)
        app.theme = "textual-light"
        await pilot.pause()
        after = app.table.render_line(1)
        assert before.text == after.text
        assert [s.style for s in before] != [s.style for s in after]


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3), st.booleans()), max_size=8),
    st.integers(0, 100),
    st.booleans(),
)
def test_layout_leaves_out_only_dispensable_columns(shapes, width_limit, show_all):
    columns = [
        Column(str(index), str(index), width, drop_priority=rank, flexible=flexible)
        for index, (width, rank, flexible) in enumerate(shapes)
    ]
    layout = lay_out(columns, width_limit, show_all)
    placed = [placement.column for placement in layout.placed]
    left_out = [column for column in columns if column not in placed]
    assert layout.left_out == len(left_out)
    assert not (show_all and left_out)
    assert all(column.drop_priority for column in left_out)
    assert all(  # a more dispensable column stays only where the one before it does not fit
        column.width < before.width
        for before in left_out
        for column in placed
        if column.drop_priority > before.drop_priority
    )
    assert (
        layout.width <= width_limit
        or show_all
        or not any(column.drop_priority for column in placed)
    )
    ends = [placement.x + placement.width for placement in layout.placed]
    assert all(placement.width >= placement.column.width for placement in layout.placed)
    assert all(end < placement.x for end, placement in zip(ends, layout.placed[1:], strict=False))
    for placement in layout.placed:
        assert layout.find_column(placement.x) is placement.column


@given(st.text(max_size=30), st.integers(0, 20), st.sampled_from(["left", "right"]))
def test_fitted_text_has_the_exact_width(text, width, align):
    fitted = fit(text, width, align)
    assert cell_width(fitted) == width
    assert fitted.isprintable()


@given(st.lists(st.text("ab c", max_size=8), max_size=5), st.integers(1, 30))
def test_joined_phrases_fit_with_the_first_at_the_start(parts, width):
    line = join_fitting(parts, width)
    assert len(line) <= width
    phrases = [part for part in parts if part]
    assert not phrases or line.startswith(phrases[0][: width - 1])


@given(st.text("ab /,é界", max_size=60), st.integers(8, 30), st.integers(8, 30))
def test_text_wrapped_at_separators_is_complete_and_fits(text, first_width, other_width):
    first, *others = wrap_at_separators(text, first_width, other_width)
    assert "".join([first, *others]) == text
    assert cell_width(first) <= first_width
    assert all(cell_width(line) <= other_width for line in others)


def test_paths_wrap_after_a_slash():
    lines = wrap_at_separators('File "/opt/python/site-packages/spbench/run.py", line 5', 20, 36)
    assert lines == ['File "/opt/python/', 'site-packages/spbench/run.py", line ', "5"]


def test_spare_width_goes_to_gaps_but_not_after_marks():
    columns = (Column("mark", "", 1), Column("id", "id", 4, flexible=True), Column("n", "n", 2))
    mark, name, count = lay_out(columns, 40, cell_widths=[1, 4, 2]).placed
    assert name.x == mark.x + mark.width + 1
    assert count.x > name.x + name.width + 1


def test_column_cut_at_the_right_edge_is_blank():
    columns = (Column("a", "a", 4), Column("b", "b", 7, "right"), Column("c", "c", 7, "right"))
    layout = lay_out(columns, 16, show_all=True)
    line = Strip([Segment("  aaaa 61.3 ms 99.9 ms")])
    assert crop_line(line, layout, 0, 18, Style()).text.rstrip() == "  aaaa 61.3 ms"


def test_free_cells_of_a_column_left_out_go_to_a_narrower_one():
    columns = (
        Column("name", "name", 10),
        Column("count", "n", 4, drop_priority=3),
        Column("wide", "wide", 16, drop_priority=2),
    )
    layout = lay_out(columns, 22)
    assert [placed.column.key for placed in layout.placed] == ["name", "count"]
    assert layout.left_out == 1
