"""The placeholders in a program's words, ``{rank}``, and the values that take their places."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

PLACEHOLDERS = ("rank", "np", "host", "hosts", "local_rank", "size", "count", "word")
"""The names between braces; ``host:N``, the host of rank N, is one too."""
_WRITTEN = re.compile(r"\{\{([a-z_]\w*(?::\d+)?)\}\}|\{([a-z_]\w*(?::\d+)?)\}")


def find_placeholders(text: str) -> Iterator[str]:
    """Yield the names of the placeholders in a text; ``{{rank}}`` is none, but the text itself."""
    return (match[2] for match in _WRITTEN.finditer(text) if match[2])


def is_placeholder(name: str) -> bool:
    """Whether there is such a placeholder."""
    return name in PLACEHOLDERS or name.startswith("host:")


def fill_placeholders(text: str, value: Callable[[str], str]) -> str:
    """Return a text with the value of each placeholder in its place, and ``{{`` as a brace."""
    return _WRITTEN.sub(lambda match: value(match[2]) if match[2] else f"{{{match[1]}}}", text)


def texts_with_placeholders(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each text in which placeholders may stand, after its parameter's name."""
    yield from (("argv", word) for word in params["argv"] or ())
    for words in (params["by_rank"] or {}).values():
        yield from (("by_rank", word) for word in words)
    yield from (("env", text) for text in (params["env"] or {}).values())
    yield from ((name, params[name]) for name in ("cwd", "reads") if params[name] is not None)
