"""Reference scripts as data: what each is called, its flags with their defaults, its benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spbench_core.catalog.parameters import Params

GivenFlags = Mapping[str, str]
"""The flags of a command line that were given, by `ScriptFlag.name`, each with its word."""


def _as_read(params: Params, _: GivenFlags) -> Params:
    return params


def _no_lines(_: Mapping[str, Any]) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class ScriptFlag:
    """A flag of a reference script.

    Attributes:
        flag: Its spelling, ``--image-size``.
        default: The script's own value; None where it leaves that open.
        param: The parameter that it sets; None where nothing here answers to it.
        help: What a flag without a parameter is, or why it changes nothing.
        word: The value of a switch, which takes none; None for a flag that does.
        silent: Whether it needs no warning: what it asks for is done anyway.
        also: A further spelling.
    """

    flag: str
    default: Any = None
    param: str | None = None
    help: str = ""
    switch_value: str | None = None
    silent: bool = False
    alias: str | None = None

    @property
    def name(self) -> str:
        """Its name without dashes, ``image_size``."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def unset(self) -> Any:
        """The value that says as much as leaving it out: ``false`` of a switch."""
        return "false" if self.default is None and self.switch_value == "true" else self.default


@dataclass(frozen=True, slots=True)
class Script:
    """A reference script.

    Attributes:
        name: Its alias, the first word of a command line.
        file: The script that it stands for.
        benchmark: The benchmark that does its work.
        flags: Its flags; the benchmark's others are flags as well.
        fixed: Parameters that the script sets by what it is.
        adapt: Turns the parameters that were read into those that do as the script does.
        head: The lines that it prints first, from its flags' values.
    """

    name: str
    file: str
    benchmark: str
    flags: tuple[ScriptFlag, ...]
    fixed: Params = field(default_factory=dict)
    adapt: Callable[[Params, GivenFlags], Params] = _as_read
    first_lines: Callable[[Mapping[str, Any]], tuple[str, ...]] = _no_lines


def value_flag(flag: str, default: Any, **attributes: Any) -> ScriptFlag:
    """Return a flag that sets the parameter of the same name."""
    name = ScriptFlag(flag).name
    return ScriptFlag(flag, default, param=name, **attributes)


def switch_flag(flag: str, **attributes: Any) -> ScriptFlag:
    """Return a flag without a value that turns the parameter of the same name on."""
    return value_flag(flag, None, switch_value="true", **attributes)
