"""Helpers that drive the Results page, and recorded runs of a synthetic benchmark."""

from rich.table import Table
from textual.widgets import Static

from spbench.record.runs.folder import RunFolder
from spbench.tui.results.runs_pane import RunsPane
from support.sample_events import (
    TIME,
    case_judged,
    describe_case,
    describe_metric,
    job_end,
    make_started_run,
    rank_event,
    record_run,
    run_end,
)
from support.tui.app_driver import make_console, read_screen, wait_until

MEDIUM_SIZE = (120, 40)
WARPS = describe_metric("warps", "1/s", "higher", "min")
WIDTHS = (1, 2, 4)


def describe_swept_case(width, mode):
    return describe_case(
        f"made[width={width},mode={mode}]",
        name="made",
        benchmark="made.up",
        params={"width": width, "mode": mode, "warmup": 1},
        metrics=[TIME, WARPS],
        checks=["sum"],
        expect=[{"metric": "time_ms.p50", "op": "max", "limit": 5.0}],
    )


def list_case_events(case, ms, fails):
    """Return the events of both ranks of a case with this time, and its status."""
    common_fields = {"case": case["id"]}
    limit = {"name": "time_ms", "value": ms / 2, "measured_by": "one process alone"}
    return [
        *(rank_event("case_start", rank, **common_fields) for rank in (0, 1)),
        *(rank_event("samples", rank, values=[ms, ms], **common_fields) for rank in (0, 1)),
        *(
            rank_event("metric", rank, name="warps", value=10 * ms, **common_fields)
            for rank in (0, 1)
        ),
        *(
            rank_event(
                "check",
                rank,
                name="sum",
                passed=not (fails and rank),
                max_abs_error=0.5 if fails else 0.0,
                **common_fields,
            )
            for rank in (0, 1)
        ),
        rank_event("metric", 0, **limit, **common_fields),
        case_judged(
            case["id"],
            "failed" if fails else "passed",
            "check sum failed on rank 1 on node01" if fails else None,
            expectations=[
                {
                    "metric": "time_ms.p50",
                    "op": "max",
                    "limit": 5.0,
                    "value": ms,
                    "status": "passed",
                }
            ],
        ),
    ]


def record_synthetic_run(home, day, ms, *, suite="made-up", fails=False, ends=True, launches=1):
    """Record a run of a day in January 2001.

    Each case takes ``ms`` times its width in each launch.
    """
    cases = [describe_swept_case(width, mode) for mode in ("a", "b") for width in WIDTHS]
    cases = [case | {"repeat": launches} for case in cases]
    start = [event for event in make_started_run(*cases) if event["event"] != "case_start"]
    events = [*start]
    case_events = [
        event
        for case in cases
        for event in list_case_events(
            case, ms * case["params"]["width"], fails and case is cases[1]
        )
    ]
    for launch in range(1, launches):
        events += [event for event in case_events if event["event"] != "case_judged"]
        job_start, *ready = start[1:]
        events += [job_end(job=launch), job_start | {"job": launch + 1}, *ready]
        case_events = [
            event | {"repeat": launch} if "repeat" in event else event for event in case_events
        ]
    events += case_events
    verdict = "failed" if fails else "passed"
    if ends:
        events += [job_end(job=launches), run_end(verdict, int(fails))]
    recorded = record_run(home, events)
    folder = RunFolder(recorded.path.with_name(f"200101{day:02}-083000-{suite}"))
    recorded.path.rename(folder.path)
    started = 978337800.0 + 86400 * (day - 1)
    run = folder.read_json("run.json") | {
        "suite": suite,
        "id": folder.id,
        "argv": ["run", "x.yaml"],
    }
    run["console"] = {"pid": 1, "host": "login", "started": started}
    run |= {"verdict": verdict, "exit_code": int(fails), "finished": started + 65} if ends else {}
    folder.write_json("run.json", run)
    return folder


def record_three_runs(home):
    """Record three runs: the second takes twice as long, the third fails."""
    for day, ms, fails in ((1, 1.0, False), (2, 2.0, False), (3, 1.02, True)):
        record_synthetic_run(home, day, ms, fails=fails)
    return home


def open_results(tmp_path, **options):
    return make_console(tmp_path, page="results", **options)


def read_widget(app, widget):
    """Return the text of a widget, without its line breaks on the screen."""
    static = app.screen.query_one(widget, Static)
    if isinstance(static.content, Table):
        rows = zip(*(column.cells for column in static.content.columns), strict=True)
        return "\n".join(" ".join(map(str, row)) for row in rows)
    return str(static.render())


async def wait_for_run(pilot):
    """Wait until the run at the cursor is shown."""
    app = pilot.app
    await wait_until(pilot, lambda: app.current_mode == "results" and app.screen.query("#cases"))
    await wait_until(pilot, lambda: shows_selected_run(app.screen))
    return app.screen


def shows_selected_run(page):
    run = page.query_one(RunsPane).selected_run()
    cases = page._views.cases
    return run is not None and cases.run is not None and cases.run.summary.id == run.id


def find_line(app, text):
    """Return the first line of the screen with a text, or an empty string."""
    return next((line for line in read_screen(app).splitlines() if text in line), "")


async def wait_for_comparison(pilot, a, b):
    """Wait until the comparison of these two days is shown."""
    view = pilot.app.screen._views.compare

    def is_shown():
        comparison = view.comparison
        return comparison is not None and (comparison.a.id[:8], comparison.b.id[:8]) == (a, b)

    await wait_until(pilot, is_shown)
    await wait_until(pilot, lambda: "judged" in read_widget(pilot.app, "#remarks"))
