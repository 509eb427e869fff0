"""Old names of options: they still work, and each warns once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

RENAMED: Mapping[str, Mapping[str, str]] = {
    "script": {"--out": "--output"},
    "submit": {"--out": "--output"},
    "profile": {"--out": "--output", "--ranks": "--np"},
    "plan": {"--out": "--output"},
    "doctor": {"--ranks": "--np"},
    "results show": {"--output": "--logs"},
}
"""The new name of each old one, by the words of the command."""


def replace_old_names(words: Sequence[str], warn: Callable[[str], None]) -> list[str]:
    """Return a command line with the new names of renamed options.

    Args:
        words: The words after ``spbench``.
        warn: Called once for each old name.
    """
    for command, names in RENAMED.items():
        length = len(command.split())
        if " ".join(words[:length]) == command:
            return [*words[:length], *_replaced(words[length:], names, warn)]
    return list(words)


def _replaced(
    words: Sequence[str], names: Mapping[str, str], warn: Callable[[str], None]
) -> list[str]:
    options = list(words)
    end = options.index("--") if "--" in options else len(options)
    warned = set()
    for index, word in enumerate(options[:end]):
        name, equals, value = word.partition("=")
        if name not in names:
            continue
        options[index] = f"{names[name]}{equals}{value}"
        if name not in warned:
            warn(f"warning: {name} is now {names[name]}")
            warned.add(name)
    return options
