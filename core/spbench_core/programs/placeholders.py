"""Placeholders such as ``{rank}`` in the arguments of a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

PLACEHOLDERS = ("rank", "np", "host", "hosts", "local_rank", "size", "count", "word")
"""The names of placeholders, in addition to ``host:N``, the host of rank N."""
_PATTERN = re.compile(r"\{\{([a-z_]\w*(?::\d+)?)\}\}|\{([a-z_]\w*(?::\d+)?)\}")


def find_placeholders(text: str) -> Iterator[str]:
    """Yield the names of placeholders; ``{{rank}}`` is an escaped ``{rank}``."""
    return (match[2] for match in _PATTERN.finditer(text) if match[2])


def is_placeholder(name: str) -> bool:
    """Return whether there is a placeholder of this name."""
    return name in PLACEHOLDERS or name.startswith("host:")


def fill_placeholders(text: str, find_value: Callable[[str], str]) -> str:
    """Replace each placeholder by its value, and ``{{rank}}`` by ``{rank}``."""

    def replace(match: re.Match[str]) -> str:
        return find_value(match[2]) if match[2] else f"{{{match[1]}}}"

    return _PATTERN.sub(replace, text)


def list_texts_with_placeholders(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the parameter and the text of each text that may have placeholders."""
    yield from (("argv", arg) for arg in params["argv"] or ())
    for args in (params["by_rank"] or {}).values():
        yield from (("by_rank", arg) for arg in args)
    yield from (("env", text) for text in (params["env"] or {}).values())
    yield from ((name, params[name]) for name in ("cwd", "reads") if params[name] is not None)
