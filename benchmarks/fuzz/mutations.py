"""Mutations of texts and of JSON values, drawn from a random generator."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

TOKENS = (
    b"\x00",
    b"\xff",
    b"\x1b[2J",
    b"\xe2\x80\xae",
    b"\n",
    b"\r",
    b"\t",
    b" ",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"-",
    b"'",
    b'"',
    b"\\",
    b"#",
    b"*a",
    b"&a",
    b"<<",
    b"=cmd",
    b"null",
    b"true",
    b"NaN",
    b"1e999",
    b"-1",
    b"0",
    b"1e308",
    b"1000000000",
    b"9" * 400,
    b"x" * 5000,
    b"[" * 2000,
    b"node[0-999999999]",
    b"!!python/object:os.system",
)
HUGE_NUMBERS = (
    b"9" * 400,
    b"-" + b"9" * 5000,
    b"0x" + b"f" * 260,
    b"0x" + b"f" * 4000,
    b"0o" + b"7" * 5000,
    b"0b" + b"1" * 20_000,
    b"1_000" * 2000,
    b"59:" * 2000 + b"59",
    b"1e999",
    b"-1e999",
    b"1e" + b"9" * 5000,
    b"9" * 5000 + b".5",
    b"9" * 5000 + b"KiB",
    b"'" + b"9" * 5000 + b"'",
    b'"0x' + b"f" * 4000 + b'"',
    b".inf",
    b"!!int 0x" + b"f" * 4000,
    b"!!float " + b"9" * 400,
)
"""Numbers above the range of a float, or with more than the 4300 digits that Python converts."""
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    2**31,
    10**12,
    10**300,
    -0.0,
    0.5,
    1e12,
    -1e12,
    1e-300,
    1.7e308,
    -1.7e308,
    "",
    "a",
    "0",
    "passed",
    "error",
    "time_ms",
    "\x1b]0;x\x07",
    "\u202e",
    "\ud800",
    "a\nb",
    "=1+1",
    "x" * 3000,
    [],
    [0],
    ["a"],
    [None],
    {},
    {"a": 1},
    {"name": "time_ms", "value": 1},
)


def mutate_text(generator: random.Random, text: bytes) -> bytes:
    """Return a text with one to four changes to its bytes or lines."""
    for _ in range(generator.choice((1, 1, 1, 2, 4))):
        text = generator.choice(_TEXT_CHANGES)(generator, text)
    return text


def mutate_lines(generator: random.Random, events: Sequence[dict[str, Any]]) -> bytes:
    """Return JSON objects as lines: some changed, moved, removed, duplicated or torn."""
    events = list(events)
    for _ in range(generator.choice((1, 1, 2, 3))):
        if events:
            generator.choice(_EVENT_CHANGES)(generator, events)
    text = b"".join(map(_encode_line, events))
    return mutate_text(generator, text) if generator.random() < 0.25 else text


def mutate_value(generator: random.Random, value: Any) -> Any:
    """Return a JSON value with one part replaced, removed or added."""
    value = copy.deepcopy(value)
    parents = [(None, None), *_list_positions(value)]
    parent, key = generator.choice(parents)
    if parent is None:
        return generator.choice(VALUES)
    kind = generator.random()
    if kind < 0.7:
        parent[key] = generator.choice(VALUES)
    elif kind < 0.85:
        del parent[key]
    elif isinstance(parent, dict):
        parent[generator.choice(("rank", "case", "name", "value", "job", "time", "x"))] = (
            generator.choice(VALUES)
        )
    else:
        parent.append(generator.choice(VALUES))
    return value


def _list_positions(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    else:
        return []
    return [(value, key) for key, _ in inner] + [
        position for _, child in inner for position in _list_positions(child)
    ]


def _encode_line(event: Any) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _replace_byte(generator: random.Random, text: bytes) -> bytes:
    position = generator.randrange(len(text) + 1)
    return text[:position] + bytes([generator.randrange(256)]) + text[position + 1 :]


def _remove_bytes(generator: random.Random, text: bytes) -> bytes:
    position = generator.randrange(len(text) + 1)
    return text[:position] + text[position + generator.choice((1, 2, 10, 1000)) :]


def _insert(generator: random.Random, text: bytes) -> bytes:
    position = generator.randrange(len(text) + 1)
    return text[:position] + generator.choice(TOKENS) + text[position:]


def _repeat(generator: random.Random, text: bytes) -> bytes:
    position = generator.randrange(len(text) + 1)
    return (
        text[:position]
        + text[position : position + 40] * generator.choice((2, 3, 50))
        + text[position + 40 :]
    )


def _swap_lines(generator: random.Random, text: bytes) -> bytes:
    lines = text.split(b"\n")
    a = generator.randrange(len(lines))
    b = generator.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def _change_word(generator: random.Random, text: bytes) -> bytes:
    parts = text.split(b" ")
    parts[generator.randrange(len(parts))] = generator.choice(TOKENS)
    return b" ".join(parts)


def _enlarge_number(generator: random.Random, text: bytes) -> bytes:
    numbers = list(re.finditer(rb"[0-9]+(?:\.[0-9]+)?", text))
    if not numbers:
        return text
    number = generator.choice(numbers)
    return text[: number.start()] + generator.choice(HUGE_NUMBERS) + text[number.end() :]


def _change(generator: random.Random, events: list[Any]) -> None:
    index = generator.randrange(len(events))
    events[index] = mutate_value(generator, events[index])


def _remove(generator: random.Random, events: list[Any]) -> None:
    del events[generator.randrange(len(events))]


def _duplicate(generator: random.Random, events: list[Any]) -> None:
    events.insert(generator.randrange(len(events) + 1), generator.choice(events))


def _move(generator: random.Random, events: list[Any]) -> None:
    event = events.pop(generator.randrange(len(events)))
    events.insert(generator.randrange(len(events) + 1), event)


_TEXT_CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _replace_byte,
    _remove_bytes,
    _insert,
    _repeat,
    _swap_lines,
    _change_word,
    _enlarge_number,
)
_EVENT_CHANGES: tuple[Callable[[random.Random, list[Any]], None], ...] = (
    _change,
    _change,
    _change,
    _remove,
    _duplicate,
    _move,
)
