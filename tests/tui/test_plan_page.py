"""The Plan page, driven by keys, over a synthetic profile and cluster."""

import asyncio
import json
import os
import re
import socket
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from textual.widgets import Input, Static

from spbench.errors import MissingError, SpbenchError
from spbench.launch.choice import LaunchChoice
from spbench.planner.errors import PlannerError
from spbench.planner.output.emission import emit_suite
from spbench.planner.output.measured_plan import MeasuredPlan
from spbench.planner.output.plan_description import STAGE_LEGEND, format_memory
from spbench.planner.output.verification import TimeComparison, Verification
from spbench.planner.request import compute_plan
from spbench.planner.simulation.step import simulate
from spbench.planner.worker_process import plan_in_process
from spbench.record.number_formatting import format_percent, format_time
from spbench.suites.loader import load_suite_text
from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import AskLine, Confirm
from spbench.tui.plan import page as page_module
from spbench.tui.plan.failure import REMEDY
from spbench.tui.plan.form import HINT_BY_FIELD, NO_CLUSTER
from spbench.tui.plan.last_plan import LastPlan, load_last_plan, save_last_plan
from spbench.tui.plan.layer_rows import (
    build_layer_table,
    describe_layer_batch,
    describe_layer_sums,
)
from spbench.tui.plan.plan_rows import (
    build_alternative_rows,
    build_memory_bars,
    describe_replicas,
)
from spbench.tui.widgets.line_table import LineTable
from support import sample_events as make
from support.tui.app_driver import SIZES, make_console, post_keys, read_screen, wait_until

NAMES = ("stem", "stack1", "stack2", "stack3", "head")
CLUSTER = """\
schema: spbench.cluster/1
devices: {core: {memory: 16GB}}
links: {slow: {bandwidth: 100MB/s}}
machines: [{name: here, devices: {core: 2}, link: slow}]
"""


def make_layer(name):
    sizes = {"activation_bytes": 1000, "kept_bytes": 5e8, "working_bytes": 1e6}
    times = {"forward_ms": 10.0, "backward_ms": 20.0}
    return {"name": name, **times, **sizes, "parameter_bytes": 1e8}


async def plan_in_thread(request):
    """Plan like the planner's process, without starting it."""
    try:
        return await asyncio.to_thread(compute_plan, request)
    except SpbenchError as error:
        raise PlannerError(str(error)) from None


@pytest.fixture(autouse=True)
def no_planner_process(monkeypatch):
    monkeypatch.setattr(page_module, "plan_in_process", plan_in_thread)


@pytest.fixture
def folder(tmp_path):
    """Write a profile of a network that can run, and a cluster with a slow link."""
    origin = {"model": "resnet", "params": {"image_size": 32, "version": 2, "depth": 11}}
    profile = {"schema": "spbench.profile/1", "name": "five", "batch_size": 1, "origin": origin}
    profile["layers"] = [make_layer(name) for name in NAMES]
    profile["edges"] = [list(pair) for pair in pairwise(NAMES)]
    (tmp_path / "five.json").write_text(json.dumps(profile))
    (tmp_path / "two.yaml").write_text(CLUSTER)
    return tmp_path


def get_input(app, id):
    return app.screen.query_one(f"#{id}", Input)


async def wait_for_form(pilot):
    await wait_until(
        pilot, lambda: "Palette" in read_screen(pilot.app) or "Help" in read_screen(pilot.app)
    )
    await wait_until(pilot, lambda: get_input(pilot.app, "cluster").value == "two.yaml")
    return pilot.app.screen


async def make_plan(pilot, batch="16"):
    """Plan the page's proposal, in micro-batches of one."""
    await wait_for_form(pilot)
    return await plan_fields(pilot, batch)


async def plan_fields(pilot, batch="16"):
    """Plan the fields, in micro-batches of one."""
    page = pilot.app.screen
    get_input(pilot.app, "batch").value = batch
    get_input(pilot.app, "micro").value = "1"
    await pilot.press("enter")
    await wait_until(pilot, lambda: page.details is not None)
    return page


@pytest.mark.parametrize("size", SIZES)
async def test_enter_plans_the_nearby_files(folder, size):
    app = make_console(folder, page="plan")
    async with app.run_test(size=size) as pilot:
        page = await make_plan(pilot)
        await wait_until(pilot, lambda: "stem to stack" in read_screen(app))
        stages = page.details.plan.stages
        assert len(stages) == 2
        assert f"step {format_time(1000 * page.details.plan.step_s)}" in read_screen(app)
        assert " of 16.0 GB" in read_screen(app)
        bars, has_device_memory = build_memory_bars(page.details)
        assert has_device_memory
        assert sum(bars[0].parts) == pytest.approx(stages[0].memory_bytes / 16e9)
        used = f"stage 0: {format_memory(stages[0].memory_bytes)} used"
        free = f"{format_memory(16e9 - stages[0].memory_bytes)} free"
        assert bars[0].label == used
        assert bars[0].remainder == free
        expected_texts = {"DP + P3", "this plan", "stage 1 ·", "bubble"}
        expected_texts.add("parameters and gradients")
        texts_shown = set()
        for _ in range(8):  # scrolling reaches all of it
            texts_shown.update(text for text in expected_texts if text in read_screen(app))
            await pilot.press("pagedown")
            await pilot.pause()
        assert texts_shown == expected_texts


@pytest.mark.parametrize("size", [(160, 48), (200, 60)])
async def test_columns_of_a_wide_plan_end_at_the_same_line(folder, size):
    app = make_console(folder, page="plan")
    async with app.run_test(size=size) as pilot:
        page = await make_plan(pilot)
        lowest_panes = [page.query(f"{id} > .pane").last() for id in ("#left", "#right")]
        await wait_until(pilot, lambda: all(pane.region.height for pane in lowest_panes))
        left_bottom, right_bottom = (pane.region.bottom for pane in lowest_panes)
        assert left_bottom == right_bottom >= page.view.region.bottom


async def test_panes_beside_the_plan_are_whole_at_160x48(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(160, 48)) as pilot:
        page = await make_plan(pilot)
        layers = page.query_one("#layers-pane")
        await wait_until(pilot, lambda: layers.region.height)
        alternatives = page.query_one("#alternatives")
        for widget in (alternatives, page.query_one("#layer-sums")):
            assert page.view.region.contains_region(widget.region)
        assert page.query_one("#words-pane").region.y >= alternatives.region.bottom


async def test_meanings_of_blocks_are_not_broken(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(160, 48)) as pilot:
        page = await make_plan(pilot)
        simulation = simulate(replace(page.details.plan, schedule="zb-h1"))
        page.view.show(replace(page.details, simulation=simulation))
        await wait_until(pilot, lambda: "■ W0 weight gradients  · waiting" in read_screen(app))
        assert "■ F0 forward pass of micro-batch 0  ■ B0 backward pass" in read_screen(app)


async def test_alternatives_are_explained_on_a_high_screen(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await make_plan(pilot)
        assert "straight pipeline: one stage for each device" in read_screen(app)
        sums = describe_layer_sums(page.details.profile)
        assert sums == "all layers: forward 50.0 ms, backward 100 ms, parameters 500 MB"
        assert sums in read_screen(app)
        await pilot.resize_terminal(160, 48)
        await wait_until(pilot, lambda: not page.query_one("#ways").display)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_hints_and_stage_legend_are_shown_in_full(folder, size):
    app = make_console(folder, page="plan")
    async with app.run_test(size=size) as pilot:
        page = await make_plan(pilot)
        page.query_one("#alternatives").scroll_visible(animate=False)
        await wait_until(pilot, lambda: STAGE_LEGEND in read_screen(app))
        batch_size = page.details.profile.batch_size
        assert f"measured at batch {batch_size}, in profile" in " ".join(read_screen(app).split())
        for id in ("profile", "cluster"):
            get_input(app, id).value = ""
        hints = [get_input(app, id).placeholder for id in ("profile", "cluster")]
        await wait_until(pilot, lambda: all(hint in read_screen(app) for hint in hints))


async def test_focused_field_is_described(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        page = await wait_for_form(pilot)
        for id, hint in HINT_BY_FIELD.items():
            page.query_one(f"#{id}").focus()
            await wait_until(pilot, lambda hint=hint: f" {hint} " in read_screen(app))
        get_input(app, "batch").focus()
        await wait_until(pilot, lambda: HINT_BY_FIELD["mode"] not in read_screen(app))
        page.view.focus()  # m changes the mode from everywhere
        await wait_until(pilot, lambda: HINT_BY_FIELD["mode"] in read_screen(app))


def write_torchgraph(path):
    """Write a chain of three layers with arguments in their names."""
    times = "forward_compute_time=1.0, backward_compute_time=2.0, activation_size=4.0"
    layers = ("Conv2d(3, 64, kernel_size=(3, 3))", "ReLU(inplace)", "Linear(64, 10)")
    lines = [f"node{n} -- {name} -- {times}, parameter_size=8.0" for n, name in enumerate(layers)]
    path.write_text("\n".join([*lines, "\tnode0 -- node1", "\tnode1 -- node2"]) + "\n")


async def test_torchgraph_has_short_names_of_layers(folder):
    write_torchgraph(folder / "graph.txt")
    app = make_console(folder, page="plan")
    async with app.run_test(size=(160, 48)) as pilot:
        page = await wait_for_form(pilot)
        get_input(app, "profile").value = "graph.txt"
        get_input(app, "measured-at").value = "16"
        get_input(app, "cluster").value = "1x1"
        await pilot.press("enter")
        await wait_until(pilot, lambda: page.details is not None)
        await wait_until(pilot, lambda: "Conv2d to Linear" in read_screen(app))


async def test_bars_of_alternatives_are_their_speedups(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(160, 48)) as pilot:
        plan = (await make_plan(pilot)).details.plan
        rows = build_alternative_rows(plan)
        speedups = [*(baseline.speedup or 0.0 for baseline in plan.baselines), plan.speedup]
        lengths = [row.cells[3].text.count("█") for row in rows]
        assert lengths[speedups.index(max(speedups))] == max(lengths)
        assert sorted(lengths) == [
            length for _, length in sorted(zip(speedups, lengths, strict=True))
        ]


async def test_shares_of_replicas_and_equal_alternatives_are_named(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(160, 48)) as pilot:
        plan = (await make_plan(pilot)).details.plan
        stage = replace(plan.stages[0], devices=(0, 1))
        baseline = replace(plan.baselines[0], step_s=plan.step_s, speedup=plan.speedup, reason="")
        plan = replace(
            plan, stages=(stage,), pipelines=1, micro_batch_size=8, baselines=(baseline,)
        )
        assert describe_replicas(plan) == ", 4 samples on each of 2 devices"
        assert describe_replicas(replace(plan, stages=(stage, stage))) == ""
        same, this_plan = (row.cells[-1].text for row in build_alternative_rows(plan))
        assert same == "as fast as this plan"
        assert this_plan != same


async def test_batch_of_layer_times_is_compared_with_that_of_the_plan(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        details = (await make_plan(pilot)).details
        stage = replace(details.plan.stages[0], devices=(0, 1))
        plan = replace(details.plan, stages=(stage,), pipelines=1)
        batch_size = details.profile.batch_size
        same = replace(details, plan=replace(plan, micro_batch_size=2 * batch_size))
        assert describe_layer_batch(same) == ""
        other = replace(details, plan=replace(plan, micro_batch_size=4 * batch_size))
        assert f"a device of the plan computes {2 * batch_size} at" in describe_layer_batch(other)


async def test_layers_have_no_column_for_stages_of_other_states(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(160, 48)) as pilot:
        details = (await make_plan(pilot)).details
        columns, rows = build_layer_table(details)
        assert "stage" in [column.key for column in columns]
        assert all(len(row.cells) == len(row.sort_keys) == len(columns) for row in rows)
        other = replace(details.plan, state_names=details.plan.state_names[1:])
        columns, rows = build_layer_table(replace(details, plan=other))
        assert "stage" not in [column.key for column in columns]
        assert all(len(row.cells) == len(row.sort_keys) == len(columns) for row in rows)


async def test_overlapped_allreduce_is_noted_below_the_stages(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await make_plan(pilot)
        assert "overlap the last" not in read_screen(app)
        execution_plan = page.details.plan
        first, *others = execution_plan.stages
        stages = (replace(first, all_reduce_s=4.0, overlapped_s=3.0), *others)
        page.view.show(replace(page.details, plan=replace(execution_plan, stages=stages)))
        note = "takes 4.00 s, of which 3.00 s overlap the last backward pass"
        await wait_until(pilot, lambda: note in read_screen(app))


async def test_plan_tables_are_sorted_by_value_whatever_the_unit(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await make_plan(pilot)
        plan = page.details.plan
        stages = [
            replace(stage, forward_s=forward_s)
            for stage, forward_s in zip(plan.stages, (1.2, 0.0964), strict=True)
        ]
        memories = [
            replace(memory, fixed_bytes=fixed_bytes)
            for memory, fixed_bytes in zip(page.details.memory, (10e9, 3e6), strict=True)
        ]
        baselines = [replace(plan.baselines[0], name=f"{x}", speedup=x) for x in (10.0, 9.0, None)]
        plan = replace(plan, stages=tuple(stages), baselines=tuple(baselines))
        plan = replace(plan, single_s=9.5 * plan.step_s)
        page.view.show(replace(page.details, plan=plan, memory=tuple(memories)))
        for id, column, order in (
            ("stages", "forward", [1, 0]),
            ("stages", "memory", [1, 0]),
            ("alternatives", "speedup", [1, 3, 0, 2]),
        ):
            table = page.query_one(f"#{id}", LineTable)
            table.sort_by(column)
            assert table.matching_keys == order


async def test_queued_keys_reach_the_field_focused_by_earlier_ones(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await wait_for_form(pilot)
        get_input(app, "profile").focus()
        await pilot.pause()
        post_keys(app, ["tab", "8", "tab", "tab", "2", "tab", "4", "escape", "m"])
        await wait_until(pilot, lambda: page.form.mode == "hpgo")
        texts = [get_input(app, id).value for id in ("measured-at", "cluster", "batch", "micro")]
        assert texts == ["8", "two.yaml", "2", "4"]


async def test_lost_key_does_not_block_later_keys(folder, monkeypatch):
    app = make_console(folder, page="plan")
    app.max_key_wait_steps = 20
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_for_form(pilot)
        batch = get_input(app, "batch")
        batch.focus()
        await pilot.pause()
        with monkeypatch.context() as patch:
            patch.setattr(batch, "call_later", lambda *_: True)  # it is never called
            post_keys(app, "12")
            await asyncio.sleep(0.05)  # a pause of the pilot would call it later too
            assert batch.value != "12"
        await wait_until(pilot, lambda: batch.value == "12")


async def test_zooms_the_timeline_of_the_step(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await make_plan(pilot)
        line = page.query_one("#timeline")
        await wait_until(pilot, lambda: line.size.width > 60)
        fitted = line.size.width
        await pilot.press("plus")
        await wait_until(pilot, lambda: line.size.width == 2 * fitted)
        await pilot.press("minus", "minus")
        await wait_until(pilot, lambda: line.size.width == fitted)


async def test_keys_that_a_text_field_takes_are_not_offered(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        await make_plan(pilot)
        await wait_until(pilot, lambda: "+ Longer step  - Shorter step" in read_screen(app))
        get_input(app, "batch").focus()
        await wait_until(pilot, lambda: "+ Longer step  - Shorter step" not in read_screen(app))
        # The bar is empty for a moment while its keys are replaced.
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        assert "F5 Run & compare" in read_screen(app)


async def test_step_is_drawn_as_blocks_of_micro_batches(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await make_plan(pilot)
        line = page.query_one("#timeline", Static)
        await wait_until(pilot, lambda: "F0" in str(line.content))
        first, second, axis = str(line.content).splitlines()
        assert first.startswith("stage 0 F0F1")
        assert second.startswith("stage 1 ·")
        assert "B15" in first
        assert axis.endswith(format_time(1000 * page.details.plan.step_s))
        notes = str(page.query_one("#step-notes", Static).content)
        assert "■ F0 forward pass of micro-batch 0  ■ B0 backward pass" in notes
        assert "Schedule 1f1b-deep: as in 1f1b passes alternate" in notes
        assert "weight gradients" not in notes


async def test_timeline_shows_deferred_weight_gradients(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await make_plan(pilot)
        simulation = simulate(replace(page.details.plan, schedule="zb-h1"))
        page.view.show(replace(page.details, simulation=simulation))
        line = page.query_one("#timeline", Static)
        await wait_until(pilot, lambda: "W0" in str(line.content))
        notes = str(page.query_one("#step-notes", Static).content)
        assert "■ W0 weight gradients" in notes
        assert "Schedule zb-h1: a stage computes gradients of weights while" in notes


async def test_input_errors_are_shown_on_the_page(folder):
    (folder / "graph.txt").write_text(
        "n1 -- Conv -- forward_compute_time=1.0, backward_compute_time=2.0, "
        "activation_size=4.0, parameter_size=8.0\n"
    )
    app = make_console(folder, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_form(pilot)
        for id, text, error in (
            ("batch", "x", "the global batch size is x"),
            ("batch", "16", ""),
            ("profile", "graph.txt", "does not say its batch size"),
            ("profile", "gone.json", "No such file"),
            ("profile", "~no-such-user/five.json", "unknown home directory"),
            ("profile", "five.json", ""),
            ("cluster", "4,2", "must be rising device numbers"),
            ("cluster", "nowhere", "nowhere is neither machines"),
            ("cluster", "~no-such-user/two", "unknown home directory"),
        ):
            get_input(app, id).value = text
            if error:
                await pilot.press("enter")
                await wait_until(
                    pilot, lambda error=error: error in " ".join(read_screen(app).split())
                )
        assert app.screen.details is None
        await pilot.press("f4")
        await wait_until(
            pilot, lambda: any("nothing is planned" in n.message for n in app._notifications)
        )


async def test_planning_can_be_stopped(folder, monkeypatch):
    stopped = asyncio.Event()

    async def plan_forever(request):
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    monkeypatch.setattr(page_module, "plan_in_process", plan_forever)
    app = make_console(folder, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_form(pilot)
        await pilot.press("enter")
        await wait_until(pilot, lambda: "… planning" in read_screen(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: stopped.is_set() and "1. Choose" in read_screen(app))


async def test_suite_in_an_unknown_home_directory_is_reported(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await make_plan(pilot)
        await pilot.press("e")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        app.screen.query_one(Input).value = "~no-such-user/plan.yaml"
        await pilot.press("enter")
        message = "✗ ~no-such-user/plan.yaml: unknown home directory"
        await wait_until(pilot, lambda: message in read_screen(app))
        assert isinstance(app.screen, AskLine)
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.screen is page)


async def test_writes_a_suite_and_opens_it(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        await make_plan(pilot)
        await pilot.press("e")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.current_mode == "suites")
        await wait_until(pilot, lambda: "model.resnet" in read_screen(app))
    [path] = folder.glob("plan-*.yaml")
    [case] = load_suite_text(path.read_text(), path).cases
    assert dict(case.params)["split_size"] == 2


def record_plan_run(path, home, case=None, step_ms=2000.0, **changes):
    """Record a run of a plan of two stages.

    Args:
        path: The suite.
        home: The folder of the runs.
        case: The case of the plan in the suite; None leaves it unknown.
        step_ms: The measured time of a step.
        changes: Further contents of run.json.
    """
    phases = [
        make.describe_metric(f"{name}_ms", "ms", part_of="time_ms")
        for name in ("forward", "backward")
    ]
    coordinates = [{"stage": 0}, {"stage": 1}]
    description = {"benchmark": case.benchmark, "params": dict(case.params)} if case else {}
    start, *events = make.make_started_run(
        make.describe_case("plan", metrics=[make.TIME, *phases], places=coordinates, **description)
    )
    medians = {"time_ms": step_ms, "forward_ms": 500.0, "backward_ms": 1000.0}
    return make.record_run(
        home,
        [
            start | {"argv": ["run", str(path)]},
            *events,
            *(
                make.rank_event("samples", rank, case="plan", metric=name, values=[value])
                for rank in (0, 1)
                for name, value in medians.items()
            ),
            make.case_judged("plan"),
            make.run_end(),
        ],
        verdict="passed",
        **changes,
    )


def find_step_lines(app):
    """Return the screen's lines with the measured step of `record_plan_run`."""
    lines = read_screen(app).splitlines()
    return [line for line in lines if " step " in line and "2.00 s" in line and " too " in line]


async def test_measured_run_appears_next_to_the_plan(folder, monkeypatch):
    app = make_console(folder, page="plan")
    starts = []
    monkeypatch.setattr(app.context, "start_run", lambda arguments, **_: starts.append(arguments))
    async with app.run_test(size=(200, 60)) as pilot:
        page = await make_plan(pilot)
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press("enter")
        await wait_until(pilot, lambda: starts)
        assert starts == [(str(page.suite),)]
        await wait_until(pilot, lambda: "is running; its times appear here" in read_screen(app))
        app.context.watch_run(record_plan_run(page.suite, folder / "home"), show=False)
        await wait_until(pilot, lambda: "has the most work" in read_screen(app))
        # The table is drawn a moment after the line below it.
        await wait_until(pilot, lambda: find_step_lines(app))
        row = find_step_lines(app)[-1]
        error = (1000 * page.details.plan.step_s - 2000) / 2000
        assert f"{format_percent(abs(error))} too {'low' if error < 0 else 'high'}" in row
        assert "a step takes 2.00 s, the prediction is" in read_screen(app)
        for part in ("passes and messages", "all-reduce after them", "rest"):
            await wait_until(
                pilot, lambda part=part: re.search(rf"{part} +[\d.]+ [mu]?s", read_screen(app))
            )


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_newest_run_of_a_plan_is_found_in_its_record(folder, size):
    """Runs of another session, of the same plan, of others and with faults."""
    app = make_console(folder, page="plan")
    async with app.run_test(size=size) as pilot:
        details = (await make_plan(pilot)).details
        assert "Measured" not in read_screen(app)
    suite = emit_suite(details.plan, details.profile, details.cluster, folder / "p.yaml").suite
    [case] = suite.cases
    other_case = replace(case, params={**case.params, "batch_size": 99})
    longer_case = replace(case, params={**case.params, "iterations": 99})
    home = folder / "home"
    for number, (recorded_case, step_ms, changes) in enumerate(
        [
            (case, 3000.0, {}),
            (longer_case, 2000.0, {}),
            (other_case, 4000.0, {}),
            (case, 5000.0, {"request": {"inject": ["slow@rank=1"]}}),
            (case, 6000.0, {"suite": "another"}),
        ]
    ):
        changes = {"suite": suite.name} | changes
        run = record_plan_run(folder / "p.yaml", home, recorded_case, step_ms, **changes)
        run.path.rename(run.path.with_name(f"20260101-00000{number}-plan"))
    app = make_console(folder, page="plan")
    async with app.run_test(size=size) as pilot:
        page = await make_plan(pilot)
        await wait_until(pilot, lambda: "a step takes 2.00 s" in read_screen(app))
        assert page.view.scroll_y == 0
        assert re.search(r"Measured \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: a step", read_screen(app))
        await wait_until(pilot, lambda: "F5 runs it again with 2 ranks" in read_screen(app))
        parts = str(page.query_one("#step-parts", Static).content)
        assert "Run 20260101-000001-plan, started " in parts


@pytest.mark.parametrize("key", ["f4", "f5"])
async def test_plan_of_earlier_fields_is_marked_and_not_run(folder, monkeypatch, key):
    app = make_console(folder, page="plan")
    starts = []
    monkeypatch.setattr(app.context, "start_run", lambda arguments, **_: starts.append(arguments))
    async with app.run_test(size=(80, 24)) as pilot:
        page = await make_plan(pilot)
        page.suite = folder / "plan.yaml"  # as after a run
        get_input(app, "batch").value = "32"
        await wait_until(pilot, lambda: page_module.OUTDATED in read_screen(app))
        assert not page.offers("emit")
        assert not page.offers("verify")
        await pilot.press(key)
        await wait_until(pilot, lambda: app._notifications)
        assert [note.message for note in app._notifications] == [page_module.OUTDATED]
        assert app.screen is page
        assert not starts
        get_input(app, "batch").value = "16"
        await wait_until(pilot, lambda: page_module.OUTDATED not in read_screen(app))
        assert page.offers("verify")


async def test_failed_start_of_a_plan_is_reported(folder, monkeypatch):
    def refuse(*_):
        raise MissingError("case plan wants 2 devices, and 1 is available")

    monkeypatch.setattr("spbench.engine.background.start_run", refuse)
    app = make_console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await make_plan(pilot)
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press("enter")
        await wait_until(
            pilot, lambda: app.current_mode == "run" and app.context.starting_since is None
        )
        app.context.show_page("plan")
        await wait_until(pilot, lambda: f"✗ {page.suite.name} was not started" in read_screen(app))
        assert app.context.has_failed_start
        app.context.launch_choice = LaunchChoice(launcher="hydra")
        await wait_until(pilot, lambda: "✗ not started" not in read_screen(app))


async def test_run_with_two_cases_is_not_taken_for_the_plan(folder):
    """The user may add to the suite before running it."""
    path = folder / "plan.yaml"
    start, *events = make.make_started_run(make.describe_case("plan"), make.describe_case("more"))
    run_start = start | {"argv": ["run", str(path)]}
    run = make.record_run(folder / "home", [run_start, *events, make.run_end()], verdict="passed")
    app = make_console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await make_plan(pilot)
        page.await_run(path)
        app.context.watch_run(run, show=False)
        await wait_until(pilot, lambda: "ran 2 cases, not the plan alone" in read_screen(app))
        app.context.show_page("run")
        await wait_until(pilot, lambda: "c shows predicted and" in read_screen(app))


async def test_run_of_a_plan_names_its_page_whatever_panel_is_shown(folder):
    path = folder / "plan.yaml"
    app = make_console(folder, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        page = await make_plan(pilot)
        page.await_run(path)
        app.context.watch_run(record_plan_run(path, folder / "home"))
        next_step = "→ c shows predicted and measured times"
        for _ in range(4):
            await wait_until(pilot, lambda: next_step in read_screen(app))
            await pilot.press("v")
            await pilot.pause()
        await pilot.press("5")
        await wait_until(pilot, lambda: "Predicted and measured" in read_screen(app))
        page.view.scroll_home(animate=False)
        await pilot.press("2")
        await wait_until(pilot, lambda: "c Predicted" in read_screen(app))
        await pilot.press("c")
        await wait_until(pilot, lambda: app.current_mode == "plan")
        await wait_until(pilot, lambda: "Predicted and measured" in read_screen(app))
        assert app.context.run_to_compare is None


async def test_readonly_console_plans_and_writes_nothing(folder, monkeypatch):
    monkeypatch.setattr(page_module, "plan_in_process", plan_in_process)
    app = make_console(folder, page="plan", readonly=True)
    async with app.run_test(size=(120, 40)) as pilot:
        page = await make_plan(pilot)
        await pilot.press("e", "f4", "f5")
        await pilot.pause()
        assert app.screen is page
        assert page.details is not None


@pytest.mark.long
async def test_fields_support_lists_completion_and_switching(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "mine.json").write_text("{}")
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await wait_for_form(pilot)
        await pilot.press("m")
        await wait_until(pilot, lambda: "● hpgo" in read_screen(app))
        assert page.form.request().mode == "hpgo"
        await pilot.click("ModeSwitch")
        await wait_until(pilot, lambda: "● best" in read_screen(app))
        get_input(app, "cluster").focus()
        await pilot.press("f2")
        await wait_until(
            pilot, lambda: isinstance(app.screen, Chooser) and "dapple-a" in read_screen(app)
        )
        await pilot.press(*"dapple-b", "enter")
        await wait_until(pilot, lambda: get_input(app, "cluster").value == "dapple-b")
        profile = get_input(app, "profile")
        profile.value = ""
        profile.focus()
        for typed, completion in (("de", "deep/"), ("m", "deep/mine.json")):
            await pilot.press(*typed)
            await wait_until(pilot, lambda completion=completion: profile._suggestion == completion)
            await pilot.press("right")
        assert profile.value == "deep/mine.json"


async def test_choice_for_a_field_focuses_the_next_one(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_form(pilot)
        for next_id in ("cluster", "batch"):
            await pilot.press("f2")
            await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
            await pilot.press("enter")
            await wait_until(pilot, lambda id=next_id: app.focused is get_input(app, id))


@pytest.mark.parametrize("size", SIZES)
async def test_notes_on_alternatives_are_never_cut(folder, size):
    app = make_console(folder, page="plan")
    async with app.run_test(size=size) as pilot:
        page = await make_plan(pilot)
        notes = {baseline.reason for baseline in page.details.plan.baselines if baseline.reason}
        assert notes

        def shows_notes():
            text_parts = read_screen(app).replace("│", " ").split()
            return all(note in " ".join(text_parts) for note in notes)

        page.query_one("#alternative-notes").scroll_visible(animate=False)
        await wait_until(pilot, shows_notes)


@pytest.mark.parametrize(("size", "is_framed"), [((80, 24), False), ((120, 40), True)])
async def test_panes_have_frames_and_legends_where_they_fit(folder, size, is_framed):
    app = make_console(folder, page="plan")
    async with app.run_test(size=size) as pilot:
        page = await make_plan(pilot)
        pane = page.query_one("#memory")
        pane.scroll_visible(animate=False)
        await wait_until(pilot, lambda: "a full bar is the device's memory" in read_screen(app))
        assert pane.has_class("pane") is is_framed
        assert pane.query_one(".legend").display is not is_framed


async def test_empty_page_says_how_to_measure_a_profile(tmp_path):
    app = make_console(tmp_path, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "Press Ctrl+N to measure" in read_screen(app))
        await wait_until(pilot, lambda: "^N New profile" in read_screen(app))
        assert "⏎ Plan" not in read_screen(app)


async def test_plan_for_an_existing_file_asks_for_another_name(folder, monkeypatch):
    app = make_console(folder, page="plan")
    starts = []
    monkeypatch.setattr(app.context, "start_run", lambda arguments, **_: starts.append(arguments))
    async with app.run_test(size=(120, 40)) as pilot:
        page = await make_plan(pilot)
        (folder / "taken.yaml").write_text("mine")
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        app.screen.query_one(Input).value = "taken.yaml"
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("n")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        assert app.screen.query_one(Input).value == "taken.yaml"
        app.screen.query_one(Input).value = "free.yaml"
        await pilot.press("enter")
        await wait_until(pilot, lambda: starts)
        assert page.suite == folder / "free.yaml"
        assert (folder / "taken.yaml").read_text() == "mine"


async def test_assumed_values_are_shown_and_written_as_a_cluster(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await wait_for_form(pilot)
        get_input(app, "cluster").value = "2x1"
        await plan_fields(pilot)
        assert "profile: five, depth 11, 32x32" in read_screen(app)
        assert "1.00 GB/s (3.00 GB/s in all-reduces) between machines" in read_screen(app)
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press("enter")
        await wait_until(pilot, lambda: get_input(app, "cluster").value == "cluster-2x1.yaml")
        before_s = page.details.plan.step_s
        await plan_fields(pilot)
        await wait_until(pilot, lambda: page.details is not None)
        assert page.details.cluster.name == "cluster-2x1"
        assert page.details.plan.step_s == pytest.approx(before_s)
        assert not page.offers("write_cluster")


async def test_rewritten_suite_is_read_again_without_a_warning(folder, monkeypatch):
    app = make_console(folder, page="plan")
    starts = []
    monkeypatch.setattr(app.context, "start_run", lambda arguments, **_: starts.append(arguments))
    async with app.run_test(size=(120, 40)) as pilot:
        await make_plan(pilot)
        path = folder / "mine.yaml"
        path.write_text("schema: spbench.suite/1\nname: old\ncases: []\n")
        app.context.open_suite(path)
        await wait_until(pilot, lambda: "name: old" in read_screen(app))
        app.context.show_page("plan")
        await wait_until(pilot, lambda: app.current_mode == "plan")
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        app.screen.query_one(Input).value = "mine.yaml"
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await wait_until(pilot, lambda: starts)
        app.context.show_page("suites")
        await wait_until(pilot, lambda: app.current_mode == "suites")
        await wait_until(pilot, lambda: app.screen.text_pane.editor.text == path.read_text())
        assert not app.screen.text_pane.has_changes
        assert not app.screen.text_pane.document.is_stale()


async def test_disturbed_run_is_marked_and_explained(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await make_plan(pilot)
        plan = page.details.plan
        assert page.query_one("#alternatives", LineTable).cursor_key == len(plan.baselines)
        compared = TimeComparison(9.0, 10.0)
        stages = (compared,) * len(plan.stage_groups)
        parts_ms = {"passes and messages": 9.0}
        noise = "rank 1 on node01 waited 44 % of its time for a core"
        verification = Verification(compared, stages, 1, parts_ms, noise)
        page.view.show_outcome(plan, MeasuredPlan("run", None, verification))
        await wait_until(pilot, lambda: "≈ 10 % too low" in read_screen(app))
        measured = page.query_one("#measured")
        await wait_until(
            pilot, lambda: measured.size and page.view.region.contains_region(measured.region)
        )
        assert "a step takes 10.0 ms" in str(page.query_one("#measurement").render())
        await wait_until(pilot, lambda: f"≈ disturbed: {noise}" in read_screen(app))


async def test_plan_is_explained_in_words(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await make_plan(pilot)
        await wait_until(pilot, lambda: "The plan in words" in read_screen(app))
        explanation = str(page.query_one("#explanation", Static).content)
        assert "Each micro-batch goes through all 2 stages" in explanation
        assert "needs the most memory" in explanation
        assert "HPGO, which estimates steps by a formula" in explanation
        assert page.details is not None


async def test_plan_says_why_it_is_the_best_and_what_its_start_does(folder, monkeypatch):
    monkeypatch.setattr("spbench.launch.devices.count_cores", lambda: 2)
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        await make_plan(pilot)
        await wait_until(pilot, lambda: "stages is the fastest of" in read_screen(app))
        await wait_until(pilot, lambda: "F5 runs it with 2 ranks" in read_screen(app))
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        await wait_until(pilot, lambda: "Enter runs it with 2 ranks" in read_screen(app))


async def test_plan_for_too_many_devices_is_not_started(folder, monkeypatch):
    monkeypatch.setattr("spbench.launch.devices.count_cores", lambda: 1)
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await make_plan(pilot)
        await wait_until(pilot, lambda: "F5 cannot start it" in read_screen(app))
        assert "this machine has 1 core" in " ".join(read_screen(app).split())
        await pilot.press("f5")
        await wait_until(pilot, lambda: app._notifications)
        [message] = [notification.message for notification in app._notifications]
        assert message.startswith("not started: case plan is for 2 devices")
        assert app.screen is page


async def test_list_of_clusters_has_this_machine_small_ones_and_typing(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_form(pilot)
        cluster = get_input(app, "cluster")
        cluster.focus()
        for chosen, value in (("this-machine", "this-machine"), ("1x2", "1x2"), ("own", "")):
            await pilot.press("f2")
            await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
            await pilot.press(*chosen)
            await pilot.press("enter")
            await wait_until(pilot, lambda value=value: cluster.value == value)
            cluster.focus()


async def test_broken_files_are_named_with_a_remedy_and_the_page_stays_usable(folder):
    profile = json.loads((folder / "five.json").read_text())
    for layer in profile["layers"]:
        layer |= {"forward_ms": "fast", "backward_ms": "fast"}
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_form(pilot)
        (folder / "broken.json").write_text(json.dumps(profile, indent=0))
        (folder / "broken.yaml").write_text("schema: spbench.cluster/1\nmachines: 3\n")
        (folder / "graph.txt").write_text("n1 -- Conv -- forward_compute_time=1.0\n")
        for id, name, error in (
            ("profile", "broken.json", "must be a number, not 'fast'"),
            ("profile", "graph.txt", "in the field next to the profile"),
            ("profile", "five.json", ""),
            ("cluster", "broken.yaml", "machines must be a list"),
            ("cluster", "two.yaml", ""),
        ):
            get_input(app, id).value = name
            if error:
                await pilot.press("enter")
                await wait_until(
                    pilot, lambda error=error: error in " ".join(read_screen(app).split())
                )
                assert name in read_screen(app)
                assert REMEDY in read_screen(app)
        await make_plan(pilot)


async def test_c_goes_to_the_cluster_whose_f2_lists_clusters(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await make_plan(pilot)
        await wait_until(pilot, lambda: "F2 Profiles" in read_screen(app))
        assert "assumed speed" not in read_screen(app)
        await pilot.press("c")
        await wait_until(pilot, lambda: app.focused is get_input(app, "cluster"))
        await wait_until(pilot, lambda: "F2 Clusters" in read_screen(app))
        get_input(app, "cluster").value = "1x2"
        await pilot.click("Button#plan")
        await wait_until(pilot, lambda: page.details and page.details.cluster.name == "1x2")
        await wait_until(pilot, lambda: "assumed speed: each device" in read_screen(app))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5", "= 1 machine with 5 devices"),
        ("8,16", "= 2 machines with 8 devices each"),
        ("2x8,1x4", "= 2 machines with 8 devices each and 1 machine with 4 devices"),
        ("two.yaml", "= 1 machine with 2 devices"),
        ("dapple-a", "= 2 machines with 8 devices each"),
        ("this-machine", f"= {socket.gethostname()}, "),
        ("5x", NO_CLUSTER),
    ],
)
async def test_size_of_a_cluster_is_next_to_its_field(folder, text, size):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_form(pilot)
        get_input(app, "cluster").value = text
        await wait_until(pilot, lambda: size in read_screen(app))


async def test_planned_cluster_is_in_the_title_of_the_plan(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        await make_plan(pilot)
        await wait_until(pilot, lambda: "Plan for 1 machine with 2 devices" in read_screen(app))


async def test_last_plan_is_shown_again_by_the_next_console(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await make_plan(pilot)
        await wait_until(pilot, (folder / "home/console/last-plan.json").exists)
        step = f"step {format_time(1000 * page.details.plan.step_s)}"
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: step in read_screen(app))
        assert get_input(app, "batch").value == "16"
        assert get_input(app, "micro").value == "1"
        assert not app.screen.is_outdated


@pytest.mark.parametrize("seconds", [0.1, 60.0])
async def test_last_plan_that_disturbs_is_named_and_not_planned(folder, monkeypatch, seconds):
    fields = {"profile": "five.json", "cluster": "this-machine", "batch": "4", "mode": "hpgo"}
    save_last_plan(folder / "home", LastPlan(fields, seconds))
    app = make_console(folder, page="plan")
    monkeypatch.setattr(app.context, "is_run_active", lambda: seconds < 1)
    async with app.run_test(size=(120, 40)) as pilot:
        line = "Enter plans five.json for this-machine again."
        await wait_until(pilot, lambda: line in read_screen(app))
        assert app.screen.form.fields == fields | {"measured-at": "", "micro": ""}
        assert app.screen.details is None
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.screen.details is not None)


def test_last_plan_of_an_older_or_missing_profile_is_not_shown(folder):
    home = folder / "home"
    assert load_last_plan(home, folder, "five.json") is None
    save_last_plan(home, LastPlan({"profile": "missing.json"}, 0.1))
    assert load_last_plan(home, folder, "five.json") is None
    plan = LastPlan({"profile": "five.json"}, 0.1)
    save_last_plan(home, plan)
    assert load_last_plan(home, folder, "five.json") == plan
    later = time.time() + 10
    os.utime(folder / "two.yaml", (later, later))
    assert load_last_plan(home, folder, "two.yaml") is None
    (home / "console/last-plan.json").write_text("[]")
    assert load_last_plan(home, folder, "five.json") is None


async def test_footer_says_how_to_leave_a_field(folder):
    app = make_console(folder, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        page = await wait_for_form(pilot)
        await pilot.press("c")
        await wait_until(pilot, lambda: "Esc Leave field" in read_screen(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.focused is page.view)
        await wait_until(pilot, lambda: "Leave field" not in read_screen(app))


async def test_reason_against_a_run_names_the_field_of_the_page(folder, monkeypatch):
    def refuse(*arguments):
        raise PlannerError("too small to share; plan with --micro-batch-size 4 or more")

    monkeypatch.setattr("spbench.tui.plan.plan_run.emit_suite", refuse)
    monkeypatch.setattr("spbench.tui.plan.plan_suite.emit_suite", refuse)
    app = make_console(folder, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        await make_plan(pilot)
        expected = "too small to share; plan with Micro-batch 4 or more"
        await wait_until(pilot, lambda: f"F5 cannot start it: {expected}" in read_screen(app))
        await pilot.press("f4")
        await wait_until(
            pilot, lambda: any(expected in note.message for note in app._notifications)
        )
