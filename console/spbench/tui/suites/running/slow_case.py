"""The forecast whether a run notices its planted slow rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from spbench.record.comparison import NOTABLE_RANK
from spbench.record.number_formatting import format_time
from spbench.record.stragglers import MIN_BLOCKS, MIN_LAG_SECONDS, compute_needed_iterations
from spbench.suites.inject import is_found_by_rank_times
from spbench.tui.dialogs import ThirdAnswerDialog
from spbench_core.catalog.planted_fault import DEFAULT_FACTOR, MIN_DELAY, PlantedFault
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.engine.plan import RunPlan
    from spbench.suites.case import Case


@dataclass(frozen=True, slots=True)
class SlowForecast:
    """A reason why a slow rank would be missed.

    Attributes:
        reason: The reason.
        iterations: The iterations with which the run finds it; None if that would not help.
    """

    reason: str
    iterations: int | None = None


def forecast_slowness(plan: RunPlan, case: Case, fault: PlantedFault) -> SlowForecast | None:
    """Return why a planted fault would be missed; None if it is found or unknown.

    It reads the index of the home. Call it in a thread.
    """
    from spbench.engine.estimate import estimate_iteration

    if not is_found_by_rank_times(case, fault):
        return None
    if fault.factor is not None and fault.factor < NOTABLE_RANK:
        limit = (1 + fault.factor) / 2
        return SlowForecast(
            f"a rank is named from {NOTABLE_RANK:g}x on, and no expectation of the case compares "
            f"its ranks. F3 adds one: skew, at most {limit:.4g}"
        )
    iterations = case.params.get("iterations")
    if not isinstance(iterations, int) or iterations <= 0:
        return None
    seconds = estimate_iteration(plan, case)
    if seconds is None:
        seconds = MIN_LAG_SECONDS  # only the number of iterations counts
    slow_seconds = _prolong(seconds, fault) * iterations * case.repeat
    needed_iterations = compute_needed_iterations(iterations, case.repeat, slow_seconds)
    is_long_enough = slow_seconds >= MIN_LAG_SECONDS and iterations * case.repeat >= MIN_BLOCKS
    if is_long_enough or needed_iterations <= iterations:
        return None
    count = format_quantity(iterations, "iteration")
    length = f"It has {count}"
    if slow_seconds < MIN_LAG_SECONDS:
        length = f"With the fault, its {count} take about {format_time(1000 * slow_seconds)}"
    return SlowForecast(
        f"the case is too short. {length}, and a slow rank is named from "
        f"{1000 * MIN_LAG_SECONDS:g} ms and {MIN_BLOCKS} iterations on",
        needed_iterations,
    )


def _prolong(seconds: float, fault: PlantedFault) -> float:
    """Return the seconds of an iteration with the fault."""
    if fault.factor is not None:
        return seconds * fault.factor
    return max(seconds * DEFAULT_FACTOR, seconds + MIN_DELAY)


class ShortCaseDialog(ThirdAnswerDialog):
    """A question before a run that would miss its slow rank.

    Args:
        case: The id of the case.
        fault: The fault.
        forecast: The reason, with a number of iterations.
    """

    HELP = """\
The planted fault would be missed, because the case is too short. I and Enter run the case with
enough iterations; the suite stays as it is. Y runs it without a change, N and Escape do not run
it."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("i", "third", "More iterations", id="dialog.more-iterations"),
    ]

    def __init__(self, case: str, fault: str, forecast: SlowForecast) -> None:
        question = f"{case} would probably miss {fault}: {forecast.reason}."
        third = f"{forecast.iterations} iterations (i)"
        super().__init__(question, "Run as it is", "Cancel", third, enter_is_third=True)
