"""A line of the form: a name, an input, its description, and a complaint about it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.content import Content
from textual.suggester import SuggestFromList
from textual.visual import VisualType
from textual.widget import Widget
from textual.widgets import Input

from spbench.suites.edit.field import Field
from spbench.tui.suites.editor import PROBLEM_SIGN, TextBox
from spbench.tui.suites.form.form_texts import ExpectationTexts, ReferenceTexts, find_error
from spbench.tui.widgets.text import fit

NAME_WIDTH = 20
BOX_WIDTH = 26
BOUND_WIDTH = 10
SYSTEM_WIDTH = 12
TOLERANCE_WIDTH = 8
_SWEEP = "Several values make a sweep: 64, 128 or 64..1024 *2."
_EXPECT = (
    "expect: a metric, or a metric and a statistic as time_ms.p95, with the greatest and the "
    "least value that the case may have."
)
_REFERENCE = (
    "reference: a metric with the value that is expected, on one system or on all, and how far "
    "below (-0.1 is 10 %) and above it the case may be."
)


class LinesBox(TextBox):
    """A box of several lines; up at its first and down at its last go to the next field."""

    def __init__(self, text: str, placeholder: str = "") -> None:
        super().__init__(text, compact=True, placeholder=placeholder)

    def action_cursor_up(self, select: bool = False) -> None:
        """Go a line up, from the first to the field before."""
        if self.navigator.is_first_wrapped_line(self.cursor_location) and not select:
            self.screen.focus_previous()
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Go a line down, from the last to the next field."""
        if self.navigator.is_last_wrapped_line(self.cursor_location) and not select:
            self.screen.focus_next()
        else:
            super().action_cursor_down(select)


class FormRow(Widget):
    """A line of the form; it draws the words round its box itself: a form has many lines.

    Attributes:
        hint: What is shown at length while the row has the focus.
    """

    DEFAULT_CSS = f"""
    FormRow {{ layout: vertical; height: auto; }}
    FormRow Input, FormRow TextArea {{ width: {BOX_WIDTH}; margin-left: {NAME_WIDTH}; }}
    FormRow.wrong Input, FormRow.wrong TextArea {{ margin: 0 0 1 {NAME_WIDTH}; }}
    FormRow TextArea {{ height: auto; max-height: 4; padding: 0; }}
    """

    def __init__(self, name: str, about: str, hint: str, boxes: int = BOX_WIDTH) -> None:
        super().__init__()
        self.hint = hint
        self._words = (name, about)
        self._boxes = boxes
        self._complaint = ""

    def show_error(self, why: str | None) -> None:
        """Show what is wrong, or nothing."""
        if (why or "") != self._complaint:
            self._complaint = why or ""
            self.set_class(why is not None, "wrong")
            self.refresh(layout=True)

    @property
    def title(self) -> str:
        """What the row is about, in short."""
        return " ".join(filter(None, self._words))

    def choices(self, box: Input) -> Sequence[str]:
        """Return what a box can be, where that is a few words; else nothing."""
        return ()

    def check(self) -> None:
        """Say what is wrong with what is typed, where it can be said without the other rows."""

    def render(self) -> VisualType:
        """Return the words beside and below the box."""
        name, about = self._words
        width, height = self.size
        shown = [
            Content.styled(fit(f" {name}", NAME_WIDTH), "$text-primary"),
            Content(" " * (self._boxes + 1)),
            Content.styled(fit(about, width - NAME_WIDTH - self._boxes - 1), "$foreground-muted"),
        ]
        if self._complaint:
            below = fit(f"{PROBLEM_SIGN} {self._complaint}", width - NAME_WIDTH)
            shown += [Content("\n" * (height - 1) + " " * NAME_WIDTH)]
            shown += [Content.styled(below, "$text-error")]
        return Content("").join(shown)


class TextRow(FormRow):
    """A row with one text, asked for by its ``key``."""

    def __init__(self, key: str, about: str, text: str, lines: bool = False) -> None:
        super().__init__(key, about, f"{key}: {about}.")
        self.key = key
        self._text = text
        self._lines = lines

    def compose(self) -> ComposeResult:
        yield LinesBox(self._text) if self._lines else Input(self._text, compact=True)

    @property
    def text(self) -> str:
        """The text as typed."""
        box = self.query_one("Input, TextArea")
        return box.value if isinstance(box, Input) else str(getattr(box, "text", ""))


class FieldRow(TextRow):
    """A field of the catalog or of the suite's model."""

    def __init__(self, field: Field, key: str, text: str) -> None:
        super().__init__(key, field.help, text)
        self.field = field
        default = f" Default: {field.default}." if field.default else ""
        sweep = f" {_SWEEP}" if field.can_sweep else ""
        sweep += " F2 lists the choices." if field.choices else ""
        self._words = (field.name, field.help)
        self.hint = f"{field.name}: {field.help} ({field.accepts}).{default}{sweep}"

    def compose(self) -> ComposeResult:
        field = self.field
        if field.kind in ("lines", "env"):
            yield LinesBox(self._text, field.accepts)
            return
        known = SuggestFromList(field.choices, case_sensitive=False) if field.choices else None
        placeholder = field.default or ("auto" if field.can_sweep else "")
        yield Input(self._text, placeholder, suggester=known, compact=True)

    def choices(self, box: Input) -> Sequence[str]:
        """Return the field's choices."""
        return self.field.choices

    def check(self) -> None:
        """Show the loader's complaint about the text."""
        self.show_error(find_error(self.field, self.text))


class ExpectRow(FormRow):
    """A metric and its bounds."""

    DEFAULT_CSS = f"""
    ExpectRow {{ layout: horizontal; }}
    ExpectRow .bound, ExpectRow.wrong .bound {{ width: {BOUND_WIDTH}; margin: 0 0 0 1; }}
    """

    def __init__(self, names: Sequence[str], expected: ExpectationTexts) -> None:
        super().__init__("", "", f"{_EXPECT} F2 lists metrics.", BOX_WIDTH + 2 * BOUND_WIDTH + 2)
        self._names = names
        metric, most, least = expected
        # Made here, not in compose: a row has its texts before it is mounted.
        self._inputs = (
            Input(metric, "metric", suggester=SuggestFromList(names), compact=True),
            Input(most, "max", compact=True, classes="bound"),
            Input(least, "min", compact=True, classes="bound"),
        )

    def compose(self) -> ComposeResult:
        yield from self._inputs

    def choices(self, box: Input) -> Sequence[str]:
        """Return the metrics and their statistics for the first box."""
        return () if box.has_class("bound") else self._names

    @property
    def texts(self) -> ExpectationTexts:
        """Metric, greatest and least value as typed."""
        metric, most, least = (box.value.strip() for box in self._inputs)
        return metric, most, least


class ReferenceRow(FormRow):
    """A metric, a system, its reference and the tolerances."""

    # The first box begins at the left, so that all boxes fit into 80 columns.
    DEFAULT_CSS = f"""
    ReferenceRow {{ layout: horizontal; }}
    ReferenceRow .metric, ReferenceRow.wrong .metric {{ margin: 0 0 0 1; }}
    ReferenceRow .system, ReferenceRow.wrong .system {{
        width: {SYSTEM_WIDTH}; margin: 0 0 0 1;
    }}
    ReferenceRow .value, ReferenceRow.wrong .value {{ width: {BOUND_WIDTH}; margin: 0 0 0 1; }}
    ReferenceRow .tolerance, ReferenceRow.wrong .tolerance {{
        width: {TOLERANCE_WIDTH}; margin: 0 0 0 1;
    }}
    ReferenceRow.wrong .metric {{ margin-bottom: 1; }}
    """

    def __init__(self, names: Sequence[str], reference: ReferenceTexts) -> None:
        widths = (BOX_WIDTH, SYSTEM_WIDTH, BOUND_WIDTH, TOLERANCE_WIDTH, TOLERANCE_WIDTH)
        super().__init__("", "", f"{_REFERENCE} F2 lists metrics.", sum(widths) + len(widths))
        self._names = names
        known = SuggestFromList(names)
        metric, system, value, lower, upper = reference
        # Made here, not in compose: a row has its texts before it is mounted.
        self._inputs = (
            Input(metric, "metric", suggester=known, compact=True, classes="metric"),
            Input(system, "any system", compact=True, classes="system"),
            Input(value, "reference", compact=True, classes="value"),
            Input(lower, "lower", compact=True, classes="tolerance"),
            Input(upper, "upper", compact=True, classes="tolerance"),
        )

    def compose(self) -> ComposeResult:
        yield from self._inputs

    def choices(self, box: Input) -> Sequence[str]:
        """Return the metrics and their statistics for the first box."""
        return self._names if box.has_class("metric") else ()

    @property
    def texts(self) -> ReferenceTexts:
        """Metric, system, reference and tolerances as typed."""
        metric, system, value, lower, upper = (box.value.strip() for box in self._inputs)
        return metric, system, value, lower, upper
