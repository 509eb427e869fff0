"""Reference scripts as data: names, flags with defaults, and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spbench_core.catalog.parameters import Params

GivenFlags = Mapping[str, str]
"""The flags that a command line sets, by `ScriptFlag.name`, with their values as text."""


def _keep_params(params: Params, _: GivenFlags) -> Params:
    return params


def _print_no_lines(_: Mapping[str, Any]) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class ScriptFlag:
    """A flag of a reference script.

    Attributes:
        flag: Its spelling, ``--image-size``.
        default: The script's default; None if the script leaves it open.
        param: The parameter that it sets; None without a corresponding parameter.
        help: The meaning of a flag without a parameter, or why it has no effect.
        switch_value: The value of a switch, which takes no argument; None for other flags.
        silent: Whether no warning is needed, because the request of the flag is satisfied anyway.
        alias: A second spelling.
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
        """The name without dashes, ``image_size``."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def unset(self) -> Any:
        """The value that is equivalent to omitting the flag: ``false`` for a switch."""
        return "false" if self.default is None and self.switch_value == "true" else self.default


@dataclass(frozen=True, slots=True)
class Script:
    """A reference script.

    Attributes:
        name: Its alias, the first word of a command line.
        file: The file name of the script.
        benchmark: The benchmark that does its work.
        flags: Its flags; the benchmark's other parameters are flags, too.
        fixed: Parameters that the script always sets.
        adapt: Converts the parsed parameters to those with the script's behaviour.
        first_lines: Returns the lines that it prints first, from its flags' values.
    """

    name: str
    file: str
    benchmark: str
    flags: tuple[ScriptFlag, ...]
    fixed: Params = field(default_factory=dict)
    adapt: Callable[[Params, GivenFlags], Params] = _keep_params
    first_lines: Callable[[Mapping[str, Any]], tuple[str, ...]] = _print_no_lines


def value_flag(flag: str, default: Any, **attributes: Any) -> ScriptFlag:
    """Return a flag that sets the parameter of the same name."""
    name = ScriptFlag(flag).name
    return ScriptFlag(flag, default, param=name, **attributes)


def switch_flag(flag: str, **attributes: Any) -> ScriptFlag:
    """Return a flag without a value that turns the parameter of the same name on."""
    return value_flag(flag, None, switch_value="true", **attributes)
