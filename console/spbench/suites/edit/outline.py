"""The entries of ``cases:`` in a suite's text, line by line."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from spbench.errors import UsageError
from spbench.suites.yaml_nodes import Document, Mark, Node, YamlError, parse_yaml

BYTE_ORDER_MARK = "\ufeff"
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_LONE_DASH = re.compile(r" *-\s*(#.*)?")


class SuiteText:
    """A text by its lines, counted from 1 and ended where YAML ends them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self._starts = [0, *(found.end() for found in _BREAK.finditer(text))]

    def find_line_start(self, number: int) -> int:
        """Return where a line begins; after the last line, the end of the text."""
        return self._starts[number - 1] if number <= len(self._starts) else len(self.text)

    def read_line(self, number: int) -> str:
        """Return a line without its end."""
        return self.text[self.find_line_start(number) : self.find_line_start(number + 1)].rstrip(
            "\r\n\x85\u2028\u2029"
        )

    def find_line(self, offset: int) -> int:
        """Return the line on which a character stands."""
        return bisect_right(self._starts, offset)

    def find_offset(self, mark: Mark) -> int:
        """Return the characters before a mark."""
        return self.find_line_start(mark.line) + mark.column - 1

    def find_end(self, node: Node) -> int:
        """Return where a node's own text ends, without the lines that a block scalar swallows."""
        return len(self.text[: self.find_offset(node.end)].rstrip())

    def find_last_line(self, node: Node) -> int:
        """Return the line on which a node ends."""
        return self.find_line(self.find_end(node) - 1)

    def is_blank(self, number: int) -> bool:
        """Say whether a line of the text is empty."""
        return number <= len(self._starts) and not self.read_line(number).strip()

    def find_comment_indent(self, number: int) -> int | None:
        """Return the columns before a line's ``#``; None where it is no line of comment."""
        line = self.read_line(number)
        bare = line.lstrip()
        return len(line) - len(bare) if bare.startswith("#") else None


@dataclass(frozen=True, slots=True)
class EntryLines:
    """The lines of an entry.

    Attributes:
        top: The first line of the comment directly above it; ``first`` where there is none.
        first: The line of its dash.
        last: Its last line, comments that are indented as a part of it included.
        indent: Columns before its dash.
    """

    top: int
    first: int
    last: int
    indent: int


class Outline:
    """The places of a suite's cases.

    Attributes:
        cases: The node of ``cases:``; None where there is no such key.
        items: The nodes of the entries; empty where ``cases:`` is no list of lines.
        spans: Their lines.
    """

    def __init__(self, text: str) -> None:
        """Read the text.

        Raises:
            UsageError: It is no YAML.
        """
        self.source = SuiteText(text.removeprefix(BYTE_ORDER_MARK))
        self.document = _document(self.source.text)
        self.cases = self.document.root.find_node(("cases",))
        written = self.cases is not None and isinstance(self.cases.content, list)
        self.items: list[Node] = []
        if self.cases is not None and written and not self.cases.flow:
            self.items = self.cases.content
        self.spans: list[EntryLines] = []
        for item in self.items:
            self.spans.append(self._span(item))

    def find_entry(self, line: int) -> int | None:
        """Return the entry that spans a line, its comment included; None between entries."""
        found = (at for at, span in enumerate(self.spans) if span.top <= line <= span.last)
        return next(found, None)

    def find_last_before(self, line: int) -> int | None:
        """Return the last entry that begins on a line or above it, None above the first."""
        begun = [at for at, span in enumerate(self.spans) if span.top <= line]
        return begun[-1] if begun else None

    def find_item(self, index: int) -> Node:
        """Return an entry's node.

        Raises:
            UsageError: There is no such entry.
        """
        if not 0 <= index < len(self.items):
            raise UsageError(f"there is no case entry {index + 1}; the text has {len(self.items)}")
        return self.items[index]

    def read_comment(self, index: int) -> str | None:
        """Return the comment above an entry, without its marks."""
        span = self.spans[index]
        lines = [
            self.source.read_line(number).strip()[1:] for number in range(span.top, span.first)
        ]
        return "\n".join(line.removeprefix(" ") for line in lines) or None

    @property
    def has_blank_lines(self) -> bool:
        """Whether blank lines stand between the entries, as in the shipped suites."""
        pairs = zip(self.spans, self.spans[1:], strict=False)
        between = [self.source.is_blank(after.top - 1) for _, after in pairs]
        return any(between) or not between

    def _span(self, item: Node) -> EntryLines:
        page = self.source
        first = item.mark.line
        if page.read_line(first)[: item.mark.column - 1].strip() != "-":
            first -= 1
            while first > 1 and not _LONE_DASH.fullmatch(page.read_line(first)):
                first -= 1
        indent = len(page.read_line(first)) - len(page.read_line(first).lstrip())
        top = first
        before = self.spans[-1].last if self.spans else 0
        while top - 1 > before and _within(page.find_comment_indent(top - 1), indent):
            top -= 1
        last = page.find_last_line(item)
        while (deep := page.find_comment_indent(last + 1)) is not None and deep > indent:
            last += 1
        return EntryLines(top, first, last, indent)


def _within(comment: int | None, indent: int) -> bool:
    return comment is not None and comment <= indent


def _document(text: str) -> Document:
    try:
        return parse_yaml(text)
    except YamlError as error:
        where = f"line {error.mark.line} cannot be read: {error}"
        raise UsageError(f"{where}; fix it before the form changes the text") from None
