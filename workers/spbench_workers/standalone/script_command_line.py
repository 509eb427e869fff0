"""Command lines of reference scripts, from words to parameters of a benchmark.

A flag that would do nothing is left out. It is warned of where it was given a value that the
script does not have by itself; under the benchmark's own name it is an error.
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
    help_text,
    join_errors,
)

SCRIPTS: dict[str, Script] = {
    script.name: script for module in load_family_modules("scripts") for script in module.SCRIPTS
}

_CATALOG_DEFAULT = re.compile(r"; else [^;]*| \(default\)")
"""What a parameter's help says of the catalog's own default."""


def create_script_parser(script: Script) -> Parser:
    """Return the parser of a script's command line: its own flags, then the benchmark's others.

    It raises a ValueError for wrong words.
    """
    entry = BENCHMARKS[script.benchmark]
    parser = Parser(
        prog=f"spbench_workers {script.name}",
        description=f"{entry.name} with the flags and defaults of {script.file}",
        allow_abbrev=False,
    )
    for flag in script.flags:
        _add_flag(parser, entry, flag)
    own = {flag.name for flag in script.flags} | set(script.fixed)
    others = [param for param in entry.params if param.name not in own]
    add_params(parser, entry, others, {})
    return parser


def _add_flag(parser: Parser, entry: Benchmark, flag: ScriptFlag) -> None:
    takes: dict[str, Any] = {"metavar": "V"}
    if flag.switch_value is not None:
        takes |= {"nargs": "?", "const": flag.switch_value}
    if flag.flag == "-v":
        takes = {"action": "store_const", "const": flag.switch_value}
    names = [flag.flag] if flag.alias is None else [flag.flag, flag.alias]
    parser.add_argument(*names, dest=flag.name, help=_help_of(entry, flag), **takes)


def _help_of(entry: Benchmark, flag: ScriptFlag) -> str:
    """Return the help of a script's flag.

    The catalog's own default is not the script's.
    """
    param = None if flag.param is None else entry.find_param(flag.param)
    if param is None:
        text = flag.help if flag.silent else f"does nothing: {flag.help}"
        return text.replace("%", "%%")
    if flag.help and flag.switch_value is not None:
        return flag.help.replace("%", "%%")
    own = param.help if flag.default is None else _CATALOG_DEFAULT.sub("", param.help)
    return help_text(param, flag.default, flag.help or own)


def read_script(words: list[str]) -> CommandLine:
    """Return the command line of a reference script by its alias.

    Raises:
        ValueError: The words are wrong.
    """
    script = SCRIPTS[words[0]]
    entry = BENCHMARKS[script.benchmark]
    known = vars(create_script_parser(script).parse_args(words[1:]))
    inject = known.pop("inject")
    own = {flag.name: flag for flag in script.flags}
    given = {name: word for name, word in known.items() if word is not None}
    idle = [
        _warning(flag, given[name], flag.help)
        for name, flag in own.items()
        if flag.param is None and not flag.silent and _differs(None, flag, given.get(name))
    ]
    values = {name: given.get(name, flag.default) for name, flag in own.items()}
    params = {flag.param: values[name] for name, flag in own.items() if flag.param}
    others = {name: word for name, word in given.items() if name not in own}
    params = script.adapt(params | others | script.fixed, given)
    cases, dropped = _settled(entry, params, own, given)
    return CommandLine(
        entry,
        tuple(cases),
        inject,
        verbose="v" in given,
        first_lines=script.first_lines(values),
        warnings=tuple(f"{script.name}: {said}" for said in (*idle, *dropped)),
    )


def _settled(
    entry: Benchmark, params: Params, flags: Mapping[str, ScriptFlag], given: GivenFlags
) -> tuple[list[Params], list[str]]:
    """Return complete cases without the script's flags that do nothing, and what was told of these.

    Raises:
        ValueError: A parameter is wrong.
    """
    told: list[str] = []
    while True:
        try:
            return [case for _, case in entry.list_cases(params)], told
        except ExceptionGroup as group:
            [error] = group.exceptions if len(group.exceptions) == 1 else [None]
            if not isinstance(error, IdleParamError) or error.param not in flags:
                raise ValueError(join_errors(group)) from None
            name = error.param
            if _differs(entry, flags[name], given.get(name)):
                told.append(_warning(flags[name], given[name], error.condition))
            params = {key: value for key, value in params.items() if key != name}


def _differs(entry: Benchmark | None, flag: ScriptFlag, word: str | None) -> bool:
    """Whether a flag was given a value that the script does not have by itself."""
    if word is None:
        return False
    param = None if entry is None or flag.param is None else entry.find_param(flag.param)
    if param is not None and flag.unset is not None:
        return bool(param.read(word) != param.read(flag.unset))
    return word != str(flag.unset)


def _warning(flag: ScriptFlag, word: str, why: str) -> str:
    told = flag.flag if flag.switch_value is not None else f"{flag.flag} {shlex.quote(word)}"
    return f"{told} does nothing: {why}"
