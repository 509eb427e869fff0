"""Drafts of case entries: the data of a form and of a suite's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spbench.suites.defaults import select_inherited
from spbench.suites.edit.yaml_format import find_plain_scalar, to_plain
from spbench.suites.overrides import read_as_text
from spbench.suites.yaml_nodes import Node

SweptValues = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class CaseDraft:
    """An unchecked entry of ``cases:``, with the values of the file.

    Attributes:
        np: The number of ranks; None: it follows from the parameters or is inherited.
        expect: For each metric or metric.statistic its bounds, ``{"max": 5.0}``, a reference with
            tolerances, or ``systems`` with a reference for each.
        launch: The case's own launch settings; values of ``env`` are text.
        comment: The lines of the comment above the entry, without comment marks.
    """

    name: str
    benchmark: str
    params: Mapping[str, Any] = field(default_factory=dict)
    matrix: SweptValues = field(default_factory=dict)
    zip: SweptValues = field(default_factory=dict)
    exclude: Sequence[Mapping[str, Any]] = ()
    np: int | None = None
    per_host: bool | int | None = None
    scale: Mapping[str, Any] = field(default_factory=dict)
    repeat: int | None = None
    until: Mapping[str, float] = field(default_factory=dict)
    expect: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    launch: Mapping[str, Any] = field(default_factory=dict)
    comment: str | None = None


def draft_to_data(draft: CaseDraft) -> dict[str, Any]:
    """Return the keys of the entry with their values, without keys that are not set."""
    keys = {
        "name": draft.name,
        "benchmark": draft.benchmark,
        "np": draft.np,
        "per_host": draft.per_host,
        "params": draft.params,
        "matrix": draft.matrix,
        "zip": draft.zip,
        "exclude": draft.exclude,
        "scale": draft.scale,
        "repeat": draft.repeat,
        "until": draft.until,
        "expect": draft.expect,
        "launch": unquote_variables(draft.launch),
    }
    data = {key: to_plain(value) for key, value in keys.items()}
    return {
        key: value
        for key, value in data.items()
        if key in ("name", "benchmark") or value not in (None, {}, [])
    }


def inherit_defaults(draft: CaseDraft, defaults: Any) -> CaseDraft:
    """Return a draft with the values that it inherits from the suite's ``defaults:``."""
    inherited = select_inherited(defaults, draft_to_data(draft))
    merged: dict[str, Any] = {
        key: {**getattr(draft, key), **value} if key in ("params", "expect") else value
        for key, value in inherited.items()
    }
    return replace(draft, **merged)


def unquote_variables(launch: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return launch settings with unquoted numbers in ``env``.

    The loader reads all values of ``env`` as text.
    """
    env = launch.get("env")
    if not isinstance(env, Mapping):
        return launch
    plain_env = {
        name: find_plain_scalar(text) if isinstance(text, str) else text
        for name, text in env.items()
    }
    return {**launch, "env": plain_env}


def format_comment(draft: CaseDraft, indent: int) -> list[str]:
    """Return the lines of the comment above an entry."""
    return [f"{' ' * indent}# {line}".rstrip() for line in (draft.comment or "").splitlines()]


def parse_draft(node: Node, comment: str | None) -> CaseDraft:
    """Return the entry of a node, which must have the shape of an entry."""
    data: dict[str, Any] = node.data
    launch = data.get("launch", {})
    if env := node.find_node(("launch", "env")):
        launch = launch | {"env": read_as_text(env)}
    return CaseDraft(**data | {"launch": launch, "comment": comment})
