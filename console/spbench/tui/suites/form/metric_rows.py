"""Rows of the form with several boxes: expectations and references of metrics."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.suggester import SuggestFromList
from textual.widgets import Input

from spbench.tui.form.field_row import FormRow
from spbench.tui.form.texts import ExpectationTexts, ReferenceTexts

BOUND_WIDTH = 10
SYSTEM_WIDTH = 12
VALUE_WIDTH = 12
TOLERANCE_WIDTH = 8
_EXPECT = (
    "expect: a metric such as time_ms, or with a statistic such as time_ms.p95, then the largest "
    "and the smallest value allowed. F2 lists metrics."
)
_REFERENCE = (
    "reference: a metric and its expected value, on one system or on all. lower and upper are the "
    "tolerances below and above: -0.1 is 10 % below. F2 lists metrics."
)


class ExpectRow(FormRow):
    """A row for a metric and its bounds."""

    DEFAULT_CSS = f"""
    ExpectRow {{ layout: horizontal; }}
    ExpectRow .metric, ExpectRow.wrong .metric {{ width: 26; margin: 0 0 0 1; }}
    ExpectRow.wrong .metric {{ margin-bottom: 1; }}
    ExpectRow .bound, ExpectRow.wrong .bound {{
        width: {BOUND_WIDTH}; min-width: 0; margin: 0 0 0 1;
    }}
    """

    def __init__(self, names: Sequence[str], expected: ExpectationTexts) -> None:
        super().__init__("", "", _EXPECT)
        self._names = names
        metric, maximum, minimum = expected
        # Created here, so that a row has its texts before it is mounted.
        self._inputs = (
            Input(
                metric,
                "metric",
                suggester=SuggestFromList(names),
                compact=True,
                classes="metric",
            ),
            Input(maximum, "max", compact=True, classes="bound"),
            Input(minimum, "min", compact=True, classes="bound"),
        )

    def compose(self) -> ComposeResult:
        yield from self._inputs

    def choices(self, box: Input) -> Sequence[str]:
        """Return metrics and their statistics for the first box."""
        return () if box.has_class("bound") else self._names

    @property
    def is_set(self) -> bool:
        """Whether a box has a text."""
        return any(self.texts)

    @property
    def texts(self) -> ExpectationTexts:
        """The current texts of metric, maximum and minimum."""
        return ExpectationTexts(*(box.value.strip() for box in self._inputs))


class ReferenceRow(FormRow):
    """A row for a metric, a system, the reference and the tolerances."""

    # The first box starts at the left border, so that all boxes fit into 80 columns.
    DEFAULT_CSS = f"""
    ReferenceRow {{ layout: horizontal; }}
    ReferenceRow .metric, ReferenceRow.wrong .metric {{ width: 26; margin: 0 0 0 1; }}
    ReferenceRow .system, ReferenceRow.wrong .system {{
        width: {SYSTEM_WIDTH}; min-width: 0; margin: 0 0 0 1;
    }}
    ReferenceRow .value, ReferenceRow.wrong .value {{
        width: {VALUE_WIDTH}; min-width: 0; margin: 0 0 0 1;
    }}
    ReferenceRow .tolerance, ReferenceRow.wrong .tolerance {{
        width: {TOLERANCE_WIDTH}; min-width: 0; margin: 0 0 0 1;
    }}
    ReferenceRow.wrong .metric {{ margin-bottom: 1; }}
    """

    def __init__(self, names: Sequence[str], reference: ReferenceTexts) -> None:
        super().__init__("", "", _REFERENCE)
        self._names = names
        suggester = SuggestFromList(names)
        metric, system, value, lower, upper = reference
        # Created here, so that a row has its texts before it is mounted.
        self._inputs = (
            Input(metric, "metric", suggester=suggester, compact=True, classes="metric"),
            Input(system, "any system", compact=True, classes="system"),
            Input(value, "reference", compact=True, classes="value"),
            Input(lower, "lower", compact=True, classes="tolerance"),
            Input(upper, "upper", compact=True, classes="tolerance"),
        )

    def compose(self) -> ComposeResult:
        yield from self._inputs

    def choices(self, box: Input) -> Sequence[str]:
        """Return metrics and their statistics for the first box."""
        return self._names if box.has_class("metric") else ()

    @property
    def is_set(self) -> bool:
        """Whether a box has a text."""
        return any(self.texts)

    @property
    def texts(self) -> ReferenceTexts:
        """The current texts of metric, system, reference and tolerances."""
        return ReferenceTexts(*(box.value.strip() for box in self._inputs))
