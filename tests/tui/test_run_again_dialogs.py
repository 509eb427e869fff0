"""Questions before a run is started again: its cases, the answers, and Enter's."""

import pytest
from textual.widgets import Button

from spbench.record.messages.enumeration import ask_to_run_again
from spbench.record.runs.history import read_summary
from spbench.tui.dialogs import FaultsAgainDialog
from spbench.tui.results.bindings import is_allowed
from spbench_core.events.statuses import CaseStatus
from support.sample_events import record_run
from support.tui.app_driver import make_console, wait_until


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ({"a": CaseStatus.FAILED, "b": CaseStatus.PASSED}, "Run the failed case a again?"),
        (
            {"a": CaseStatus.CANCELLED, "b": CaseStatus.ERROR},
            "Run 1 failed and 1 cancelled cases again: b and a?",
        ),
        (
            dict.fromkeys("abcd", CaseStatus.CANCELLED),
            "Run 4 cancelled cases again: a, b and 2 more?",
        ),
    ],
)
def test_question_names_the_cases_that_run_again(statuses, expected):
    assert ask_to_run_again(statuses) == expected


@pytest.mark.parametrize(
    ("counts", "expected"),
    [({"passed": 1, "cancelled": 2}, "rest"), ({"cancelled": 2, "timeout": 1}, "failed")],
)
def test_results_offer_the_rest_if_nothing_has_failed(tmp_path, counts, expected):
    folder = record_run(tmp_path, [], verdict="cancelled", exit_code=130, counts=counts)
    run = read_summary(folder)
    assert [action for action in ("failed", "rest") if is_allowed(action, run)] == [expected]


@pytest.mark.parametrize("theme", ["spbench-dark", "spbench-light"])
async def test_only_the_answer_of_enter_has_a_coloured_ground(tmp_path, theme):
    app = make_console(tmp_path, page="results")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: app.current_mode == "results")
        app.theme = theme
        app.push_screen(FaultsAgainDialog("Again?"))
        await wait_until(pilot, lambda: app.focused is not None and app.focused.id == "yes")
        grounds = {button.id: button.styles.background for button in app.screen.query(Button)}
        assert grounds["third"] == grounds["no"] != grounds["yes"]
        assert [*grounds] == ["yes", "third", "no"]
