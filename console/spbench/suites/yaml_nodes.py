"""Parser of YAML 1.2 text to nodes with the position of each key and value.

PyYAML parses the text, with libyaml if it is installed. The nodes are built here, because the
loaders of PyYAML read YAML 1.1 scalars (``no`` is false, ``010`` is 8), keep the last of two equal
keys and lose the positions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import yaml

from spbench.suites.yaml_messages import explain_parser_error
from spbench_core.number_text import TooManyDigitsError, parse_whole

Scalar = None | bool | int | float | str

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(
    ("false", "False", "FALSE"), False
)
_INT = re.compile(r"[-+]?[0-9]+")
_PATTERN_AND_BASE_BY_PREFIX = {
    "0o": (re.compile(r"0o[0-7]+"), 8),
    "0x": (re.compile(r"0x[0-9a-fA-F]+"), 16),
}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NAN = {".nan", ".NaN", ".NAN"}


def parse_scalar(text: str) -> Scalar:
    """Return the value of a plain scalar by the YAML 1.2 core schema.

    Raises:
        TooManyDigitsError: The text is a whole number of more than `MAX_DIGITS` digits.
    """
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return parse_whole(text)
    if text[:2] in _PATTERN_AND_BASE_BY_PREFIX:
        pattern, base = _PATTERN_AND_BASE_BY_PREFIX[text[:2]]
        return parse_whole(text[2:], base) if pattern.fullmatch(text) else text
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.replace(".", ""))
    return float("nan") if text in _NAN else text


KeyPath = tuple[str | int, ...]
"""The path of a value: ``("cases", 0, "params", "halo_len")``."""

MAX_NODES = 100_000
MAX_DEPTH = 50

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML does not allow."""
_UNUSABLE = re.compile("[\0\ud800-\udfff]")
"""Characters that YAML can escape, but that arguments and environments cannot contain."""


class Mark(NamedTuple):
    """A position in the text: line and column, both from 1."""

    line: int
    column: int


class NodeMarks(NamedTuple):
    """The positions of a key (or an item of a list) and of its value."""

    key: Mark
    value: Mark


class YamlError(Exception):
    """Text that cannot be parsed, with the position and the reason."""

    def __init__(self, mark: Mark, message: str) -> None:
        super().__init__(message)
        self.mark = mark


class Problem(NamedTuple):
    """An error in text that can still be parsed."""

    mark: Mark
    message: str


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its position; an alias is a copy at its own position.

    Attributes:
        mark: The position.
        content: A scalar, a list of nodes, or a dict of key to (position of the key, node).
        text: The text of a scalar, without its quotes; None for lists and mappings.
        flow: Whether a list or mapping is in brackets.
        size: The number of nodes, including itself and expanded aliases.
        end: The position after the node; a block ends with its last value.
    """

    mark: Mark
    content: Any
    text: str | None = None
    flow: bool = True
    size: int = 1
    end: Mark = field(default=Mark(1, 1))

    @property
    def data(self) -> Any:
        """The value as plain dicts, lists and scalars."""
        if isinstance(self.content, dict):
            return {key: node.data for key, (_, node) in self.content.items()}
        if isinstance(self.content, list):
            return [node.data for node in self.content]
        return self.content

    def list_children(self) -> dict[str | int, tuple[Mark, Node]]:
        """Return its children by key or index, with the positions of the keys."""
        if isinstance(self.content, dict):
            return {**self.content}
        if isinstance(self.content, list):
            return {index: (node.mark, node) for index, node in enumerate(self.content)}
        return {}

    def find_node(self, path: KeyPath) -> Node | None:
        """Return the node at a path below this one, or None."""
        node = self
        for step in path:
            child = node.list_children().get(step)
            if child is None:
                return None
            node = child[1]
        return node


@dataclass(frozen=True, slots=True)
class Document:
    """The document of a YAML text, with its errors."""

    root: Node
    problems: tuple[Problem, ...] = field(default=())

    def find_marks(self, path: KeyPath) -> NodeMarks:
        """Return the positions of a path, or of its nearest parent if it is missing."""
        node = self.root
        key_mark = self.root.mark
        for step in path:
            child = node.list_children().get(step)
            if child is None:
                break
            key_mark, node = child
        return NodeMarks(key_mark, node.mark)


def parse_yaml(text: str) -> Document:
    """Parse the document of a YAML text.

    Raises:
        YamlError: The text is not YAML, or its nesting or expansion exceeds the limits.
    """
    text = text.removeprefix("\ufeff")
    if match := _UNREADABLE.search(text):
        text_before = text[: match.start()]
        mark = Mark(text_before.count("\n") + 1, match.start() - text_before.rfind("\n"))
        raise YamlError(mark, f"the character U+{ord(match[0]):04X} cannot stand in YAML")
    try:
        return _Builder(yaml.parse(text, Loader=_PARSER)).build()
    except yaml.MarkedYAMLError as error:
        message = explain_parser_error(error, text)
        raise YamlError(_convert_mark(message.mark), message.text) from None


def _convert_mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


class _Builder:
    """A builder of nodes from parser events."""

    def __init__(self, events: Iterable[Any]) -> None:
        self._events = iter(events)
        self._anchors: dict[str, Node | None] = {}  # None while the node is still open
        self._problems: list[Problem] = []
        self._node_count = 0  # nodes in the text itself; an alias adds none

    def build(self) -> Document:
        next(self._events)  # StreamStartEvent has no content
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            return Document(Node(Mark(1, 1), None, ""))
        root = self._build_node(next(self._events), 1)
        next(self._events)  # skip DocumentEndEvent, to see whether a second document follows
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            self._add_problem(
                event, "a second document begins here; keep each suite in its own file"
            )
        return Document(root, tuple(self._problems))

    def _add_problem(self, event: Any, message: str) -> None:
        self._problems.append(Problem(_convert_mark(event.start_mark), message))

    def _build_node(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._build_alias(event)
        if depth > MAX_DEPTH:
            raise YamlError(
                _convert_mark(event.start_mark), f"nested deeper than {MAX_DEPTH} levels"
            )
        self._node_count += 1
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = self._build_scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._build_sequence(event, depth)
        else:
            node = self._build_mapping(event, depth)
        if node.size > MAX_NODES:
            raise YamlError(node.mark, self._explain_size())
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _explain_size(self) -> str:
        if self._node_count > MAX_NODES:
            return f"the file has more than {MAX_NODES} values; split it into several files"
        return f"its aliases expand to more than {MAX_NODES} values"

    def _build_alias(self, event: Any) -> Node:
        mark = _convert_mark(event.start_mark)
        if event.anchor not in self._anchors:
            raise YamlError(mark, f"the alias *{event.anchor} names no anchor above it")
        node = self._anchors[event.anchor]
        if node is None:
            raise YamlError(mark, f"the alias *{event.anchor} stands inside its own anchor")
        return replace(node, mark=mark, end=_convert_mark(event.end_mark))

    def _build_scalar(self, event: Any) -> Node:
        text = event.value
        mark = _convert_mark(event.start_mark)
        try:
            value: Scalar = parse_scalar(text) if not event.style else text
            if event.tag not in (None, "!"):
                value = self._convert_tagged(event, text)
            elif event.tag == "!":
                value = text
        except TooManyDigitsError as error:
            self._add_problem(event, f"{error} (put text in quotes)")
            value = None
        if match := _UNUSABLE.search(text):
            self._add_problem(event, f"no program can be given a text with U+{ord(match[0]):04X}")
        return Node(mark, value, text, end=_convert_mark(event.end_mark))

    def _convert_tagged(self, event: Any, text: str) -> Scalar:
        tag_name = event.tag.removeprefix(_TAG)
        if tag_name == "str":
            return text
        value = parse_scalar(text)
        if tag_name == "float" and type(value) is int:
            return float(value)
        type_by_tag = {"int": int, "float": float, "bool": bool, "null": type(None)}
        if tag_name not in type_by_tag or tag_name == event.tag:
            self._reject_tag(event)
        elif type(value) is not type_by_tag[tag_name]:
            self._add_problem(event, f"{text!r} is no !!{tag_name}")
        return value

    def _reject_tag(self, event: Any) -> None:
        tag = event.tag
        shown = "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
        self._add_problem(event, f"the tag {shown} is not read here; remove it")

    def _build_sequence(self, event: Any, depth: int) -> Node:
        if event.tag not in (None, "!", _TAG + "seq"):
            self._reject_tag(event)
        items: list[Node] = []
        size = 1
        while not isinstance(item_event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._build_node(item_event, depth + 1))
            size += items[-1].size
        end = (
            items[-1].end if items and not event.flow_style else _convert_mark(item_event.end_mark)
        )
        return Node(_convert_mark(event.start_mark), items, None, event.flow_style, size, end)

    def _build_mapping(self, event: Any, depth: int) -> Node:
        if event.tag not in (None, "!", _TAG + "map"):
            self._reject_tag(event)
        entries: dict[str, tuple[Mark, Node]] = {}
        size = 1
        end = _convert_mark(event.end_mark)
        while not isinstance(item := next(self._events), yaml.MappingEndEvent):
            key = self._build_node(item, depth + 1)
            value = self._build_node(next(self._events), depth + 1)
            size += value.size + 1
            end = value.end
            if self._is_usable(key, entries):
                entries[key.content] = key.mark, value
        end = _convert_mark(item.end_mark) if event.flow_style else end
        return Node(_convert_mark(event.start_mark), entries, None, event.flow_style, size, end)

    def _is_usable(self, key: Node, entries: dict[str, tuple[Mark, Node]]) -> bool:
        if not isinstance(key.content, str):
            key_text = (
                f"the key {key.text!r}" if key.text is not None else "a list or mapping as key"
            )
            self._problems.append(Problem(key.mark, f"{key_text} is not text; put keys in quotes"))
        elif key.content == "<<":
            message = "merge keys (<<) are not read; repeat the keys, or use an alias as a value"
            self._problems.append(Problem(key.mark, message))
        elif key.content in entries:
            first_line = entries[key.content][0].line
            message = f"duplicate key {key.content!r} (first on line {first_line})"
            self._problems.append(Problem(key.mark, message))
        else:
            return True
        return False
