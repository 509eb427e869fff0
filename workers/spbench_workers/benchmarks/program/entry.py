"""Catalog of the benchmark that runs any program and reads its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from spbench_core.catalog.benchmark import (
    Benchmark,
    IdleParamError,
    Metric,
    ParamError,
    Ranks,
    make_time_metric,
)
from spbench_core.catalog.parameters import Param, Params
from spbench_core.catalog.scaling import keep_params
from spbench_core.catalog.typed_params import parameter, params_of
from spbench_core.events.run_events import Fold
from spbench_core.number_text import parse_whole
from spbench_core.programs.expectation import (
    ExpectationError,
    OutputExpectation,
    OutputTable,
    parse_expectation,
)
from spbench_core.programs.placeholders import (
    PLACEHOLDERS,
    find_placeholders,
    is_placeholder,
    list_texts_with_placeholders,
)
from spbench_core.programs.presets import PRESETS
from spbench_core.programs.presets.preset import Preset

POSITION = 80
"""Position of the family in lists of benchmarks."""

_OUTPUT_PARAMS = ("metrics", "samples", "json", "table", "must", "never")
_TEXT_PARAMS = ("size", "count", "word")
"""Parameters that are used only in placeholders of the program's arguments."""
_RESERVED_METRICS = ("time_ms", "skew")
"""Metrics of every case, which a program cannot define."""
_RESERVED_LABELS = ("name", "value", "rank", "measured_by")
"""Names that stored points use next to their labels."""
_FOLDS: dict[str, Fold] = {"lower": "max", "higher": "min", "none": "mean"}


def read_expectation(params: Params) -> OutputExpectation:
    """Return the expected output of the program, with defaults from its preset.

    Raises:
        ParamError: A parameter cannot be parsed.
    """
    preset = _preset(params)
    overrides = {name: params[name] for name in _OUTPUT_PARAMS if params[name] is not None}
    try:
        return parse_expectation({**(preset.expects if preset else {}), **overrides})
    except ExpectationError as error:
        param = error.param.partition(".")[0].partition("[")[0]
        raise ParamError(param, str(error)) from None


class AwaitedLine(NamedTuple):
    """A printed line that a rank waits for before it starts its program.

    Attributes:
        waiting_rank: The rank that waits.
        printing_rank: The rank of the program that prints the line.
        pattern: The regular expression of the line.
    """

    waiting_rank: int
    printing_rank: int
    pattern: str


def parse_wait_for(params: Params) -> AwaitedLine | None:
    """Return the awaited line, or None if no rank waits.

    Raises:
        ParamError: ``wait_for`` is malformed.
    """
    wait_for = params["wait_for"]
    if wait_for is None:
        return None
    keys = {"rank": int, "of": int, "line": str}
    has_keys = isinstance(wait_for, Mapping) and set(wait_for) == set(keys)
    if not has_keys or not all(type(wait_for[key]) is kind for key, kind in keys.items()):
        raise ParamError("wait_for", "wait_for is {rank: N, of: N, line: PATTERN}")
    if wait_for["rank"] == wait_for["of"] or min(wait_for["rank"], wait_for["of"]) < 0:
        raise ParamError("wait_for", "wait_for: a rank waits for another one, from 0 up")
    return AwaitedLine(wait_for["rank"], wait_for["of"], wait_for["line"])


def select_argv(params: Params, rank: int) -> list[str] | None:
    """Return a rank's arguments with placeholders; None if it starts no program."""
    argv: list[str] | None = (params["by_rank"] or {}).get(str(rank), params["argv"])
    return argv


def _preset(params: Params) -> Preset | None:
    return None if params["preset"] is None else PRESETS[params["preset"]]


def _resolve(params: Params) -> Params:
    """Fill in the defaults of the preset, and the ranks with output to read.

    Raises:
        ParamError: There is no program, or a parameter cannot be parsed or has no effect.
    """
    preset = _preset(params)
    if preset is not None:
        params = params | _fill_from_preset(params, preset)
    params = params | {"per": params["per"] or "rank"}
    per_host = params["per"] == "host"
    params = params | {"output": params["output"] or ("every" if per_host else "first")}
    if params["argv"] is None and params["by_rank"] is None:
        raise ParamError("argv", "there is no program: give argv, by_rank or a preset")
    params = params | {"by_rank": _read_by_rank(params), "env": _read_environment(params)}
    _check_placeholders(params)
    parse_wait_for(params)
    _check_names(read_expectation(params))
    return params


def _fill_from_preset(params: Params, preset: Preset) -> Params:
    defaults = {"argv": list(preset.argv), "per": preset.per, "reads": preset.reads}
    if params["by_rank"] is not None:
        del defaults["argv"]
    filled = {name: value for name, value in defaults.items() if params[name] is None}
    env = {**preset.env, **(params["env"] or {})}
    return filled | ({"env": env} if env else {})


def _read_by_rank(params: Params) -> Mapping[str, list[str]] | None:
    by_rank = params["by_rank"]
    if by_rank is None:
        return None
    argv_param = Param("by_rank", "words", None, "")
    commands = {}
    for rank, argv in by_rank.items() if isinstance(by_rank, Mapping) else ():
        if not rank.isdecimal():
            raise ParamError("by_rank", f"by_rank: {rank!r} is no rank: write 0, 1 and so on")
        try:
            commands[str(parse_whole(rank))] = argv_param.read(argv)
        except ValueError as error:
            raise ParamError("by_rank", f"by_rank.{rank}: {error}") from None
    if not commands:
        raise ParamError("by_rank", "by_rank is a mapping from ranks to words")
    if params["per"] != "rank":
        raise IdleParamError("by_rank", f"with per {params['per']}", "take per: rank")
    return commands


def _read_environment(params: Params) -> Mapping[str, str] | None:
    variables = params["env"]
    if variables is None:
        return None
    if not isinstance(variables, Mapping):
        raise ParamError("env", "env is a mapping from names to texts")
    for name, value in variables.items():
        if isinstance(value, (bool, float)) or not isinstance(value, (str, int)):
            raise ParamError("env", f"env.{name}: {value!r} is no text (put it in quotes)")
        if not name or "=" in name or "\0" in f"{name}{value}":
            raise ParamError("env", f"env: {name!r} is no name of a variable")
    return {name: str(value) for name, value in variables.items()}


def _check_placeholders(params: Params) -> None:
    used: set[str] = set()
    for param, text in list_texts_with_placeholders(params):
        if "\0" in text:
            raise ParamError(param, f"{param}: a word has a NUL character")
        for name in find_placeholders(text):
            if not is_placeholder(name):
                raise ParamError(param, f"{param}: {_describe_unknown(name)}")
            if name in _TEXT_PARAMS and params[name] is None:
                raise ParamError(param, f"{param}: {{{name}}} has no value: give {name}")
            used.add(name)
    for name in _TEXT_PARAMS:
        if params[name] is not None and name not in used:
            advice = f"write {{{name}}} where it is to stand, or leave it out"
            raise IdleParamError(name, "where no word has its placeholder", advice)


def _describe_unknown(name: str) -> str:
    matches = get_close_matches(name, PLACEHOLDERS, 1)
    suggestion = (
        f"did you mean {{{matches[0]}}}?" if matches else f"there are {', '.join(PLACEHOLDERS)}"
    )
    return f"{{{name}}} is no placeholder ({suggestion}); {{{{{name}}}}} is the text itself"


def _check_names(expected: OutputExpectation) -> None:
    for name in expected.metrics:
        if name in _RESERVED_METRICS:
            raise ParamError(
                "metrics", f"metrics: every case has its own {name}; take another name"
            )
    for table in expected.tables:
        for label in _list_labels(table):
            if label in _RESERVED_LABELS:
                raise ParamError("table", f"table: no label can be called {label}")


def _list_labels(table: OutputTable) -> set[str]:
    groups = (name for pattern in table.context for name in pattern.groupindex)
    return {*table.labels, *table.fixed, *groups}


def _metrics(metrics: tuple[Metric, ...], params: Params) -> tuple[Metric, ...]:
    figures = read_expectation(params).metrics.values()
    return (
        *metrics,
        *(Metric(f.name, f.unit, f.better, "as printed", _FOLDS[f.better]) for f in figures),
    )


def _checks(checks: tuple[str, ...], params: Params) -> tuple[str, ...]:
    expected = read_expectation(params)
    enabled = {
        "must": bool(expected.must),
        "output": bool(expected.metrics),
        "never": bool(expected.never or expected.lines or expected.tables),
    }
    return tuple(check for check in checks if enabled.get(check, True))


def _faults(faults: tuple[str, ...], params: Params) -> tuple[str, ...]:
    expected = read_expectation(params)
    changing = {
        "drop-output": bool(expected.must or expected.required),
        "forge-line": bool(expected.never),
    }
    return tuple(fault for fault in faults if changing.get(fault, True))


def _ranks(params: Params) -> Ranks:
    preset = _preset(params)
    if preset is not None and preset.np is not None:
        return Ranks(exact=preset.np, why=f"as {preset.name} needs them", params=("preset",))
    ranks = [*map(int, params["by_rank"] or ())]
    if (awaited := parse_wait_for(params)) is not None:
        ranks += (awaited.waiting_rank, awaited.printing_rank)
    return Ranks(minimum=max(ranks, default=0) + 1)


@dataclass(frozen=True, kw_only=True)
class ProgramParams:
    """Parameters of ``program.run``."""

    argv: list[str] | None = parameter(
        "words",
        None,
        "program and its arguments, run without a shell; {rank}, {np}, {host}, {hosts}, "
        "{host:0}, {local_rank}, {size}, {count} and {word} are replaced",
    )
    by_rank: Any = parameter(
        "data", None, 'program and arguments of single ranks: {"0": [...], "1": [...]}'
    )
    per: str = parameter(
        "choice",
        None,
        "ranks that start it: each rank, the first rank of each host, or the first rank of "
        "the job; default rank",
        choices=("rank", "host", "job"),
    )
    preset: str | None = parameter(
        "choice",
        None,
        "program with known output; it sets all parameters that you leave out",
        choices=tuple(PRESETS),
    )
    size: int | None = parameter("bytes", None, "number of bytes for {size}, to sweep")
    count: int | None = parameter("int", None, "number for {count}, to sweep")
    word: str | None = parameter("text", None, "text for {word}, to sweep")
    cwd: str | None = parameter("text", None, "working folder; default: that of the run")
    env: Any = parameter("data", None, "additional environment variables: {NAME: VALUE}")
    metrics: Any = parameter(
        "data",
        None,
        "metrics in lines of the output: {NAME: {pattern: '(?P<value>...)', unit, better, scale}}",
    )
    samples: Any = parameter(
        "data", None, "the same for metrics with a value in each of many lines"
    )
    json: Any = parameter("data", None, "metrics in JSON output: {NAME: {path: a.0.b, unit}}")
    table: Any = parameter(
        "data", None, "one or several tables in the output: {header, columns, labels, metrics}"
    )
    must: list[str] | None = parameter("lines", None, "patterns that must each match a line")
    never: list[str] | None = parameter("lines", None, "patterns that must not match any line")
    exit_code: int = parameter("int", 0, "expected exit code", minimum=0, maximum=255)
    reads: str | None = parameter("text", None, "file with the results; default: the output")
    output: str | None = parameter(
        "choice",
        None,
        "ranks whose output must contain the metrics: the first, or every rank; default: "
        "every rank with per host",
        choices=("first", "every"),
    )
    wait_for: Any = parameter(
        "data",
        None,
        "a rank that starts after another has printed a line: {rank: 1, of: 0, line: ...}",
    )


BENCHMARKS = (
    Benchmark(
        name="program.run",
        imports_torch=False,
        summary=(
            "any program instead of the ranks, with or without MPI: its time, output and exit code"
        ),
        params=params_of(ProgramParams),
        metrics=(make_time_metric("one execution of the program"),),
        checks=("exit_code", "never", "must", "output"),
        faults=("corrupt-exit", "drop-output", "forge-line"),
        resolve=_resolve,
        ranks=_ranks,
        scaled=keep_params,
        choose_checks=_checks,
        choose_faults=_faults,
        choose_metrics=_metrics,
        begins_with={"argv": ["hostname"]},
        starts_program=True,
    ),
)
"""External programs."""
