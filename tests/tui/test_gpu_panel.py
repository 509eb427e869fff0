"""The panel of GPUs on the Run page, and the GPU of a rank in its details."""

from types import SimpleNamespace

import pytest

from spbench.record.machine.gpu_loads import GpuLoads
from spbench.tui.run.findings import FindingKind, RunFindings
from spbench.tui.run.panels import Panel
from spbench.tui.run.panes.gpu_panel import ABSENT, COLUMNS, GpuRows, describe_gpu
from spbench.tui.run.rank_details import build_rank_details, describe_process
from support import sample_events as make
from support.tui.app_driver import make_console, read_screen, wait_until

FACTS = {
    "name": "NVIDIA H200",
    "memory_total_bytes": 141 << 30,
    "power_limit_w": 700.0,
    "max_sm_clock_mhz": 1980,
}
VALUES = {
    "utilization": 0.97,
    "memory_used_bytes": 60 << 30,
    "power_w": 650.4,
    "sm_clock_mhz": 1755,
    "temperature_c": 61,
    "throttle_reasons": [],
}


def make_reading(index=0, **changes):
    return {"index": index, "address": f"0000:{index:02x}:00.0", **FACTS, **VALUES, **changes}


def make_rows(*readings, host="node01"):
    gpus = GpuLoads()
    gpus.add(host, readings)
    return gpus, GpuRows(gpus)


def read_row(rows, key):
    cells = (cell if isinstance(cell, str) else cell.text for cell in rows.cells(key))
    return dict(zip((column.key for column in COLUMNS), cells, strict=True))


def make_gpu_events(*readings):
    description = make.describe_case("conv")
    device = make.rank_event(
        "device", 0, case="conv", device="cuda:0", reason="auto", address="0000:00:00.0"
    )
    heartbeat = make.rank_event("heartbeat", 0, gpus=list(readings))
    return [*make.make_started_run(description), device, heartbeat]


def test_row_has_each_value_with_its_unit():
    gpus, rows = make_rows(make_reading())
    gpus.assign(3, "node01", "0000:00:00.0")
    row = read_row(rows, ("node01", 0))
    assert row["utilization"].endswith("▇  97 %")
    del row["utilization"]
    assert row == {
        "host": "node01",
        "gpu": "0",
        "ranks": "3",
        "memory": "60.0/141 GiB",
        "power": "650/700 W",
        "clock": "1755/1980 MHz",
        "temperature": "61 °C",
        "throttled": "no",
    }


def test_absent_values_are_shown_as_absent():
    _, rows = make_rows({"index": 0})
    row = read_row(rows, ("node01", 0))
    assert (row.pop("host"), row.pop("gpu")) == ("node01", "0")
    assert set(row.values()) == {ABSENT}


def test_lost_gpu_is_shown_as_lost_and_not_as_idle():
    gpus, rows = make_rows(make_reading())
    gpus.add("node01", [{"index": 0, "lost": True}])
    row = read_row(rows, ("node01", 0))
    assert (row["utilization"], row["throttled"]) == (ABSENT, "✗ lost")
    assert describe_gpu(gpus.get(("node01", 0))) == "0: ✗ lost"


def test_lost_and_throttled_gpus_come_first():
    _, rows = make_rows(
        make_reading(0),
        make_reading(1, throttle_reasons=["power cap"]),
        make_reading(2, throttle_reasons=["hardware slowdown", "power cap"]),
        {"index": 3, "lost": True},
    )
    assert [index for _, index in rows.keys()] == [3, 2, 1, 0]  # noqa: SIM118 - not a mapping
    assert read_row(rows, ("node01", 2))["throttled"] == "▼ hardware slowdown +1"
    throttled_column = COLUMNS[-1]
    assert len("▼ hardware slowdown +1") <= throttled_column.width


@pytest.mark.parametrize("column", [column.key for column in COLUMNS])
def test_each_column_sorts_known_values(column):
    _, rows = make_rows(make_reading())
    assert column == "ranks" or rows.sort_value(("node01", 0), column) is not None


def test_version_changes_with_readings_and_ranks():
    gpus, rows = make_rows(make_reading())
    versions = [rows.version(("node01", 0))]
    gpus.add("node01", [make_reading()])
    versions.append(rows.version(("node01", 0)))
    gpus.assign(0, "node01", "0000:00:00.0")
    versions.append(rows.version(("node01", 0)))
    assert len(set(versions)) == 3


def make_feed(events):
    """Make a feed of a live run, as far as findings and details read it."""
    state = make.build_state(events)
    return SimpleNamespace(
        state=state,
        rows=SimpleNamespace(case=state.cases["conv"]),
        stragglers=SimpleNamespace(find_lags=list),
        folder=None,
        failure=None,
        remote_host=None,
        status=None,
        ended=False,
        version=1,
        case_status=lambda case: case.status,
    )


def test_details_of_a_rank_have_its_gpu():
    feed = make_feed(make_gpu_events(make_reading(throttle_reasons=["thermal", "power cap"])))
    case = feed.state.cases["conv"]
    selection = SimpleNamespace(feed=feed, case=case, running_case=case, shows_live_ranks=True)
    lines = dict(build_rank_details(selection, 0)._details.lines)
    assert lines["GPU, now"] == (
        "0: 97 % busy, 60.0/141 GiB, 650/700 W, 1755/1980 MHz, 61 °C, throttled: thermal, power cap"
    )
    assert "GPU, now" not in dict(build_rank_details(selection, 1)._details.lines)
    feed.ended = True
    assert "GPU, at the end" in dict(build_rank_details(selection, 0)._details.lines)


@pytest.mark.screen
@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
@pytest.mark.parametrize("has_gpus", [True, False])
async def test_panel_is_offered_only_with_gpus(tmp_path, size, has_gpus):
    readings = [make_reading(), {"index": 1, "lost": True}] if has_gpus else []
    folder = make.record_run(tmp_path / "home", make_gpu_events(*readings))
    app = make_console(tmp_path, recorded=folder, speed=None, page="run")
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: "conv" in read_screen(app))
        await pilot.pause(0.8)
        body = app.screen.query_one("#body")
        panels = []
        for _ in body._panels:
            await pilot.press("v")
            panels.append(body.panel)
            if body.panel is Panel.GPUS:
                await wait_until(pilot, lambda: "✗ lost" in read_screen(app))
        assert (Panel.GPUS in panels) is has_gpus


def test_lost_gpu_is_the_first_finding():
    findings = RunFindings(make_feed(make_gpu_events({"index": 0, "lost": True}))).collect()
    assert findings[0].kind is FindingKind.LOST


@pytest.mark.parametrize(
    ("threads", "text"), [(1, "7, 1 thread"), (2, "7, 2 threads"), (None, "7")]
)
def test_process_of_a_rank_has_its_number_of_threads(threads, text):
    assert describe_process(SimpleNamespace(pid=7, threads=threads)) == text
