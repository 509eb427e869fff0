"""Command lines of reference scripts, from arguments to parameters of a benchmark.

A flag that would have no effect is left out. If it has a value other than the script's default, a
warning is printed; with the benchmark's name it is an error.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark, IdleParamError
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.registration import load_family_modules
from spbench_workers.reference_scripts import GivenFlags, Script, ScriptFlag
from spbench_workers.standalone.command_line import (
    CommandLine,
    Parser,
    add_params,
    join_errors,
    make_help_text,
)

SCRIPTS: dict[str, Script] = {
    script.name: script for module in load_family_modules("scripts") for script in module.SCRIPTS
}

# The part of a parameter's help that states the catalog's default, which a script may override.
_CATALOG_DEFAULT = re.compile(r"; (?:else|default:?) [^;]*| \(default\)")


def create_script_parser(script: Script) -> Parser:
    """Return the parser of a script's flags and the benchmark's other parameters.

    It raises a ValueError for invalid arguments.
    """
    entry = BENCHMARKS[script.benchmark]
    parser = Parser(
        prog=f"spbench_workers {script.name}",
        description=f"{entry.name} with the flags and defaults of {script.file}",
        allow_abbrev=False,
    )
    for flag in script.flags:
        _add_flag(parser, entry, flag)
    script_names = {flag.name for flag in script.flags} | set(script.fixed)
    others = [param for param in entry.params if param.name not in script_names]
    add_params(parser, entry, others, {})
    return parser


def _add_flag(parser: Parser, entry: Benchmark, flag: ScriptFlag) -> None:
    options: dict[str, Any] = {"metavar": "V"}
    if flag.switch_value is not None:
        options |= {"nargs": "?", "const": flag.switch_value}
    if flag.flag == "-v":
        options = {"action": "store_const", "const": flag.switch_value}
    names = [flag.flag] if flag.alias is None else [flag.flag, flag.alias]
    parser.add_argument(*names, dest=flag.name, help=_flag_help(entry, flag), **options)


def _flag_help(entry: Benchmark, flag: ScriptFlag) -> str:
    """Return the help of a script's flag, with the script's default."""
    param = None if flag.param is None else entry.find_param(flag.param)
    if param is None:
        text = flag.help if flag.silent else f"does nothing: {flag.help}"
        return text.replace("%", "%%")
    if flag.help and flag.switch_value is not None:
        return flag.help.replace("%", "%%")
    catalog_help = param.help if flag.default is None else _CATALOG_DEFAULT.sub("", param.help)
    return make_help_text(param, flag.default, flag.help or catalog_help)


def read_script(arguments: list[str]) -> CommandLine:
    """Return the command line of a reference script by its alias.

    Raises:
        ValueError: The arguments are invalid.
    """
    script = SCRIPTS[arguments[0]]
    entry = BENCHMARKS[script.benchmark]
    parsed = vars(create_script_parser(script).parse_args(arguments[1:]))
    inject = parsed.pop("inject")
    flags = {flag.name: flag for flag in script.flags}
    set_flags = {name: text for name, text in parsed.items() if text is not None}
    idle = [
        _warning(flag, set_flags[name], flag.help)
        for name, flag in flags.items()
        if flag.param is None and not flag.silent and _differs(None, flag, set_flags.get(name))
    ]
    values = {name: set_flags.get(name, flag.default) for name, flag in flags.items()}
    params = {flag.param: values[name] for name, flag in flags.items() if flag.param}
    others = {name: text for name, text in set_flags.items() if name not in flags}
    params = script.adapt(params | others | script.fixed, set_flags)
    cases, dropped = _complete_cases(entry, params, flags, set_flags)
    return CommandLine(
        entry,
        tuple(cases),
        inject,
        verbose="v" in set_flags,
        first_lines=script.first_lines(values),
        warnings=tuple(f"{script.name}: {warning}" for warning in (*idle, *dropped)),
    )


def _complete_cases(
    entry: Benchmark, params: Params, flags: Mapping[str, ScriptFlag], set_flags: GivenFlags
) -> tuple[list[Params], list[str]]:
    """Return complete cases without ineffective flags, and warnings about these.

    Raises:
        ValueError: A parameter is invalid.
    """
    warnings: list[str] = []
    while True:
        try:
            return [case for _, case in entry.list_cases(params)], warnings
        except ExceptionGroup as group:
            [error] = group.exceptions if len(group.exceptions) == 1 else [None]
            if not isinstance(error, IdleParamError) or error.param not in flags:
                raise ValueError(join_errors(group)) from None
            name = error.param
            if _differs(entry, flags[name], set_flags.get(name)):
                warnings.append(_warning(flags[name], set_flags[name], error.condition))
            params = {key: value for key, value in params.items() if key != name}


def _differs(entry: Benchmark | None, flag: ScriptFlag, text: str | None) -> bool:
    """Return whether a flag has a value other than the script's default."""
    if text is None:
        return False
    param = None if entry is None or flag.param is None else entry.find_param(flag.param)
    if param is not None and flag.unset is not None:
        return bool(param.read(text) != param.read(flag.unset))
    return text != str(flag.unset)


def _warning(flag: ScriptFlag, text: str, reason: str) -> str:
    usage = flag.flag if flag.switch_value is not None else f"{flag.flag} {shlex.quote(text)}"
    return f"{usage} does nothing: {reason}"
