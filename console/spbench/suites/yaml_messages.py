"""Messages for the errors of the YAML parser: the mistake, and how to fix it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import yaml

from spbench.suites.yaml_slips import (
    Slip,
    find_low_indent,
    find_missing_colon,
    find_open_bracket,
    find_text_before_dash,
    suggest_colon,
    suggest_space,
)
from spbench_core.number_text import format_quantity

_CLOSER_BY_OPENER: Final = {"[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class ParserMessage:
    """A message on invalid YAML.

    Attributes:
        mark: The position in the form of PyYAML, counted from 0.
        text: The message.
    """

    mark: Any
    text: str


def explain_parser_error(error: yaml.MarkedYAMLError, text: str) -> ParserMessage:
    """Return the message for an error that the parser found in a text."""
    return _Explainer(error, text).explain()


class _Explainer:
    """The parts of one error; PyYAML words it differently with and without libyaml."""

    def __init__(self, error: yaml.MarkedYAMLError, text: str) -> None:
        self._problem = str(error.problem)
        self._context = str(error.context or "")
        self._lines = text.splitlines()
        self._mark: Any = error.problem_mark or error.context_mark
        self._context_mark: Any = error.context_mark or self._mark

    def explain(self) -> ParserMessage:
        for part, describe in (
            ("'\\t'", self._describe_character),
            ("tab character", self._describe_character),
            ("cannot start any token", self._describe_character),
            ("end of stream", self._describe_open_quote),
            ("document indicator", self._describe_open_quote),
            ("document separator", self._describe_open_quote),
            ("expected ':'", self._describe_missing_colon),
            ("<document start>", self._describe_text_behind),
            ("incompatible YAML", self._describe_special_start),
            ("tag handle", self._describe_special_start),
            ("directive", self._describe_special_start),
            ("mapping keys", self._describe_character),
            ("escape sequence", self._describe_escape),
            ("mapping values", self._describe_extra_colon),
            ("sequence entries", self._describe_misplaced_dash),
            ("node content", self._describe_missing_value),
            ("the node content", self._describe_missing_value),
            ("escape character", self._describe_escape),
            ("alphabetic or numeric", self._describe_anchor),
        ):
            if part in self._problem:
                return describe()
        for part, describe in (
            ("directive", self._describe_special_start),
            (" tag", self._describe_special_start),
            ("block scalar", self._describe_text_behind_sign),
            ("flow", self._describe_open_bracket),
            ("block collection", self._describe_item),
            ("block mapping", self._describe_key),
        ):
            if part in self._context:
                return describe()
        context = f" ({self._context})" if self._context else ""
        return self._make_message(f"{self._problem}{context}")

    def _make_message(self, text: str, mark: Any = None) -> ParserMessage:
        return ParserMessage(mark or self._mark, f"invalid YAML: {text}")

    def _report(self, slip: Slip) -> ParserMessage:
        return self._make_message(slip.text, slip)

    def _read_line(self, number: int) -> str:
        return self._lines[number] if 0 <= number < len(self._lines) else ""

    def _read_character(self, mark: Any) -> str:
        return self._read_line(mark.line)[mark.column : mark.column + 1]

    def _describe_character(self) -> ParserMessage:
        character = self._read_character(self._mark)
        if character == "\t" or "tab" in self._problem:
            return self._make_message("a line is indented with a tab: use spaces instead")
        return self._make_message(f"a value cannot begin with {character}: put it in quotes")

    def _describe_open_quote(self) -> ParserMessage:
        quote = self._read_character(self._context_mark)
        text = f"the quote {quote} is not closed: add {quote} at the end of the value"
        return self._make_message(text, self._context_mark)

    def _describe_missing_colon(self) -> ParserMessage:
        mark = self._context_mark
        remedy = suggest_colon(self._lines, mark.line)
        return self._make_message(f"this line has no colon and space: {remedy}", mark)

    def _describe_extra_colon(self) -> ParserMessage:
        number = self._mark.line
        line = self._read_line(number)
        above = self._find_number_above(number)
        line_above = self._read_line(above)
        for near_number, near_line in ((number, line), (above, line_above)):
            if remedy := suggest_space(near_line.strip()):
                column = len(near_line) - len(near_line.lstrip())
                return self._report(Slip(near_number, column, f"this line lacks a space: {remedy}"))
        slip = (
            find_text_before_dash(self._lines, above)
            or find_missing_colon(self._lines, number)
            or find_missing_colon(self._lines, above)
            or find_low_indent(self._lines, number, above)
        )
        if slip is not None:
            return self._report(slip)
        if ": " in line[: self._mark.column]:
            return self._make_message(
                "the value contains a colon and a space: put the whole value in quotes"
            )
        indent = len(line_above) - len(line_above.lstrip(" -"))
        return self._make_message(
            f"this line is indented deeper than line {above + 1}, which has a value already: "
            f"{_format_indent(indent)}"
        )

    def _find_number_above(self, number: int) -> int:
        """Return the nearest line above, from 0, that is neither blank nor a comment."""
        numbers = range(number - 1, -1, -1)
        return next((n for n in numbers if self._read_line(n).strip(" \t#")), number)

    def _describe_misplaced_dash(self) -> ParserMessage:
        return self._make_message("a list cannot begin behind its key: write the - on a new line")

    def _describe_missing_value(self) -> ParserMessage:
        character = self._read_character(self._mark)
        slip = find_open_bracket(self._lines, self._mark.line)
        if slip is not None:
            return self._report(slip)
        if not character:
            return self._make_message("the text ends within brackets: close them with ] or }")
        return self._make_message(f"a value is missing before {character}: add it, or remove this")

    def _describe_escape(self) -> ParserMessage:
        return self._make_message(
            "unknown escape after a backslash: write \\\\ for a backslash, or use single quotes"
        )

    def _describe_special_start(self) -> ParserMessage:
        """Describe a value that begins with the sign of a tag or directive."""
        mark = self._context_mark
        character = self._read_character(mark) or "%"
        text = f"a value cannot begin with {character}: put it in quotes, or remove it"
        return self._make_message(text, mark)

    def _describe_text_behind_sign(self) -> ParserMessage:
        return self._make_message(
            "unexpected text behind | or >: put the value in quotes, or write it on the next lines"
        )

    def _describe_text_behind(self) -> ParserMessage:
        """Describe a line below the end of the document, or the one that has ended it."""
        above = self._find_number_above(self._mark.line)
        line = self._read_line(above).strip()
        if above < self._mark.line and ": " not in line and not line.endswith(":"):
            slip = Slip(above, 0, f"this line has no colon and space: {suggest_colon([line], 0)}")
            return self._report(slip)
        return self._make_message("unexpected text: write it as KEY: VALUE, or remove it")

    def _describe_anchor(self) -> ParserMessage:
        character = self._read_character(self._context_mark)
        text = f"a value cannot begin with {character}: put it in quotes"
        return self._make_message(text, self._context_mark)

    def _describe_open_bracket(self) -> ParserMessage:
        opener = self._read_character(self._context_mark)
        closer = _CLOSER_BY_OPENER.get(opener, "]")
        if self._mark.line > self._context_mark.line:
            text = f"the bracket {opener} is not closed: add {closer}, or commas between the values"
            return self._make_message(text, self._context_mark)
        return self._make_message(f"a comma or {closer} is missing before this")

    def _describe_item(self) -> ParserMessage:
        line = self._read_line(self._mark.line)
        slip = find_text_before_dash(self._lines, self._mark.line)
        if slip is not None:
            return self._report(slip)
        if remedy := suggest_space(line.strip()):
            return self._make_message(f"this line lacks a space: {remedy}")
        if self._mark.column == self._context_mark.column:
            first_line = self._context_mark.line
            remedy = self._suggest_indent()
            text = f'this line has no "- " like the items from line {first_line + 1}: '
            first_key = self._read_line(first_line).lstrip(" -").partition(":")[0]
            if line.strip().partition(":")[0] == first_key:
                return self._make_message(f'{text}add "- ", or {remedy}')
            return self._make_message(f'{text}{remedy}, or add "- "')
        return self._describe_wrong_indent()

    def _describe_key(self) -> ParserMessage:
        line = self._read_line(self._mark.line)
        character = self._read_character(self._mark)
        if character and character in "]}":
            return self._make_message(f"the bracket {character} was not opened: remove it")
        if line[: self._mark.column].strip():
            return self._make_message(
                "unexpected text behind a value in quotes: put the whole value in quotes"
            )
        if remedy := suggest_space(line.strip()):
            return self._make_message(f"this line lacks a space: {remedy}")
        return self._describe_wrong_indent()

    def _describe_wrong_indent(self) -> ParserMessage:
        remedy = self._suggest_indent()
        return self._make_message(f"the indentation of this line fits no line above: {remedy}")

    def _suggest_indent(self) -> str:
        """Return the advice with the nearest indentation of a line above."""
        column = self._mark.column
        is_item = self._read_line(self._mark.line).lstrip().startswith("-")
        number_by_indent: dict[int, int] = {}
        for number in range(self._mark.line - 1, -1, -1):
            line = self._read_line(number)
            is_item_above = line.lstrip().startswith("-")
            if not line.strip() or line.lstrip().startswith("#") or (is_item and not is_item_above):
                continue
            indent = len(line) - len(line.lstrip(" " if is_item else " -"))
            number_by_indent.setdefault(indent, number)
        number_by_indent.pop(column, None)
        if not number_by_indent:
            return "indent it like its neighbours"
        indent = min(number_by_indent, key=lambda indent: (abs(indent - column), -indent))
        return f"{_format_indent(indent)}, like line {number_by_indent[indent] + 1}"


def _format_indent(indent: int) -> str:
    return f"indent it by {format_quantity(indent, 'space')}" if indent else "do not indent it"
