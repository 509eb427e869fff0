"""Editor of a suite's head: its keys above ``cases:``; the cases are unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spbench.errors import UsageError
from spbench.suites.edit.compose import EditedText, require_block
from spbench.suites.edit.draft import unquote_variables
from spbench.suites.edit.outline import BYTE_ORDER_MARK, Outline
from spbench.suites.edit.rewrite import align_keys, is_same, rewrite_keys
from spbench.suites.edit.yaml_format import to_plain
from spbench.suites.model import SuiteFile
from spbench.suites.overrides import read_as_text
from spbench.suites.validation_messages import find_shape_error
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark

_SECTIONS = ("launch", "defaults")
"""Keys with a mapping, which are left out if it is empty."""


@dataclass(frozen=True, slots=True)
class HeadDraft:
    """The unchecked keys of a suite that a form can edit, with the values of the file.

    Attributes:
        order: The order of the repeats; None if the file has none.
        launch: The launch settings of all cases; values of ``env`` are text.
        defaults: The values that each case inherits.
    """

    name: str
    description: str = ""
    order: str | None = None
    launch: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


def read_head(text: str) -> HeadDraft:
    """Return the head of a suite.

    Raises:
        UsageError: The text is not a suite, or a key of the head is unknown or of a wrong shape.
    """
    outline = Outline(text)
    keys = _read_keys(outline)
    launch = dict(keys.get("launch") or {})
    checked = {key: value for key, value in keys.items() if key != "schema"}
    checked |= {key: keys.get(key) or {} for key in _SECTIONS}
    if isinstance(keys.get("launch"), dict):
        # The values of env are text in any notation, so their types are not checked.
        checked["launch"] = {key: value for key, value in launch.items() if key != "env"}
    if wrong := find_shape_error(**checked):
        raise UsageError(f"{wrong}; fix it before you edit the suite in a form")
    if env := outline.document.root.find_node(("launch", "env")):
        launch["env"] = read_as_text(env)
    return HeadDraft(
        name=keys.get("name", ""),
        description=keys.get("description", ""),
        order=keys.get("order"),
        launch=launch,
        defaults=keys.get("defaults") or {},
    )


def replace_head(text: str, draft: HeadDraft) -> EditedText:
    """Return the text with the keys of a draft, and the line of defaults or name.

    Raises:
        UsageError: The head cannot be changed without changing the cases.
    """
    outline = Outline(text)
    old_keys = _read_keys(outline)
    new_keys = align_keys(old_keys, _list_keys(draft, old_keys))
    edited = rewrite_keys(outline, outline.document.root, old_keys, new_keys)
    harm_error = UsageError(
        "the form cannot change the head of this suite without changing its cases; edit the text "
        "instead"
    )
    try:
        edited_outline = Outline(edited)
        edited_keys = _read_keys(edited_outline)
    except UsageError:
        raise harm_error from None
    has_same_cases = is_same(_read_cases(outline), _read_cases(edited_outline))
    if not has_same_cases or not is_same(_sort_keys(edited_keys), _sort_keys(new_keys)):
        raise harm_error
    content = edited_outline.document.root.content
    mark, _ = content.get("defaults", content.get("name"))
    byte_order_mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    return EditedText(byte_order_mark + edited, mark.line)


def list_suite_benchmarks(text: str) -> tuple[Benchmark, ...]:
    """Return the known benchmarks of the cases of a text, each once."""
    try:
        cases = _read_cases(Outline(text))
    except UsageError:
        return ()
    names = [case.get("benchmark") for case in cases or () if isinstance(case, dict)]
    known_names = dict.fromkeys(name for name in names if isinstance(name, str))
    return tuple(BENCHMARKS[name] for name in known_names if name in BENCHMARKS)


def _read_keys(outline: Outline) -> dict[str, Any]:
    """Return the data of the head; numbers in ``launch.env`` have no quotes."""
    require_block(outline)
    root = outline.document.root
    if not isinstance(root.content, dict):
        raise UsageError("the text is empty: begin it with 'schema: spbench.suite/1'")
    keys: dict[str, Any] = {key: value for key, value in root.data.items() if key != "cases"}
    if env := root.find_node(("launch", "env")):
        keys["launch"] = unquote_variables(keys["launch"] | {"env": read_as_text(env)})
    return keys


def _read_cases(outline: Outline) -> Any:
    return outline.document.root.data.get("cases")


def _list_keys(draft: HeadDraft, old_keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a draft that are set, in the order of the model."""
    values = {
        "name": draft.name,
        "description": draft.description,
        "order": draft.order,
        "launch": unquote_variables(draft.launch),
        "defaults": draft.defaults,
    }
    keys = {**old_keys, **{key: to_plain(value) for key, value in values.items()}}
    order = [model_field.alias or name for name, model_field in SuiteFile.model_fields.items()]
    return {
        key: keys[key]
        for key in order
        if key in keys and (key == "name" or _is_set(key, keys[key], old_keys))
    }


def _is_set(key: str, value: Any, old_keys: Mapping[str, Any]) -> bool:
    if value == "" and key in old_keys:
        return True  # a new suite begins with an empty description
    return value not in (None, "", {})


def _sort_keys(keys: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(keys.items()))
