import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App

from spbench.tui.widgets import table_order
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import MARGIN, Column, TableCell, lay_out
from spbench.tui.widgets.text import cell_width, fit, join_fitting
from support.tui.driving import until

COLUMNS = (
    Column("rank", "rank", 4, "right"),
    Column("host", "host", 8, flexible=True),
    Column("p50", "p50", 8, "right"),
    Column("p95", "p95", 8, "right", rank=2),
    Column("check", "check", 9, rank=1),
)


class Numbers:
    """Rows of a number each: ``values[key]``, None for a rank without a time."""

    def __init__(self, values):
        self.values = dict(enumerate(values))
        self.versions = dict.fromkeys(self.values, 0)
        self.asked = []

    def put(self, key, value):
        self.values[key] = value
        self.versions[key] = self.versions.get(key, 0) + 1

    def keys(self):
        return list(self.values)

    def version(self, key):
        return self.versions[key]

    def cells(self, key):
        self.asked.append(key)
        value = self.values[key]
        slow = value is not None and value > 90
        figure = "" if value is None else f"{value:.3g}"
        check = TableCell("✗ failed", "failed") if slow else TableCell("✓ passed", "passed")
        return (str(key), f"node{key % 3}", figure, TableCell(figure, "slow" * slow), check)

    def sort_value(self, key, column):
        return key if column == "rank" else self.values[key]

    def text(self, key):
        return f"{key} node{key % 3}"


class Shown(App):
    def __init__(self, rows, **options):
        super().__init__()
        self.table = LineTable(COLUMNS, rows, id="ranks", **options)
        self.heard = []

    def compose(self):
        yield self.table

    def on_mount(self):
        self.table.update_rows()
        self.table.focus()

    def on_line_table_row_highlighted(self, message):
        assert message.control is self.table
        self.heard.append(("highlighted", message.key))

    def on_line_table_row_selected(self, message):
        self.heard.append(("chosen", message.key))

    def on_line_table_sort_changed(self, message):
        self.heard.append(("sorted", message.column, message.reverse))


def lines(table):
    return [table.render_line(y).text for y in range(table.size.height)]


def ranks(table):
    return [int(line[MARGIN : MARGIN + 4]) for line in lines(table)[1:] if line.strip()]


@pytest.fixture
def later(monkeypatch):
    """Let the time pass in which a table does not sort again."""
    now = [time.monotonic()]
    monkeypatch.setattr("spbench.tui.widgets.line_table.monotonic", lambda: now[0])

    def wait():
        now[0] += table_order.SORT_INTERVAL

    return wait


async def test_heading_and_rows_stand_in_columns():
    app = Shown(Numbers([5, 100, None]))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        heading, first, second, third, *rest = (line.rstrip() for line in lines(app.table))
        assert heading.split() == ["rank", "host", "p50", "p95", "check"]
        assert first.startswith("▸    0 node0")
        assert first.split()[3:] == ["5", "5", "✓", "passed"]
        assert second.endswith("100      100 ✗ failed")
        assert third.split() == ["2", "node2", "✓", "passed"]
        assert not any(rest)
        assert heading.index("p95") + 3 == second.rindex("100") + 3
        assert (app.table.shown, app.table.total) == (3, 3)


async def test_the_scroll_bar_of_a_table_that_fills_and_scrolls_at_once_stands_where_the_rows_do():
    numbers = Numbers([1])
    app = Shown(numbers)
    async with app.run_test(size=(40, 8)) as pilot:
        await pilot.pause()
        for key in range(1, 100):
            numbers.put(key, 1)
        app.table.update_rows()
        app.table.move_to(99)
        await until(pilot, lambda: app.table.show_vertical_scrollbar)
        assert app.table.vertical_scrollbar.position == app.table.scroll_offset.y == 93


@pytest.mark.parametrize("size", [(10, 1), (10, 2), (25, 4), (80, 24), (200, 60)])
async def test_every_line_fills_the_widget_at_any_size(size):
    app = Shown(Numbers(range(100)))
    async with app.run_test(size=size) as pilot:
        for keys in (["G", "right", "right"], ["left", "pageup", "w"]):
            await pilot.press(*keys)
            assert {app.table.render_line(y).cell_length for y in range(1, size[1])} <= {size[0]}
            assert cell_width(lines(app.table)[0]) in (size[0], size[0] - 1)  # the scroll bar's


async def test_keys_move_the_cursor_and_the_view_follows():
    app = Shown(Numbers(range(100)))
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
            assert cursor in ranks(table)
            marked = [line for line in lines(table) if line.startswith("▸")]
            assert [line.split()[1] for line in marked] == [str(cursor)]
        assert app.heard[0] == ("highlighted", 0)
        assert ("highlighted", 99) in app.heard
        await pilot.press("enter")
        assert app.heard[-1] == ("chosen", 0)


async def test_sorting_by_key_puts_what_is_unknown_last_both_ways():
    app = Shown(Numbers([3, None, 1, 2]))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("s", "s", "s")
        assert app.heard[-1] == ("sorted", "p50", False)
        assert "p50▲" in lines(app.table)[0]
        assert ranks(app.table) == [2, 3, 0, 1]
        await pilot.press("S")
        assert app.heard[-1] == ("sorted", "p50", True)
        assert "p50▼" in lines(app.table)[0]
        assert ranks(app.table) == [0, 3, 2, 1]
        assert app.table.cursor_key == 0
        await pilot.press("s", "s", "s")
        assert app.heard[-1] == ("sorted", None, True)
        assert ranks(app.table) == [3, 2, 1, 0]


async def test_clicks_sort_choose_and_open():
    app = Shown(Numbers([3, 9, 1]))
    async with app.run_test(size=(80, 24)) as pilot:
        at = lines(app.table)[0].index("p95")
        await pilot.click("#ranks", offset=(at, 0))
        assert app.heard[-1] == ("sorted", "p95", False)
        await pilot.click("#ranks", offset=(at, 0))
        assert app.heard[-1] == ("sorted", "p95", True)
        assert ranks(app.table) == [1, 0, 2]
        await pilot.click("#ranks", offset=(5, 3))
        assert app.heard[-1] == ("highlighted", 2)
        await pilot.click("#ranks", offset=(5, 2), times=2)
        assert app.heard[-1] == ("chosen", 0)
        before = list(app.heard)
        await pilot.click("#ranks", offset=(5, 20))  # below the last row
        assert app.heard == before


async def test_only_lines_that_changed_are_made_again(later):
    rows = Numbers(range(4096))
    app = Shown(rows)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        rows.asked.clear()
        for key in (3, 4000):
            rows.put(key, 500)
        app.table.update_rows()
        await pilot.pause()
        assert rows.asked == [3]
        assert "500" in lines(app.table)[4]


async def test_a_table_sorts_again_only_after_a_while(later):
    rows = Numbers([1, 2, 3])
    app = Shown(rows, sort="p50")
    async with app.run_test(size=(80, 24)) as pilot:
        rows.put(0, 9)
        app.table.update_rows()
        await pilot.pause()
        assert ranks(app.table) == [0, 1, 2]
        assert lines(app.table)[1].split()[3] == "9"
        later()
        app.table.update_rows()
        await pilot.pause()
        assert ranks(app.table) == [1, 2, 0]
        assert app.table.cursor_key == 0
        assert lines(app.table)[3].startswith("▸")


async def test_rows_that_go_are_not_drawn_and_new_ones_come_last(later):
    rows = Numbers([1, 2, 3])
    app = Shown(rows, sort="p50", reverse=True)
    async with app.run_test(size=(80, 24)) as pilot:
        del rows.values[2]
        rows.put(7, 100)
        app.table.update_rows()
        await pilot.pause()
        assert ranks(app.table) == [1, 0, 7]
        later()
        app.table.update_rows()
        assert ranks(app.table) == [7, 1, 0]


async def test_a_view_that_is_scrolled_keeps_the_cursor_in_its_line(later):
    rows = Numbers(range(200))
    app = Shown(rows, sort="p50")
    async with app.run_test(size=(80, 11)) as pilot:
        app.table.move_to(100)
        await pilot.pause()
        line = [text.startswith("▸") for text in lines(app.table)].index(True)
        rows.put(100, 49.5)
        later()
        app.table.update_rows()
        await pilot.pause()
        assert lines(app.table)[line].startswith("▸  100")
        assert app.table.cursor_key == 100
        assert app.table.scroll_offset.y == 50 + 1 - line


async def test_a_view_at_its_top_stays_there(later):
    rows = Numbers(range(200))
    app = Shown(rows, sort="p50")
    async with app.run_test(size=(80, 11)) as pilot:
        rows.put(0, 1000)
        later()
        app.table.update_rows()
        await pilot.pause()
        assert ranks(app.table)[0] == 1
        assert app.table.cursor_key == 0


async def test_the_filter_wants_all_words_and_says_when_none_match():
    app = Shown(Numbers(range(30)))
    async with app.run_test(size=(80, 24)) as pilot:
        app.table.filter = "NODE1 2"
        await pilot.pause()
        assert ranks(app.table) == [22, 25, 28]
        assert (app.table.shown, app.table.total) == (3, 30)
        assert app.table.cursor_key == 22
        app.table.filter = "nobody"
        await pilot.pause()
        assert lines(app.table)[1].rstrip() == "no row matches 'nobody'"
        assert app.table.cursor_key is None
        await pilot.press("enter", "down")
        assert app.heard[-1] == ("highlighted", 22)
        app.table.filter = ""
        await pilot.pause()
        assert app.table.shown == 30


async def test_no_rows_at_all_are_told_in_the_given_words():
    app = Shown(Numbers([]), empty="no run yet")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("j", "enter", "G", "pageup")
        assert lines(app.table)[1].rstrip() == "no run yet"
        assert app.heard == []
        assert app.table.cursor_key is None


async def test_paused_keeps_cells_keys_and_order_but_lets_one_look_around(later):
    rows = Numbers(range(50))
    app = Shown(rows, sort="p50")
    async with app.run_test(size=(80, 11)) as pilot:
        table = app.table
        table.paused = True
        await pilot.pause()
        before = lines(table)
        assert "paused" in before[0]
        for key in range(50):
            rows.put(key, 77)
        rows.put(50, 0)
        del rows.values[49]
        later()
        table.update_rows()
        await pilot.pause()
        assert lines(table) == before
        assert table.total == 50
        await pilot.press("G")
        assert ranks(table)[-1] == 49
        assert not any("77" in line for line in lines(table))
        await pilot.press("S")
        assert ranks(table)[:2] == [49, 48]
        table.paused = False
        later()
        table.update_rows()
        await pilot.pause()
        assert "paused" not in lines(table)[0]
        assert 49 not in ranks(table)
        assert all("77" in line for line in lines(table)[1:5])


async def test_other_rows_take_the_place_of_the_first():
    app = Shown(Numbers([1, 2]))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("G")
        app.table.set_rows(Numbers([70, 80, 90]))
        await pilot.pause()
        assert [line.split()[-4] for line in lines(app.table)[1:4]] == ["70", "80", "90"]
        assert app.table.cursor_key == 1


async def test_columns_go_by_rank_and_come_back():
    app = Shown(Numbers(range(3)))
    async with app.run_test(size=(36, 6)) as pilot:
        assert lines(app.table)[0].split() == ["rank", "host", "p50", "check", "»"]
        await pilot.press("w")
        await pilot.press("right", "right", "right")
        heading = lines(app.table)[0].rstrip()
        assert heading.startswith("«")
        assert heading.endswith("check")
        assert lines(app.table)[2].split()[0] == "1"  # the first column stays
        await pilot.press("left", "left", "left", "w")
        assert lines(app.table)[0].split() == ["rank", "host", "p50", "check", "»"]
        await pilot.click("#ranks", offset=(app.table.scrollable_content_region.width - 1, 0))
        assert app.table.max_scroll_x > 0


async def test_a_click_on_a_scrolled_heading_meets_the_column_under_it():
    app = Shown(Numbers(range(3)))
    async with app.run_test(size=(30, 6)) as pilot:
        await pilot.press("w", "right", "right", "right", "right")
        at = lines(app.table)[0].index("check")
        await pilot.click("#ranks", offset=(at, 0))
        assert app.heard[-1] == ("sorted", "check", False)
        await pilot.click("#ranks", offset=(4, 0))
        assert app.heard[-1] == ("sorted", "rank", False)


async def test_the_wheel_scrolls_without_moving_the_cursor():
    app = Shown(Numbers(range(50)))
    async with app.run_test(size=(80, 11)) as pilot:
        app.table._on_mouse_scroll_down(_wheel(app.table))
        await pilot.pause()
        assert app.table.scroll_offset.y > 0
        assert app.table.cursor_key == 0
        assert ranks(app.table)[0] == app.table.scroll_offset.y


def _wheel(widget):
    from textual.events import MouseScrollDown

    return MouseScrollDown(widget, 1, 1, 0, 1, 0, False, False, False)


async def test_status_is_told_by_more_than_colour():
    app = Shown(Numbers([99, 1]))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        mark, *_ = app.table.render_line(1)
        styles = {segment.text.strip(): segment.style for segment in app.table.render_line(1)}
        assert mark.text.startswith("▸")
        assert styles["✗ failed"].bold
        assert styles["99"].underline
        plain, *_ = app.table.render_line(2)
        assert mark.style.bgcolor != plain.style.bgcolor


async def test_a_new_theme_is_drawn_in_its_colours():
    app = Shown(Numbers([99]))
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
def test_a_layout_leaves_out_the_most_dispensable_columns_alone(shapes, room, every):
    columns = [
        Column(str(at), str(at), width, rank=rank, flexible=flexible)
        for at, (width, rank, flexible) in enumerate(shapes)
    ]
    layout = lay_out(columns, room, every)
    kept = [place.column for place in layout.placed]
    out = [column for column in columns if column not in kept]
    assert layout.left_out == len(out)
    assert not (every and out)
    assert all(column.rank for column in out)
    assert not out or max(c.rank for c in kept + out) == max(c.rank for c in out)
    assert layout.width <= room or every or not any(column.rank for column in kept)
    ends = [place.x + place.width for place in layout.placed]
    assert all(place.width >= place.column.width for place in layout.placed)
    assert all(end < place.x for end, place in zip(ends, layout.placed[1:], strict=False))
    for place in layout.placed:
        assert layout.find_column(place.x) is place.column


@given(st.text(max_size=30), st.integers(0, 20), st.sampled_from(["left", "right"]))
def test_text_is_made_to_take_exactly_its_cells(text, width, align):
    shown = fit(text, width, align)
    assert cell_width(shown) == width
    assert shown.isprintable()


@given(st.lists(st.text("ab c", max_size=8), max_size=5), st.integers(1, 30))
def test_phrases_fit_and_the_first_stand_first(parts, width):
    line = join_fitting(parts, width)
    assert len(line) <= width
    said = [part for part in parts if part]
    assert not said or line.startswith(said[0][: width - 1])
