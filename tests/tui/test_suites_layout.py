"""Sizes of the panes of the Suites page, and the facts about the selected case."""

import pytest
from rich.style import Style
from textual.widgets import Static

from spbench.engine.run_estimate import CaseEstimate, EstimateSource, RunEstimate
from spbench.tui.suites.case_facts import (
    find_entry_names,
    find_inherited_names,
    render_case_facts,
)
from spbench.tui.suites.cases_pane import CasesPane, CommandPane
from spbench.tui.suites.cases_table import CasesTable
from support.tui.app_driver import read_screen, wait_until
from support.tui.suites_page import (
    FIRST_CASE_LINE,
    SUITE,
    answer,
    get_text_pane,
    list_messages,
    move_to_line,
    open_suite,
    wait_for_cases,
)

MANY = SUITE + "".join(
    f"  - name: more-{number}\n    benchmark: link.barrier\n    np: 2\n" for number in range(90)
)


@pytest.mark.parametrize("text", [SUITE, MANY])
async def test_command_has_the_rows_that_the_cases_do_not_need(suite, text):
    suite.write_text(text)
    app = open_suite(suite)
    count = 3 if text == SUITE else 93
    async with app.run_test(size=(160, 48)) as pilot:
        await wait_for_cases(pilot, count)
        pane_height = app.screen.query_one(CasesPane).size.height
        cases = app.screen.query_one(CasesTable)
        launches = app.screen.query_one("#launches")
        await wait_until(pilot, lambda: launches.size.height > 0)
        needed = count + 3 + launches.size.height
        expected = min(max(needed, 7), pane_height * 60 // 100)
        await wait_until(pilot, lambda: cases.outer_size.height == expected)
        command = app.screen.query_one(CommandPane)
        assert command.outer_size.height == pane_height - expected


async def test_facts_of_the_selected_case_are_below_its_command(suite, case_estimates):
    case_estimates["first"] = CaseEstimate(4.0, EstimateSource.HISTORY, 1.5)
    app = open_suite(suite)
    async with app.run_test(size=(160, 48)) as pilot:
        await wait_for_cases(pilot)
        pane = app.screen.query_one(CommandPane)

        def read_command():
            return str(pane.query_one(Static).content)

        await wait_until(pilot, lambda: "plus 1.5 s to start" in read_command())
        for part in ("2.5 s from earlier runs", "image_size        64", "F7\ncorrupt-halo,"):
            assert part in read_command()


async def test_facts_leave_out_values_of_the_environment(suite):
    program = "benchmark: program.run\n    params: {argv: [ls], env: {TOKEN: secret}}\n"
    suite.write_text(SUITE + f"  - name: other\n    {program}")
    app = open_suite(suite)
    async with app.run_test(size=(160, 48)) as pilot:
        await wait_for_cases(pilot, 4)
        parsed = await get_text_pane(app).parse()
        text = render_case_facts(parsed.cases[-1], None).values.plain
        assert "TOKEN" in text
        assert "secret" not in text


async def test_facts_come_first_in_the_words_of_the_form_and_mark_suite_defaults(suite):
    defaults = "defaults:\n  repeat: 3\n  params: {seed: 7}\n"
    suite.write_text(SUITE.replace("cases:\n", f"{defaults}cases:\n"))
    app = open_suite(suite)
    async with app.run_test(size=(160, 48)) as pilot:
        await wait_for_cases(pilot)
        parsed = await get_text_pane(app).parse()
        case = parsed.cases[0]
        inherited = find_inherited_names(parsed.text, case)
        lines = render_case_facts(case, None, frozenset(), inherited, 40).values.plain.splitlines()
        assert lines[1:3] == ["ranks     2", "repeats   3 (suite default)"]
        rows = [" ".join(line.split()) for line in lines]
        for line in ("seed 7 (suite default)", "halo_len 1", "channels_last off"):
            assert line in rows
        content = app.screen.query_one(CommandPane).query_one(Static)
        await wait_until(pilot, lambda: "job 1" in str(content.content)[1:])
        text = str(content.content)
        assert text.index("parameters") < text.index("job 1") < text.index("environment")
        assert text.index("environment") < text.index("metrics") < text.index("faults to plant")
        start = text.index("only this case, without spbench")
        assert "-m spbench_workers halo.exchange" in " ".join(text[start:].split())


async def test_parameters_that_the_suite_sets_are_bold_and_come_first(suite):
    suite.write_text(SUITE.replace("cases:\n", "defaults: {params: {seed: 7}}\ncases:\n"))
    app = open_suite(suite)
    async with app.run_test(size=(160, 48)) as pilot:
        await wait_for_cases(pilot)
        parsed = await get_text_pane(app).parse()
        bold_names = []
        for case in parsed.cases[:2]:
            entry_names = find_entry_names(parsed.text, case)
            inherited = find_inherited_names(parsed.text, case)
            values = render_case_facts(case, None, entry_names, inherited).values
            lines = values.plain[values.plain.index("parameters (bold: set in the suite)") :]
            bold_count = sum(span.style == Style(bold=True) for span in values.spans)
            bold_names.append([line.split()[0] for line in lines.splitlines()[1 : bold_count + 1]])
        assert sorted(bold_names[0]) == ["image_size", "num_spatial_parts", "seed", "slice_method"]
        assert sorted(bold_names[1]) == ["iterations", "seed"]


async def test_case_that_undo_brings_back_is_in_view(suite):
    suite.write_text(MANY)
    app = open_suite(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_cases(pilot, 93)
        table = app.screen.query_one(CasesTable).table
        table.focus()
        await move_to_line(pilot, FIRST_CASE_LINE)
        await wait_until(pilot, lambda: table.cursor_key == "first")
        await pilot.press("f8")
        await answer(pilot, "y")
        await wait_for_cases(pilot, 92)
        await pilot.press("end")
        await wait_until(pilot, lambda: table.scroll_offset.y > 0)
        await pilot.press("ctrl+z")
        await wait_for_cases(pilot, 93)
        assert table.cursor_key == "first"
        await wait_until(pilot, lambda: "first" in table.visible_keys)


async def test_many_focused_cases_have_the_rows_of_a_small_terminal(suite):
    suite.write_text(MANY)
    app = open_suite(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_cases(pilot, 93)
        command = app.screen.query_one(CommandPane)
        table = app.screen.query_one(CasesTable).table
        launches = app.screen.query_one("#launches")
        await wait_until(pilot, lambda: launches.size.height == 1)
        await wait_until(pilot, lambda: table.size.height >= 9)  # with the heading
        await wait_until(pilot, lambda: command.outer_size.height == 3)
        assert get_text_pane(app).editor.size.height >= 3
        await pilot.press("e")
        await wait_until(pilot, lambda: command.outer_size.height >= 5)
        await wait_until(pilot, lambda: get_text_pane(app).editor.size.height >= 8)
        command.focus()
        await wait_until(pilot, lambda: app.focused is command)
        assert command.outer_size.height >= 5
        table.focus()
        await wait_until(pilot, lambda: command.outer_size.height == 3)


async def test_few_focused_cases_leave_lines_for_the_command(suite):
    suite.write_text(SUITE)
    app = open_suite(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_cases(pilot)
        table = app.screen.query_one(CasesTable).table
        await wait_until(pilot, lambda: table.size.height == 4)  # with the heading
        await wait_until(pilot, lambda: app.screen.query_one(CommandPane).size.height >= 5)
        await wait_until(pilot, lambda: "mpirun" in read_screen(app))
        assert get_text_pane(app).editor.size.height >= 3


async def test_command_of_a_removed_case_makes_way_for_what_to_do(suite):
    text = SUITE.partition("  # The first")[0]
    suite.write_text(text)
    app = open_suite(suite)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "name: made-up" in read_screen(app))
        get_text_pane(app).editor.replace_text(SUITE, FIRST_CASE_LINE, "case first added")
        await wait_for_cases(pilot)
        command = app.screen.query_one(CommandPane)

        def read_command():
            return str(command.query_one(Static).content)

        await wait_until(pilot, lambda: "spbench_workers" in read_command())
        app.screen.query_one(CasesTable).table.focus()
        await pilot.press("ctrl+z")
        await wait_until(pilot, lambda: "appears here" in read_command())
        assert "spbench_workers" not in read_command()
        assert str(command.border_title) == "Command"
        await pilot.press("f7")
        await wait_until(pilot, lambda: "no cases yet; F4 adds one" in list_messages(app)[-1])


async def test_total_of_filtered_cases_is_their_duration(suite):
    app = open_suite(suite)
    async with app.run_test(size=(160, 48)) as pilot:
        await wait_for_cases(pilot)
        table = app.screen.query_one(CasesTable)
        ids = [case.id for case in table.rows.cases]
        estimates = [CaseEstimate(seconds, EstimateSource.HISTORY) for seconds in (2.0, 20.0, 30.0)]
        estimate = RunEstimate(dict(zip(ids, estimates, strict=True)))
        table.show_estimate(estimate)
        assert f"3 cases, {estimate.total_text}" in str(table.border_subtitle)
        await pilot.press("slash", *"first")
        await wait_until(pilot, lambda: "1 of 3 cases" in str(table.border_subtitle))
        table.show_estimate(estimate)  # the page may have shown its own in the meantime
        assert f"1 of 3 cases, {estimate.select_cases(ids[:1]).total_text}" in str(
            table.border_subtitle
        )
