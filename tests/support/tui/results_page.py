"""The Results page as tests drive it, and recorded runs of a synthetic benchmark."""

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
from support.tui.driving import console, shown, until

MIDDLE = (120, 40)
WARPS = describe_metric("warps", "1/s", "higher", "min")
WIDTHS = (1, 2, 4)


def case_of(width, mode):
    return describe_case(
        f"made[width={width},mode={mode}]",
        name="made",
        benchmark="made.up",
        params={"width": width, "mode": mode, "warmup": 1},
        metrics=[TIME, WARPS],
        checks=["sum"],
        expect=[{"metric": "time_ms.p50", "op": "max", "limit": 5.0}],
    )


def samples_of(case, ms, fails):
    """The events of both ranks of a case that takes so long, and its verdict."""
    told = {"case": case["id"]}
    limit = {"name": "time_ms", "value": ms / 2, "measured_by": "one process alone"}
    return [
        *(rank_event("case_start", rank, **told) for rank in (0, 1)),
        *(rank_event("samples", rank, values=[ms, ms], **told) for rank in (0, 1)),
        *(rank_event("metric", rank, name="warps", value=10 * ms, **told) for rank in (0, 1)),
        *(
            rank_event(
                "check",
                rank,
                name="sum",
                passed=not (fails and rank),
                max_abs_error=0.5 if fails else 0.0,
                **told,
            )
            for rank in (0, 1)
        ),
        rank_event("metric", 0, **limit, **told),
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


def a_run(home, day, ms, *, suite="made-up", fails=False, ends=True):
    """Record a run of that day in January that takes ``ms`` times the width in each case."""
    cases = [case_of(width, mode) for mode in ("a", "b") for width in WIDTHS]
    events = [event for event in make_started_run(*cases) if event["event"] != "case_start"]
    for case in cases:
        events += samples_of(case, ms * case["params"]["width"], fails and case is cases[1])
    verdict = "failed" if fails else "passed"
    if ends:
        events += [job_end(), run_end(verdict, int(fails))]
    folder = record_run(home, events)
    named = RunFolder(folder.path.with_name(f"200101{day:02}-083000-{suite}"))
    folder.path.rename(named.path)
    begun = 978337800.0 + 86400 * (day - 1)
    run = named.read_json("run.json") | {"suite": suite, "id": named.id, "argv": ["run", "x.yaml"]}
    run["console"] = {"pid": 1, "host": "login", "started": begun}
    run |= {"verdict": verdict, "exit_code": int(fails), "finished": begun + 65} if ends else {}
    named.write_json("run.json", run)
    return named


def record_three_runs(home):
    """Record three runs: the second takes twice as long as the first; the third fails."""
    for day, ms, fails in ((1, 1.0, False), (2, 2.0, False), (3, 1.02, True)):
        a_run(home, day, ms, fails=fails)
    return home


def opened(tmp_path, **asked):
    return console(tmp_path, page="results", **asked)


def words_of(app, widget):
    """The text of a widget, however its lines are broken."""
    return str(app.screen.query_one(widget).render())


async def ready(pilot):
    """Wait until the run under the cursor is shown."""
    app = pilot.app
    await until(pilot, lambda: app.current_mode == "results" and app.screen.query("#cases"))
    await until(pilot, lambda: settled(app.screen))
    return app.screen


def settled(page):
    run = page.query_one(RunsPane).selected_run()
    cases = page._views.cases
    return run is not None and cases.run is not None and cases.run.summary.id == run.id


def row_of(app, text):
    """The line of the screen that holds a text."""
    return next((line for line in shown(app).splitlines() if text in line), "")


async def compared(pilot, a, b):
    """Wait until the comparison of these two days is shown."""
    view = pilot.app.screen._views.compare

    def there():
        found = view.comparison
        return found is not None and (found.a.id[:8], found.b.id[:8]) == (a, b)

    await until(pilot, there)
    await until(pilot, lambda: "judged" in words_of(pilot.app, "#remarks"))
