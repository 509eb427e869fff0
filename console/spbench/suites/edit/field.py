"""A field of a form: its kind, and the words for what may be typed into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spbench_core.catalog.parameters import UNSWEPT_KINDS, Param, ParamKind

FieldKind = Literal[ParamKind, "env", "keys"]
"""The kinds of parameters, and of settings: variables by name, and text or keys of its own."""
_SAID: dict[FieldKind, str] = {
    "int": "a whole number",
    "float": "a number",
    "pair": "N or RxC",
    "bytes": "bytes such as 65536 or 64KiB",
    "bytes_list": "bytes with commas between",
    "choices": "several with commas between",
    "ints": "whole numbers with commas between",
    "text": "text",
    "words": "words with blanks between, quoted as in a shell",
    "data": "{NAME: VALUE, ...}",
    "lines": "one a line",
    "env": "NAME=VALUE, one a line",
    "keys": "text, or {KEY: VALUE, ...}",
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form.

    Attributes:
        default: What holds where nothing is typed; empty where other fields decide.
        accepts: What may be typed, in words: ``a whole number, 1 to 1000``.
        choices: Words to choose from; with kind ``int`` a number may stand in their place.
        param: Its parameter; None for np and for settings.
        path: Where a setting stands in a suite; empty for parameters and np, which can be swept.
    """

    name: str
    kind: FieldKind
    help: str
    default: str
    accepts: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    param: Param | None = None
    path: tuple[str, ...] = ()

    @property
    def can_sweep(self) -> bool:
        """Whether a case may run over a list of its values."""
        return not self.path and self.kind not in UNSWEPT_KINDS


def describe_accepted(kind: FieldKind, choices: tuple[str, ...], bounds: str) -> str:
    """Return in words what a field takes."""
    said = [", ".join(choices)] if choices else []
    said += [_SAID[kind]] if kind in _SAID else []
    return ", ".join(filter(None, [" or ".join(said), bounds]))


def format_bounds(least: str | None, most: str | None) -> str:
    """Return bounds in words; empty where there are none."""
    if least is not None and most is not None:
        return f"{least} to {most}"
    return f"from {least}" if least is not None else f"up to {most}" if most is not None else ""
