"""A row of the form: a name, an input, a description, and an error message."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.content import Content
from textual.suggester import SuggestFromList
from textual.visual import VisualType
from textual.widget import Widget
from textual.widgets import Input

from spbench.suites.edit.fields import Field
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
    """A box of several lines; up in the first and down in the last line leave it."""

    def __init__(self, text: str, placeholder: str = "") -> None:
        super().__init__(text, compact=True, placeholder=placeholder)

    def action_cursor_up(self, select: bool = False) -> None:
        """Move up a line, or from the first line to the previous field."""
        if self.navigator.is_first_wrapped_line(self.cursor_location) and not select:
            self.screen.focus_previous()
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Move down a line, or from the last line to the next field."""
        if self.navigator.is_last_wrapped_line(self.cursor_location) and not select:
            self.screen.focus_next()
        else:
            super().action_cursor_down(select)


class FormRow(Widget):
    """A row of the form.

    It draws its texts itself, since a form with a widget for each text would be slow.

    Attributes:
        hint: The long description that is shown while the row has the focus.
    """

    DEFAULT_CSS = f"""
    FormRow {{ layout: vertical; height: auto; }}
    FormRow Input, FormRow TextArea {{ width: {BOX_WIDTH}; margin-left: {NAME_WIDTH}; }}
    FormRow.wrong Input, FormRow.wrong TextArea {{ margin: 0 0 1 {NAME_WIDTH}; }}
    FormRow TextArea {{ height: auto; max-height: 4; padding: 0; }}
    """

    def __init__(
        self, name: str, description: str, hint: str, boxes_width: int = BOX_WIDTH
    ) -> None:
        super().__init__()
        self.hint = hint
        self._labels = (name, description)
        self._boxes_width = boxes_width
        self._error = ""

    def show_error(self, message: str | None) -> None:
        """Show an error message; None removes it."""
        if (message or "") != self._error:
            self._error = message or ""
            self.set_class(message is not None, "wrong")
            self.refresh(layout=True)

    @property
    def title(self) -> str:
        """A short title of the row."""
        return " ".join(filter(None, self._labels))

    def choices(self, box: Input) -> Sequence[str]:
        """Return the possible values of a box; empty if they cannot be listed."""
        return ()

    def check(self) -> None:
        """Show the errors that do not depend on other rows."""

    def render(self) -> VisualType:
        """Return the texts next to and below the box."""
        name, description = self._labels
        width, height = self.size
        pieces = [
            Content.styled(fit(f" {name}", NAME_WIDTH), "$text-primary"),
            Content(" " * (self._boxes_width + 1)),
            Content.styled(
                fit(description, width - NAME_WIDTH - self._boxes_width - 1), "$foreground-muted"
            ),
        ]
        if self._error:
            error_line = fit(f"{PROBLEM_SIGN} {self._error}", width - NAME_WIDTH)
            pieces += [Content("\n" * (height - 1) + " " * NAME_WIDTH)]
            pieces += [Content.styled(error_line, "$text-error")]
        return Content("").join(pieces)


class TextRow(FormRow):
    """A row with one text, which is identified by ``key``."""

    def __init__(self, key: str, description: str, text: str, lines: bool = False) -> None:
        super().__init__(key, description, f"{key}: {description}.")
        self.key = key
        self._text = text
        self._lines = lines

    def compose(self) -> ComposeResult:
        yield LinesBox(self._text) if self._lines else Input(self._text, compact=True)

    @property
    def text(self) -> str:
        """The current text."""
        box = self.query_one("Input, TextArea")
        return box.value if isinstance(box, Input) else str(getattr(box, "text", ""))


class FieldRow(TextRow):
    """A row for a field of the catalog or of the suite's model."""

    def __init__(self, field: Field, key: str, text: str) -> None:
        super().__init__(key, field.help, text)
        self.field = field
        default = f" Default: {field.default}." if field.default else ""
        sweep = f" {_SWEEP}" if field.can_sweep else ""
        sweep += " F2 lists the choices." if field.choices else ""
        self._labels = (field.name, field.help)
        self.hint = f"{field.name}: {field.help} ({field.accepts}).{default}{sweep}"

    def compose(self) -> ComposeResult:
        field = self.field
        if field.kind in ("lines", "env"):
            yield LinesBox(self._text, field.accepts)
            return
        suggester = SuggestFromList(field.choices, case_sensitive=False) if field.choices else None
        placeholder = field.default or ("auto" if field.can_sweep else "")
        yield Input(self._text, placeholder, suggester=suggester, compact=True)

    def choices(self, box: Input) -> Sequence[str]:
        """Return the choices of the field."""
        return self.field.choices

    def check(self) -> None:
        """Show the loader's error for the text."""
        self.show_error(find_error(self.field, self.text))


class ExpectRow(FormRow):
    """A row for a metric and its bounds."""

    DEFAULT_CSS = f"""
    ExpectRow {{ layout: horizontal; }}
    ExpectRow .bound, ExpectRow.wrong .bound {{ width: {BOUND_WIDTH}; margin: 0 0 0 1; }}
    """

    def __init__(self, names: Sequence[str], expected: ExpectationTexts) -> None:
        super().__init__("", "", f"{_EXPECT} F2 lists metrics.", BOX_WIDTH + 2 * BOUND_WIDTH + 2)
        self._names = names
        metric, maximum, minimum = expected
        # Created here, so that a row has its texts before it is mounted.
        self._inputs = (
            Input(metric, "metric", suggester=SuggestFromList(names), compact=True),
            Input(maximum, "max", compact=True, classes="bound"),
            Input(minimum, "min", compact=True, classes="bound"),
        )

    def compose(self) -> ComposeResult:
        yield from self._inputs

    def choices(self, box: Input) -> Sequence[str]:
        """Return metrics and their statistics for the first box."""
        return () if box.has_class("bound") else self._names

    @property
    def texts(self) -> ExpectationTexts:
        """The current texts of metric, maximum and minimum."""
        return ExpectationTexts(*(box.value.strip() for box in self._inputs))


class ReferenceRow(FormRow):
    """A row for a metric, a system, the reference and the tolerances."""

    # The first box starts at the left border, so that all boxes fit into 80 columns.
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
    def texts(self) -> ReferenceTexts:
        """The current texts of metric, system, reference and tolerances."""
        return ReferenceTexts(*(box.value.strip() for box in self._inputs))
