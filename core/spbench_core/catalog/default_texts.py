"""The default of each parameter of a benchmark, as text for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.parameters import Param
from spbench_core.number_text import format_bytes

AUTO = "auto"
"""The default of a parameter that depends on others, on the hosts or on measurements."""
_DEFAULTS_IN_HELP = (
    re.compile(r"(?:;|; else|; default|, or else) (?P<value>[\w.^]+)$"),
    re.compile(r"(?<=\b)(?P<value>\w+)(?:, default(?=\))| \(default\))"),
)
"""Patterns of a default in a parameter's help that depends on other parameters."""
_FREE = frozenset({"text", "words", "lines", "data"})
"""Kinds of parameters that have no value if they are not set."""


def list_default_texts(benchmark: Benchmark) -> dict[str, str]:
    """Return the value of each parameter in a case that does not set it, as text.

    It is `AUTO` if it depends on other things, and empty without a default.
    """
    try:
        values = benchmark.complete(benchmark.begins_with)
    except ExceptionGroup:  # a plug-in's benchmark may need parameters that it does not name
        values = {param.name: param.default for param in benchmark.params}
    return format_default_texts(benchmark, values)


def format_default_texts(benchmark: Benchmark, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the complete parameters of a case as texts of defaults."""
    return {param.name: _format_default(benchmark, param, values) for param in benchmark.params}


def describe_without_default(param: Param, default: str) -> str:
    """Return a parameter's help without the words for its default, which is given."""
    if not default:
        return param.help
    at_end, inside = _DEFAULTS_IN_HELP
    return inside.sub(r"\g<value>", param.help if default == AUTO else at_end.sub("", param.help))


def _format_default(benchmark: Benchmark, param: Param, values: Mapping[str, Any]) -> str:
    value = values[param.name]
    if param.default is None and param.name in benchmark.begins_with:
        return ""
    if value is None:
        return _find_in_help(param) or ("" if param.kind in _FREE else AUTO)
    if isinstance(value, bool):
        return "on" if value else "off"
    items = value if isinstance(value, (list, tuple)) else [value]
    if param.kind in ("bytes", "bytes_list"):
        return ", ".join(str(format_bytes(int(number))) for number in items)
    return ", ".join(
        f"{number:.15g}" if isinstance(number, float) else str(number) for number in items
    )


def _find_in_help(param: Param) -> str:
    matches = (pattern.search(param.help) for pattern in _DEFAULTS_IN_HELP)
    return next((match["value"] for match in matches if match), "")
