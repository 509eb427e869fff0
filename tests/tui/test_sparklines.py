"""Sparklines of ranks and of host loads."""

from spbench.record.machine.host_loads import HostLoads
from spbench.tui.run.panes.hosts_panel import HostLoadRows
from spbench.tui.run.rank_cells import fit_recent_scale
from spbench.tui.run.wide_layout import MIN_RIGHT_WIDTH
from spbench.tui.widgets.glyphs import render_sparkline
from spbench.tui.widgets.table_columns import lay_out, measure_cells

PANE_FRAME = 5
"""Columns of a pane without those of its table: border, padding and scroll bar."""


def test_sparkline_heights_follow_the_values():
    assert render_sparkline([0, 1, 2, 4], 6) == "  ▁▂▄▇"
    assert render_sparkline([0.5] * 9, 4, 1.0) == "▄▄▄▄"
    assert render_sparkline([0.0], 1) == "▁"
    assert render_sparkline([], 3) == "   "


def test_sparkline_begins_at_the_minimum():
    assert render_sparkline([0, 4, 7.4, 7.6, 11, 20], 6, 11.0, minimum=4.0) == "▁▁▄▄▇▇"


def test_ranks_of_a_case_share_one_scale():
    scale = fit_recent_scale([2.9, 8.3])
    bars = [render_sparkline([ms], 1, scale.high, minimum=scale.low) for ms in (2.9, 8.3)]
    assert bars == ["▁", "▆"]
    assert scale.text == "recent: bars from 2.20 ms to 10.0 ms"
    assert fit_recent_scale([]) is None


def test_row_has_sparkline_and_number_of_each_quantity():
    loads = HostLoads()
    for cpu in (0.1, 0.97):
        loads.add("node01", {"cpu": cpu, "memory": 0.5, "received": 1.5e6})
    rows = HostLoadRows(loads)
    host, cpu_cell, memory_cell, received_cell, sent_cell = rows.cells("node01")
    assert host == "node01"
    assert cpu_cell.text.endswith("▁▇  97 %")
    assert cpu_cell.style == "slow"
    assert memory_cell.text.endswith("50 %")
    assert received_cell.text.endswith("1.50 MB/s")
    assert sent_cell.text == ""
    assert rows.sort_value("node01", "cpu") == 0.97


def test_column_of_gpus_appears_with_their_first_reading():
    loads = HostLoads()
    loads.add("node01", {"cpu": 0.1})
    rows = HostLoadRows(loads)
    assert [column.key for column in rows.columns][-1] == "sent"
    loads.add("node02", {"gpu": 0.5})
    rows.update()
    assert [column.key for column in rows.columns][-1] == "gpu"
    assert rows.cells("node02")[-1].text.endswith("50 %")


def test_loads_of_hosts_fit_next_to_the_cases():
    loads = HostLoads()
    reading = {"cpu": 1.0, "memory": 0.5, "received": 1.5e6, "sent": 1.5e6}
    loads.add("node01", reading)
    rows = HostLoadRows(loads)
    widths = measure_cells(rows.cells("node01"))
    layout = lay_out(rows.columns, MIN_RIGHT_WIDTH - PANE_FRAME, cell_widths=widths)
    assert layout.left_out == 0


def test_hosts_are_sorted_by_name_and_number():
    loads = HostLoads()
    for host in ("node10", "node9", "login", "node1"):
        loads.add(host, {"cpu": 0.1})
    assert HostLoadRows(loads).keys() == ["login", "node1", "node9", "node10"]
