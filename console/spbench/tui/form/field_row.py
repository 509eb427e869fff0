"""A row of the form: a name, an input, a description, and an error message."""

from __future__ import annotations

import re
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.content import Content
from textual.suggester import SuggestFromList
from textual.visual import VisualType
from textual.widget import Widget
from textual.widgets import Input

from spbench.suites.edit.fields import Field
from spbench.tui.form.texts import find_error
from spbench.tui.widgets.glyphs import PROBLEM_SIGN
from spbench.tui.widgets.text import cell_width, fit
from spbench.tui.widgets.text_box import LinesBox
from spbench_core.catalog.default_texts import AUTO

NAME_WIDTH = 20
BOX_WIDTH = 18
"""Width of a box in a terminal of 80 columns."""
_MAX_BOX_WIDTH = 32
"""Width of a box in a wide terminal; it shows each default in full."""
SET_SIGN = "•"
"""Before the name of a field that has a value that is set, even if it is the default."""
_CLAUSE_END = re.compile(r"[,;:] ")
_SENTENCE_END = re.compile(r"[;:] ")
"""Ends of a description without its details, which the hint has."""
_OPEN_END = re.compile(r"(; default|:? [({][^)}]*)$")
"""An end without its value or its closing bracket."""
_OPEN_WORDS = (
    "a after all also an and any are as at be before by does each for from has if in into is it its"
    " must not of on one or per so such than that the their to until when where which while with"
)
"""Words at which a shortened description does not end."""
_MAX_HINT = 360
"""The number of characters that fit into the hint in a terminal of 80 columns."""


class FormRow(Widget):
    """A row of the form.

    It draws its texts itself, since a form with a widget for each text would be slow.

    Attributes:
        hint: The long description that is shown while the row has the focus.
    """

    DEFAULT_CSS = f"""
    FormRow {{ layout: vertical; height: auto; }}
    FormRow Input, FormRow TextArea {{
        width: 22%; min-width: {BOX_WIDTH}; max-width: {_MAX_BOX_WIDTH}; margin-left: {NAME_WIDTH};
    }}
    FormRow.wrong Input, FormRow.wrong TextArea {{ margin: 0 0 1 {NAME_WIDTH}; }}
    FormRow TextArea {{ height: auto; max-height: 4; padding: 0 1; }}
    """

    def __init__(self, name: str, description: str, hint: str) -> None:
        super().__init__()
        self.hint = hint
        self._labels = (name, description)
        self._error = ""

    def show_error(self, message: str | None) -> None:
        """Show an error message; None removes it."""
        if (message or "") != self._error:
            self._error = message or ""
            self.set_class(message is not None, "wrong")
            self.refresh(layout=True)

    @property
    def search_text(self) -> str:
        """The texts that a search looks in."""
        return f"{self.title} {self.hint}"

    @property
    def name_text(self) -> str:
        """The name, which a search ranks before the other texts."""
        return self._labels[0]

    @property
    def is_set(self) -> bool:
        """Whether the row has a value that is set."""
        return False

    @property
    def empty_value(self) -> str:
        """The value of a box without a text; empty without one."""
        return ""

    @property
    def title(self) -> str:
        """A short title of the row."""
        return ": ".join(filter(None, self._labels))

    def choices(self, box: Input) -> Sequence[str]:
        """Return the possible values of a box; empty if they cannot be listed."""
        return ()

    def check(self) -> None:
        """Show the errors that do not depend on other rows."""

    def render(self) -> VisualType:
        """Return the texts next to and below the box."""
        name, description = self._labels
        width, height = self.size
        description_start = self._find_description_start()
        sign = SET_SIGN if name and self.is_set else " "
        pieces = [
            Content.styled(fit(f"{sign}{name}", NAME_WIDTH), "$text-primary"),
            Content(" " * (description_start - NAME_WIDTH)),
            Content.styled(
                fit_clauses(description, width - description_start), "$foreground-muted"
            ),
        ]
        if self._error:
            error_line = fit(f"{PROBLEM_SIGN} {self._error}", width - NAME_WIDTH)
            pieces += [Content("\n" * (height - 1) + " " * NAME_WIDTH)]
            pieces += [Content.styled(error_line, "$text-error")]
        return Content("").join(pieces)

    def _find_description_start(self) -> int:
        """Return the column behind the boxes and a space."""
        boxes = self.query("Input, TextArea")
        end = max((box.virtual_region_with_margin.right for box in boxes), default=0)
        return max(end, NAME_WIDTH) + 1


def fit_clauses(text: str, width: int) -> str:
    """Return a text in ``width`` cells, or its first clauses or words.

    The hint below the form has the whole text of the focused field.
    """
    for end_pattern in (_SENTENCE_END, _CLAUSE_END):
        if cell_width(text) > width:
            starts = [text[: end.start()] for end in end_pattern.finditer(text)]
            fitting_starts = [start for start in starts if cell_width(start) <= width]
            text = _OPEN_END.sub("", fitting_starts[-1]) if fitting_starts else text
    return _cut_behind_word(text, width)


def _cut_behind_word(text: str, width: int) -> str:
    """Return a text in ``width`` cells, cut after a word that can end it."""
    if cell_width(text) > width:
        shown_words = _OPEN_END.sub("", text[: width + 1].rpartition(" ")[0]).split()
        while shown_words and shown_words[-1] in _OPEN_WORDS.split():
            shown_words.pop()
        text = " ".join(shown_words).rstrip(",;:") or text
    return fit(text, width)


def _fit_words(text: str, width: int) -> str:
    """Return a text in ``width`` cells, cut after a word."""
    if cell_width(text) > width > 1:
        whole_words = text[: width - 1].rpartition(" ")[0] or text[: width - 1]
        text = whole_words.rstrip(" ,;:") + "…"
    return fit(text, width)


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
    def is_set(self) -> bool:
        """Whether the row has a text."""
        return bool(self.text.strip())

    @property
    def text(self) -> str:
        """The current text."""
        for box in self.query("Input, TextArea"):  # none before it is mounted
            return box.value if isinstance(box, Input) else str(getattr(box, "text", ""))
        return self._text


class FieldRow(TextRow):
    """A row for a field of the catalog or of the suite's model.

    Args:
        field: The field.
        key: The name of its text.
        text: Its text.
        inherited: The text of the value that an empty field inherits from the suite; empty: none.

    Attributes:
        select_on_focus: Whether the text is selected when its box is focused.
    """

    def __init__(self, field: Field, key: str, text: str, inherited: str = "") -> None:
        super().__init__(key, field.help, text)
        self.field = field
        self.select_on_focus = True
        self._inherited = inherited
        self._default = field.default
        self._labels = (field.name, field.help)
        self.hint = self._format_hint()

    @property
    def search_text(self) -> str:
        """The texts that a search looks in."""
        return f"{super().search_text}{' sweep' if self.field.can_sweep else ''}"

    def compose(self) -> ComposeResult:
        field = self.field
        if field.kind in ("lines", "env"):
            yield LinesBox(self._text, field.accepts)
            return
        suggester = SuggestFromList(field.choices, case_sensitive=False) if field.choices else None
        # The box gets its placeholder as soon as its width is known.
        yield Input(
            self._text,
            suggester=suggester,
            compact=True,
            select_on_focus=self.select_on_focus,
        )

    def on_resize(self) -> None:
        """Show the default in the new width."""
        self._show_placeholder()

    def _show_placeholder(self) -> None:
        """Show the default, cut to the width of the box; the hint has all of it."""
        text = f"{self._inherited} (defaults)" if self._inherited else self._default
        for box in self.query(Input):
            box.placeholder = _fit_words(text, box.content_size.width - 1).rstrip()

    def _format_hint(self) -> str:
        hint = self._build_hint(self.field.accepts)
        num_choices = len(self.field.choices)
        if num_choices and len(hint) > _MAX_HINT:
            hint = self._build_hint(f"{num_choices} choices, F2 lists them")
        return hint

    def _build_hint(self, accepts: str) -> str:
        field = self.field
        parts = [f"{field.name}: {field.help} ({accepts})."]
        if self._inherited:
            parts.append(f"Inherited from defaults: {self._inherited}.")
        elif self._default == AUTO and AUTO not in field.choices:
            parts.append("Default: derived from other fields or from the hosts.")
        elif self._default:
            parts.append(f"Default if empty: {self._default}.")
        if not field.can_sweep and field.param is not None and not field.path:
            parts.append("One value, no sweep.")
        return " ".join(parts)

    def show_default(self, default: str) -> None:
        """Show a default that follows from other fields."""
        if default == self._default:
            return
        self._default = default
        self.hint = self._format_hint()
        self._show_placeholder()

    @property
    def empty_value(self) -> str:
        """The inherited value or the default."""
        return self._inherited or self._default

    def choices(self, box: Input) -> Sequence[str]:
        """Return the choices of the field."""
        return self.field.choices

    def check(self) -> None:
        """Show the loader's error for the text."""
        self.show_error(find_error(self.field, self.text))
