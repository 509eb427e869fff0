"""A case entry as a form holds it, and as it is read from and written into a suite's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spbench.suites.edit.writing import format_key, to_plain
from spbench.suites.overrides import read_as_text
from spbench.suites.yaml_nodes import Node

SweptValues = Mapping[str, Sequence[Any]]

_BLOCKS = ("matrix", "zip", "expect")
"""Sections that are easier to read and to change with one line for each key."""


@dataclass(frozen=True, slots=True)
class CaseDraft:
    """One entry of ``cases:``, not checked: what it holds is what stands in the file.

    Attributes:
        np: Ranks; None where they follow from the parameters.
        expect: Metric or metric.statistic to its bounds, ``{"max": 5.0}``, to a reference with
            tolerances, or to ``systems`` with a reference for each.
        launch: The case's own launch settings; values of ``env`` are text.
        comment: The comment above the entry, line by line and without its marks.
    """

    name: str
    benchmark: str
    params: Mapping[str, Any] = field(default_factory=dict)
    matrix: SweptValues = field(default_factory=dict)
    zip: SweptValues = field(default_factory=dict)
    exclude: Sequence[Mapping[str, Any]] = ()
    np: int | None = None
    per_host: bool | int = False
    scale: Mapping[str, Any] = field(default_factory=dict)
    repeat: int = 1
    until: Mapping[str, float] = field(default_factory=dict)
    expect: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    launch: Mapping[str, Any] = field(default_factory=dict)
    comment: str | None = None


def draft_to_data(draft: CaseDraft) -> dict[str, Any]:
    """Return the keys of the entry with their values, those left out that say nothing."""
    keys = {
        "name": draft.name,
        "benchmark": draft.benchmark,
        "np": draft.np,
        "per_host": draft.per_host or None,
        "params": draft.params,
        "matrix": draft.matrix,
        "zip": draft.zip,
        "exclude": draft.exclude,
        "scale": draft.scale,
        "repeat": draft.repeat if draft.repeat != 1 else None,
        "until": draft.until,
        "expect": draft.expect,
        "launch": draft.launch,
    }
    said = {key: to_plain(value) for key, value in keys.items()}
    return {
        key: value
        for key, value in said.items()
        if key in ("name", "benchmark") or value not in (None, {}, [])
    }


def format_section(key: str, value: Any, indent: int) -> list[str]:
    """Return the lines of one key of an entry."""
    return format_key(key, value, indent, block=key in _BLOCKS)


def format_comment(draft: CaseDraft, indent: int) -> list[str]:
    """Return the lines of the comment above an entry."""
    return [f"{' ' * indent}# {line}".rstrip() for line in (draft.comment or "").splitlines()]


def parse_draft(node: Node, comment: str | None) -> CaseDraft:
    """Return the entry that a node holds, which must have the shape of one."""
    data: dict[str, Any] = node.data
    launch = data.get("launch", {})
    if env := node.find_node(("launch", "env")):
        launch = launch | {"env": read_as_text(env)}
    return CaseDraft(**data | {"launch": launch, "comment": comment})
