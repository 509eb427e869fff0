"""What is asked on a terminal of 40x10: the question and all of its answers."""

import pytest

from spbench.tui.chooser import Choice, Chooser
from spbench.tui.dialogs import AskLine, Confirm
from support.tui.driving import console, shown, until
from support.tui.suites_page import first_in_form, opened

SMALL = (40, 10)


@pytest.mark.parametrize(
    ("screen", "words"),
    [
        (Confirm("Delete the run? " * 20, "Delete", "Cancel"), ["Delete (y)", "Cancel (n)"]),
        (
            Confirm("made-up.yaml has changed. Overwrite it?", "Overwrite", "Keep disk version"),
            ["Overwrite (y)", "Keep disk version (n)"],
        ),
        (
            AskLine(
                "Hosts of runs from here: a hostfile, or node[01-08]:4,other; empty: none",
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
async def test_questions_and_answers_are_seen(tmp_path, screen, words):
    app = console(tmp_path, page="results")
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: app.current_mode == "results")
        app.push_screen(screen)
        await until(pilot, lambda: all(word in shown(app) for word in words))
        frame = screen.query_one("Vertical").region
        assert app.screen.region.contains_region(frame)


@pytest.mark.long
async def test_the_form_has_its_buttons(suite):
    app = opened(suite)
    async with app.run_test(size=SMALL) as pilot:
        await first_in_form(pilot)
        await until(pilot, lambda: "Cancel (Esc)" in shown(app) and "(Ctrl+S)" in shown(app))
