"""The Plan page, driven by keys, over a made-up profile and a made-up cluster."""

import asyncio
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from textual.widgets import Input

from spbench.errors import MissingError, SpbenchError
from spbench.planner.errors import PlannerError
from spbench.planner.output.plan_description import STAGE_LEGEND
from spbench.planner.request import compute_plan
from spbench.planner.worker_process import plan_in_process
from spbench.record.number_formatting import format_time
from spbench.suites.loader import load_suite_text
from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import AskLine
from spbench.tui.plan import page as page_module
from spbench.tui.plan.sheet import memory_bars
from support import sample_events as make
from support.tui.driving import SIZES, console, in_one_write, shown, until

NAMES = ("stem", "stack1", "stack2", "stack3", "head")
CLUSTER = """\
schema: spbench.cluster/1
devices: {core: {memory: 16GB}}
links: {slow: {bandwidth: 100MB/s}}
machines: [{name: here, devices: {core: 2}, link: slow}]
"""


def layer(name):
    sizes = {"activation_bytes": 1000, "kept_bytes": 5e8, "working_bytes": 1e6}
    times = {"forward_ms": 10.0, "backward_ms": 20.0}
    return {"name": name, **times, **sizes, "parameter_bytes": 1e8}


async def planned_here(request):
    """The answer of the planner's process, without its start."""
    try:
        return await asyncio.to_thread(compute_plan, request)
    except SpbenchError as error:
        raise PlannerError(str(error)) from None


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(page_module, "plan_in_process", planned_here)


@pytest.fixture
def folder(tmp_path):
    """A profile of a network that can be run, and two devices with a link too slow for sums."""
    origin = {"model": "resnet", "params": {"image_size": 32, "version": 2, "depth": 11}}
    profile = {"schema": "spbench.profile/1", "name": "five", "batch_size": 1, "origin": origin}
    profile["layers"] = [layer(name) for name in NAMES]
    profile["edges"] = [list(pair) for pair in pairwise(NAMES)]
    (tmp_path / "five.json").write_text(json.dumps(profile))
    (tmp_path / "two.yaml").write_text(CLUSTER)
    return tmp_path


def field(app, id):
    return app.screen.query_one(f"#{id}", Input)


async def ready(pilot):
    await until(pilot, lambda: "Palette" in shown(pilot.app) or "Help" in shown(pilot.app))
    await until(pilot, lambda: field(pilot.app, "cluster").value == "two.yaml")
    return pilot.app.screen


async def plan(pilot, batch="16"):
    """Plan what the page proposes, in micro-batches of one."""
    page = await ready(pilot)
    field(pilot.app, "batch").value = batch
    field(pilot.app, "micro").value = "1"
    await pilot.press("enter")
    await until(pilot, lambda: page.planned is not None)
    return page


@pytest.mark.parametrize("size", SIZES)
async def test_enter_plans_the_files_that_are_near(folder, size):
    app = console(folder, page="plan")
    async with app.run_test(size=size) as pilot:
        page = await plan(pilot)
        await until(pilot, lambda: "stem to stack" in shown(app))
        stages = page.planned.plan.stages
        assert len(stages) == 2
        assert f"step {format_time(1000 * page.planned.plan.step_s)}" in shown(app)
        assert " of 16.0 GB" in shown(app)
        bars, of_devices = memory_bars(page.planned)
        assert of_devices
        assert sum(bars[0].parts) == pytest.approx(stages[0].memory_bytes / 16e9)
        seen = set()
        for _ in range(8):  # all of it can be scrolled to
            seen.update(
                word
                for word in ("DP + P3", "this plan", "parameters", "stage 1 .", "bubble")
                if word in shown(app)
            )
            await pilot.press("pagedown")
            await pilot.pause()
        assert seen == {"DP + P3", "this plan", "parameters", "stage 1 .", "bubble"}


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_hints_and_the_legend_of_the_stages_are_shown_whole(folder, size):
    app = console(folder, page="plan")
    async with app.run_test(size=size) as pilot:
        await plan(pilot)
        await until(pilot, lambda: STAGE_LEGEND in shown(app))
        for id in ("profile", "cluster"):
            field(app, id).value = ""
        hints = [field(app, id).placeholder for id in ("profile", "cluster")]
        await until(pilot, lambda: all(hint in shown(app) for hint in hints))
        assert "measured at batch from file" in shown(app)


async def test_an_overlapped_all_reduce_is_told_below_the_stages(folder):
    app = console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await plan(pilot)
        assert "of all-reduce overlap" not in shown(app)
        made = page.planned.plan
        first, *others = made.stages
        stages = (replace(first, all_reduce_s=4.0, overlapped_s=3.0), *others)
        page.sheet.show(replace(page.planned, plan=replace(made, stages=stages)))
        note = "stage 0: 3.00 s of 4.00 s of all-reduce overlap the last backward pass"
        await until(pilot, lambda: note in shown(app))


async def test_keys_that_come_at_once_land_in_the_field_to_which_those_before_went(folder):
    app = console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await ready(pilot)
        field(app, "profile").focus()
        await pilot.pause()
        in_one_write(app, ["tab", "8", "tab", "tab", "2", "tab", "4", "escape", "m"])
        await until(pilot, lambda: page.form.mode == "hpgo")
        typed = [field(app, id).value for id in ("measured-at", "cluster", "batch", "micro")]
        assert typed == ["8", "two.yaml", "2", "4"]


async def test_a_key_of_which_nothing_more_is_heard_does_not_hold_the_later_ones_for_ever(
    folder, monkeypatch
):
    monkeypatch.setattr("spbench.tui.app.MAX_KEY_WAIT_STEPS", 20)
    app = console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        await ready(pilot)
        batch = field(app, "batch")
        batch.focus()
        await pilot.pause()
        with monkeypatch.context() as patch:
            patch.setattr(batch, "call_later", lambda *_: True)  # it is never called
            in_one_write(app, "12")
            await asyncio.sleep(0.05)  # a pause of the pilot would call it later too
            assert batch.value != "12"
        await until(pilot, lambda: batch.value == "12")


async def test_the_step_is_drawn_longer_and_shorter(folder):
    app = console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await plan(pilot)
        line = page.query_one("#line")
        await until(pilot, lambda: line.size.width > 100)
        fitted = line.size.width
        await pilot.press("plus")
        await until(pilot, lambda: line.size.width == 2 * fitted)
        await pilot.press("minus", "minus")
        await until(pilot, lambda: line.size.width == fitted)


async def test_what_is_wrong_is_one_sentence_on_the_page(folder):
    (folder / "graph.txt").write_text(
        "n1 -- Conv -- forward_compute_time=1.0, backward_compute_time=2.0, "
        "activation_size=4.0, parameter_size=8.0\n"
    )
    app = console(folder, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        for id, text, words in (
            ("batch", "x", "the global batch size is x"),
            ("batch", "16", ""),
            ("profile", "graph.txt", "does not say its batch size"),
            ("profile", "gone.json", "No such file"),
            ("profile", "five.json", ""),
            ("cluster", "4,2", "must be rising device numbers"),
            ("cluster", "nowhere", "nowhere is neither machines"),
        ):
            field(app, id).value = text
            if words:
                await pilot.press("f3")
                await until(pilot, lambda words=words: words in " ".join(shown(app).split()))
        assert app.screen.planned is None
        await pilot.press("f4")
        await until(
            pilot, lambda: any("nothing is planned" in n.message for n in app._notifications)
        )


async def test_planning_can_be_stopped(folder, monkeypatch):
    stopped = asyncio.Event()

    async def for_ever(request):
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    monkeypatch.setattr(page_module, "plan_in_process", for_ever)
    app = console(folder, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "… planning" in shown(app))
        await pilot.press("escape")
        await until(pilot, lambda: stopped.is_set() and "Nothing is planned yet" in shown(app))


async def test_a_suite_is_written_and_opened(folder):
    app = console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        await plan(pilot)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press("enter")
        await until(pilot, lambda: app.current_mode == "suites")
        await until(pilot, lambda: "model.resnet" in shown(app))
    [path] = folder.glob("plan-*.yaml")
    [case] = load_suite_text(path.read_text(), path).cases
    assert dict(case.params)["split_size"] == 2


def run_of(path, home):
    """A run of a plan of two stages whose steps took 2000 ms."""
    phases = [
        make.describe_metric(f"{name}_ms", "ms", part_of="time_ms")
        for name in ("forward", "backward")
    ]
    places = [{"stage": 0}, {"stage": 1}]
    start, *events = make.make_started_run(
        make.describe_case("plan", metrics=[make.TIME, *phases], places=places)
    )
    figures = {"time_ms": 2000.0, "forward_ms": 500.0, "backward_ms": 1000.0}
    return make.record_run(
        home,
        [
            start | {"argv": ["run", str(path)]},
            *events,
            *(
                make.rank_event("samples", rank, case="plan", metric=name, values=[value])
                for rank in (0, 1)
                for name, value in figures.items()
            ),
            make.case_judged("plan"),
            make.run_end(),
        ],
        verdict="passed",
    )


def step_rows(app):
    """The lines of the screen that show the measured step of `run_of`."""
    lines = shown(app).splitlines()
    return [line for line in lines if " step " in line and "2.00 s" in line and "%" in line]


async def test_a_run_of_the_plan_stands_beside_it(folder, monkeypatch):
    app = console(folder, page="plan")
    asked = []
    monkeypatch.setattr(app.context, "start_run", lambda words: asked.append(words))
    async with app.run_test(size=(200, 60)) as pilot:
        page = await plan(pilot)
        await pilot.press("f5")
        await until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press("enter")
        await until(pilot, lambda: asked)
        assert asked == [(str(page.suite),)]
        await until(pilot, lambda: "runs; its figures stand here" in shown(app))
        app.context.watch_run(run_of(page.suite, folder / "home"), show=False)
        await until(pilot, lambda: "which has the most work" in shown(app))
        # The table is drawn a moment after the line below it.
        await until(pilot, lambda: step_rows(app))
        [row] = step_rows(app)
        error = (1000 * page.planned.plan.step_s - 2000) / 2000
        assert f"{100 * error:+.1f} %" in row


async def test_a_plan_that_cannot_be_started_is_not_waited_for(folder, monkeypatch):
    def refuse(*_):
        raise MissingError("case plan wants 2 devices, and 1 is available")

    monkeypatch.setattr("spbench.engine.background.start_run", refuse)
    app = console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await plan(pilot)
        await pilot.press("f5")
        await until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press("enter")
        await until(pilot, lambda: app.current_mode == "run" and app.context.starting_since is None)
        app.context.show_page("plan")
        await until(pilot, lambda: f"✗ {page.suite.name} was not started" in shown(app))


async def test_a_run_of_two_cases_is_told_not_to_be_the_plan(folder):
    """Whoever opens the suite may add to it before it is run."""
    path = folder / "plan.yaml"
    start, *events = make.make_started_run(make.describe_case("plan"), make.describe_case("more"))
    changed = start | {"argv": ["run", str(path)]}
    run = make.record_run(folder / "home", [changed, *events, make.run_end()], verdict="passed")
    app = console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await plan(pilot)
        page.await_run(path)
        app.context.watch_run(run, show=False)
        await until(pilot, lambda: "ran 2 cases, not the plan alone" in shown(app))


async def test_a_readonly_console_plans_in_a_process_and_writes_nothing(folder, monkeypatch):
    monkeypatch.setattr(page_module, "plan_in_process", plan_in_process)
    app = console(folder, page="plan", readonly=True)
    async with app.run_test(size=(120, 40)) as pilot:
        page = await plan(pilot)
        await pilot.press("e", "f4", "f5")
        await pilot.pause()
        assert app.screen is page
        assert page.planned is not None


@pytest.mark.long
async def test_fields_are_chosen_from_lists_completed_and_switched(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "mine.json").write_text("{}")
    app = console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await ready(pilot)
        await pilot.press("m")
        await until(pilot, lambda: "● hpgo" in shown(app))
        assert page.form.request().mode == "hpgo"
        await pilot.click("ModeSwitch")
        await until(pilot, lambda: "● best" in shown(app))
        field(app, "cluster").focus()
        await pilot.press("f2")
        await until(pilot, lambda: isinstance(app.screen, Chooser) and "dapple-a" in shown(app))
        await pilot.press(*"dapple-b", "enter")
        await until(pilot, lambda: field(app, "cluster").value == "dapple-b")
        box = field(app, "profile")
        box.value = ""
        box.focus()
        for typed, whole in (("de", "deep/"), ("m", "deep/mine.json")):
            await pilot.press(*typed)
            await until(pilot, lambda whole=whole: box._suggestion == whole)
            await pilot.press("right")
        assert box.value == "deep/mine.json"
