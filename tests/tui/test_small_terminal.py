"""Dialogs on a terminal of 40x10: the question and all of its answers are visible."""

import pytest

from spbench.tui.chooser import Choice, Chooser
from spbench.tui.dialogs import AskLine, Confirm
from support.tui.app_driver import make_console, read_screen, wait_until
from support.tui.suites_page import open_first_case, open_suite

SMALL = (40, 10)


@pytest.mark.parametrize(
    ("screen", "expected"),
    [
        (Confirm("Delete the run? " * 20, "Delete", "Cancel"), ["Delete (y)", "Cancel (n)"]),
        (
            Confirm("made-up.yaml has changed. Overwrite it?", "Overwrite", "Do not save"),
            ["Overwrite (y)", "Do not save (n)"],
        ),
        (
            AskLine(
                "Hosts of runs from here: a hostfile, or node[01-08]:4,other; empty: none",
                str,
                "my.hosts",
            ),
            ["my.hosts"],
        ),
        (
            Chooser("Launcher", [Choice("auto", "the suite's"), Choice("srun", "Slurm's")]),
            ["auto", "srun"],
        ),
    ],
    ids=["long question", "long answers", "line", "list"],
)
async def test_questions_and_answers_are_visible(tmp_path, screen, expected):
    app = make_console(tmp_path, page="results")
    async with app.run_test(size=SMALL) as pilot:
        await wait_until(pilot, lambda: app.current_mode == "results")
        app.push_screen(screen)
        await wait_until(pilot, lambda: all(text in read_screen(app) for text in expected))
        frame = screen.query_one("Vertical").region
        assert app.screen.region.contains_region(frame)


@pytest.mark.long
async def test_form_buttons_are_visible(suite):
    app = open_suite(suite)
    async with app.run_test(size=SMALL) as pilot:
        await open_first_case(pilot)
        await wait_until(
            pilot, lambda: "Cancel (Esc)" in read_screen(app) and "(Ctrl+S)" in read_screen(app)
        )


async def test_long_summary_of_a_choice_stays_in_its_column(tmp_path):
    app = make_console(tmp_path, page="results")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: app.current_mode == "results")
        app.push_screen(Chooser("Choose", [Choice("first", "word " * 20)]))
        await wait_until(pilot, lambda: "word" in read_screen(app))
        lines = [line for line in read_screen(app).splitlines() if "word" in line]
        assert len(lines) > 1
        assert len({line.index("word") for line in lines}) == 1
