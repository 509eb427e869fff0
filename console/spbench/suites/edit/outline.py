"""The entries of ``cases:`` in a suite's text, line by line."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from spbench.errors import UsageError
from spbench.suites.case import SCHEMA
from spbench.suites.loader import CheckedText
from spbench.suites.yaml_nodes import Document, Mark, Node, YamlError, parse_yaml

BYTE_ORDER_MARK = "\ufeff"
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_LONE_DASH = re.compile(r" *-\s*(#.*)?")


class SuiteText:
    """A text with lines that are counted from 1 and end like lines of YAML."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self._starts = [0, *(match.end() for match in _BREAK.finditer(text))]

    def find_line_start(self, number: int) -> int:
        """Return the offset of a line, or of the text's end after the last line."""
        return self._starts[number - 1] if number <= len(self._starts) else len(self.text)

    def read_line(self, number: int) -> str:
        """Return a line without its line end."""
        return self.text[self.find_line_start(number) : self.find_line_start(number + 1)].rstrip(
            "\r\n\x85\u2028\u2029"
        )

    def find_line(self, offset: int) -> int:
        """Return the line of a character."""
        return bisect_right(self._starts, offset)

    def find_offset(self, mark: Mark) -> int:
        """Return the offset of a mark."""
        return self.find_line_start(mark.line) + mark.column - 1

    def find_end(self, node: Node) -> int:
        """Return the end of a node's text, without blank lines after a block scalar."""
        return len(self.text[: self.find_offset(node.end)].rstrip())

    def find_last_line(self, node: Node) -> int:
        """Return the last line of a node."""
        return self.find_line(self.find_end(node) - 1)

    def is_blank(self, number: int) -> bool:
        """Return whether a line of the text is blank."""
        return number <= len(self._starts) and not self.read_line(number).strip()

    def find_comment_indent(self, number: int) -> int | None:
        """Return the columns before the ``#`` of a comment line; None for other lines."""
        line = self.read_line(number)
        stripped_line = line.lstrip()
        return len(line) - len(stripped_line) if stripped_line.startswith("#") else None


@dataclass(frozen=True, slots=True)
class EntryLines:
    """The lines of an entry.

    Attributes:
        top: The first line of the comment directly above it, or else ``first``.
        first: The line of its dash.
        last: Its last line, including comments with its indentation.
        indent: Columns before its dash.
    """

    top: int
    first: int
    last: int
    indent: int


class Outline:
    """The positions of a suite's cases.

    Attributes:
        source: The text.
        document: The parsed text.
        cases: The node of ``cases:``, or None.
        items: The nodes of the entries; empty if ``cases:`` is not a list in block style.
        spans: The lines of the entries.
    """

    def __init__(self, text: str) -> None:
        """Parse the text.

        Raises:
            UsageError: It is not YAML.
        """
        self.source = SuiteText(text.removeprefix(BYTE_ORDER_MARK))
        self.document = _parse_document(self.source.text)
        self.cases = self.document.root.find_node(("cases",))
        self.items: list[Node] = []
        cases = self.cases
        if cases is not None and isinstance(cases.content, list) and not cases.flow:
            self.items = cases.content
        self.spans: list[EntryLines] = []
        for item in self.items:
            self.spans.append(self._find_span(item))

    def find_entry(self, line: int) -> int | None:
        """Return the entry at a line, including its comment; None between entries."""
        indices = (i for i, span in enumerate(self.spans) if span.top <= line <= span.last)
        return next(indices, None)

    def find_last_before(self, line: int) -> int | None:
        """Return the last entry that begins at or above a line; None above the first."""
        indices = [i for i, span in enumerate(self.spans) if span.top <= line]
        return indices[-1] if indices else None

    def find_item(self, index: int) -> Node:
        """Return an entry's node.

        Raises:
            UsageError: There is no such entry.
        """
        if not 0 <= index < len(self.items):
            raise UsageError(f"there is no case entry {index + 1}; the text has {len(self.items)}")
        return self.items[index]

    def find_name(self, index: int) -> str:
        """Return the name of an entry, or its number if it has none."""
        name = self.items[index].list_children().get("name")
        return (name[1].text if name else None) or f"entry {index + 1}"

    def read_comment(self, index: int) -> str | None:
        """Return the comment above an entry, without comment marks."""
        span = self.spans[index]
        lines = [
            self.source.read_line(number).strip()[1:] for number in range(span.top, span.first)
        ]
        return "\n".join(line.removeprefix(" ") for line in lines) or None

    @property
    def has_blank_lines(self) -> bool:
        """Whether there are blank lines between the entries, like in the shipped suites."""
        neighbours = zip(self.spans, self.spans[1:], strict=False)
        is_blank_between = [self.source.is_blank(after.top - 1) for _, after in neighbours]
        return any(is_blank_between) or not is_blank_between

    def _find_span(self, item: Node) -> EntryLines:
        source = self.source
        dash_line = item.mark.line
        if source.read_line(dash_line)[: item.mark.column - 1].strip() != "-":
            dash_line -= 1
            while dash_line > 1 and not _LONE_DASH.fullmatch(source.read_line(dash_line)):
                dash_line -= 1
        indent = len(source.read_line(dash_line)) - len(source.read_line(dash_line).lstrip())
        comment_line = dash_line
        previous_last_line = self.spans[-1].last if self.spans else 0
        while comment_line - 1 > previous_last_line:
            if not _is_within(source.find_comment_indent(comment_line - 1), indent):
                break
            comment_line -= 1
        last_line = source.find_last_line(item)
        while _is_deeper(source.find_comment_indent(last_line + 1), indent):
            last_line += 1
        return EntryLines(comment_line, dash_line, last_line, indent)


def _is_deeper(comment_indent: int | None, indent: int) -> bool:
    return comment_indent is not None and comment_indent > indent


def _is_within(comment_indent: int | None, indent: int) -> bool:
    return comment_indent is not None and comment_indent <= indent


def _parse_document(text: str) -> Document:
    try:
        return parse_yaml(text)
    except YamlError as error:
        problem = f"line {error.mark.line} cannot be read: {error}"
        raise UsageError(f"{problem}; fix it before the form changes the text") from None


def lacks_only_cases(checked_text: CheckedText, text: str) -> bool:
    """Return whether a text is a valid suite except for its missing cases."""
    if len(checked_text.diagnostics) != 1:
        return False
    try:
        outline = Outline(text)
    except UsageError:
        return False
    keys = outline.document.root.data
    return isinstance(keys, dict) and keys.get("schema") == SCHEMA and not keys.get("cases")
