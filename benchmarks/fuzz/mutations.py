"""Mutations of texts and of JSON values, from a generator of random numbers alone."""

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
"""Numbers past what a float holds, or past the 4300 digits that Python converts to text."""
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


def mutated_text(draw: random.Random, text: bytes) -> bytes:
    """Return a text with one to four changes to its bytes or lines."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        text = draw.choice(_OF_TEXT)(draw, text)
    return text


def mutated_lines(draw: random.Random, events: Sequence[dict[str, Any]]) -> bytes:
    """Return JSON objects as lines, some of them changed, moved, lost, told twice or torn."""
    events = list(events)
    for _ in range(draw.choice((1, 1, 2, 3))):
        if events:
            draw.choice(_OF_EVENTS)(draw, events)
    text = b"".join(map(_line, events))
    return mutated_text(draw, text) if draw.random() < 0.25 else text


def mutated_value(draw: random.Random, value: Any) -> Any:
    """Return a JSON value with something in it replaced, removed or added."""
    value = copy.deepcopy(value)
    parents = [(None, None), *_places(value)]
    parent, key = draw.choice(parents)
    if parent is None:
        return draw.choice(VALUES)
    kind = draw.random()
    if kind < 0.7:
        parent[key] = draw.choice(VALUES)
    elif kind < 0.85:
        del parent[key]
    elif isinstance(parent, dict):
        parent[draw.choice(("rank", "case", "name", "value", "job", "time", "x"))] = draw.choice(
            VALUES
        )
    else:
        parent.append(draw.choice(VALUES))
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    else:
        return []
    return [(value, key) for key, _ in inner] + [p for _, of in inner for p in _places(of)]


def _line(event: Any) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _flip(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text) + 1)
    return text[:at] + bytes([draw.randrange(256)]) + text[at + 1 :]


def _cut(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text) + 1)
    return text[:at] + text[at + draw.choice((1, 2, 10, 1000)) :]


def _insert(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text) + 1)
    return text[:at] + draw.choice(TOKENS) + text[at:]


def _repeat(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text) + 1)
    return text[:at] + text[at : at + 40] * draw.choice((2, 3, 50)) + text[at + 40 :]


def _swap_lines(draw: random.Random, text: bytes) -> bytes:
    lines = text.split(b"\n")
    a = draw.randrange(len(lines))
    b = draw.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def _change_word(draw: random.Random, text: bytes) -> bytes:
    words = text.split(b" ")
    words[draw.randrange(len(words))] = draw.choice(TOKENS)
    return b" ".join(words)


def _enlarge_number(draw: random.Random, text: bytes) -> bytes:
    numbers = list(re.finditer(rb"[0-9]+(?:\.[0-9]+)?", text))
    if not numbers:
        return text
    number = draw.choice(numbers)
    return text[: number.start()] + draw.choice(HUGE_NUMBERS) + text[number.end() :]


def _change(draw: random.Random, events: list[Any]) -> None:
    at = draw.randrange(len(events))
    events[at] = mutated_value(draw, events[at])


def _lose(draw: random.Random, events: list[Any]) -> None:
    del events[draw.randrange(len(events))]


def _tell_twice(draw: random.Random, events: list[Any]) -> None:
    events.insert(draw.randrange(len(events) + 1), draw.choice(events))


def _move(draw: random.Random, events: list[Any]) -> None:
    event = events.pop(draw.randrange(len(events)))
    events.insert(draw.randrange(len(events) + 1), event)


_OF_TEXT: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flip,
    _cut,
    _insert,
    _repeat,
    _swap_lines,
    _change_word,
    _enlarge_number,
)
_OF_EVENTS: tuple[Callable[[random.Random, list[Any]], None], ...] = (
    _change,
    _change,
    _change,
    _lose,
    _tell_twice,
    _move,
)
