"""Command lines of benchmarks, from arguments to parameters.

The flags are in the catalog.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.parameters import Param, Params
from spbench_core.catalog.planted_fault import COMMON_FAULTS, parse_fault


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A parsed command line.

    Attributes:
        entry: The benchmark.
        cases: The complete parameters of its cases.
        inject: The fault to inject, if any.
        verbose: Whether each step prints more details.
        first_lines: The lines to print first.
        warnings: Messages about flags without effect.
    """

    entry: Benchmark
    cases: tuple[Params, ...]
    inject: str | None = None
    verbose: bool = False
    first_lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Parser(argparse.ArgumentParser):
    """A parser that raises errors instead of printing them.

    All ranks parse, but only rank 0 prints.
    """

    def error(self, message: str) -> NoReturn:
        """Raise a ValueError with the message."""
        raise ValueError(f"{self.prog}: {message}")


def create_parser(entry: Benchmark, defaults: Mapping[str, Any] | None = None) -> Parser:
    """Return the parser of a benchmark's command line.

    It raises a ValueError for invalid arguments.

    Args:
        entry: The benchmark.
        defaults: The values of omitted parameters, for the help (default: the catalog's).
    """
    parser = Parser(
        prog=f"spbench_workers {entry.name}", description=entry.summary, allow_abbrev=False
    )
    add_params(parser, entry, entry.params, defaults or {})
    return parser


def add_params(
    parser: Parser, entry: Benchmark, params: Iterable[Param], defaults: Mapping[str, Any]
) -> None:
    """Add flags for some parameters of a benchmark, and the flag for faults."""
    for param in params:
        flags = [param.flag, *("--" + alias.replace("_", "-") for alias in param.aliases)]
        default = defaults.get(param.name) if param.default is None else param.default
        # The reference scripts' switches take no value.
        switch: dict[str, Any] = {"nargs": "?", "const": "true"} if param.kind == "bool" else {}
        text = make_help_text(param, default)
        parser.add_argument(*flags, dest=param.name, metavar="V", help=text, **switch)
    faults = [*entry.faults, *COMMON_FAULTS]
    parser.add_argument(
        "--inject",
        action=_UniqueOption,
        type=partial(_parse_fault, faults),
        metavar=f"{{{','.join(faults)}}}",
        help="plant a fault in the last rank; FAULT,rank=0 plants it in rank 0",
    )


class _UniqueOption(argparse.Action):
    """The action of an option that is rejected if it is repeated."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the value.

        Raises:
            argparse.ArgumentError: The option is repeated.
        """
        previous = getattr(namespace, self.dest)
        if previous is not None:
            raise argparse.ArgumentError(
                self, f"{previous} is planted already, and a run takes one"
            )
        setattr(namespace, self.dest, values)


def _parse_fault(faults: Sequence[str], text: str) -> str:
    try:
        name = parse_fault(text).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if name not in faults:
        choices = ", ".join(faults)
        raise argparse.ArgumentTypeError(f"invalid choice: {text!r} (choose from {choices})")
    return text


def make_help_text(param: Param, default: Any, meaning: str | None = None) -> str:
    """Return the help of a parameter: meaning, choices, and default if any.

    Args:
        param: The parameter.
        default: Its value if it is omitted; None if that is open.
        meaning: Its meaning on this command line (default: the catalog's).
    """
    spellings = [
        *param.choices,
        *(spelling for spelling in param.spellings if spelling not in param.choices),
    ]
    choices = f"; of {', '.join(spellings)}" if spellings else ""
    default_text = "" if default is None else f" (default: {_format_argument(default)})"
    return f"{meaning or param.help}{choices}{default_text}".replace("%", "%%")


def _format_argument(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def list_true_defaults(entry: Benchmark) -> Params:
    """Return the parameters of a command line without flags, including derived ones."""
    try:
        return entry.complete({})
    except ExceptionGroup:  # a required parameter is missing
        return {}


def read_benchmark(arguments: list[str]) -> CommandLine:
    """Return the command line of a benchmark by its name in the catalog.

    Raises:
        ValueError: The arguments are invalid.
    """
    entry = find_benchmark(arguments[0])
    params = vars(create_parser(entry).parse_args(arguments[1:]))
    inject = params.pop("inject")
    try:
        cases = entry.list_cases(params)
    except ExceptionGroup as group:
        raise ValueError(join_errors(group)) from None
    return CommandLine(entry, tuple(params for _, params in cases), inject)


def join_errors(group: ExceptionGroup[Exception]) -> str:
    """Return the errors of a group in one line."""
    return "; ".join(str(error) for error in group.exceptions)


def check_ranks(line: CommandLine, size: int) -> None:
    """Check that the number of ranks fits the cases and the fault.

    Raises:
        ValueError: The cases need another number of ranks, or the fault another rank.
    """
    entry = line.entry
    missing_rank = parse_fault(line.inject).explain_missing_rank(size) if line.inject else None
    if missing_rank is not None:
        raise ValueError(f"--inject {line.inject}: the run has {missing_rank}")
    for params in line.cases:
        ranks = entry.ranks(params)
        if ranks.exact not in (None, size) or size < ranks.minimum:
            needed = ranks.exact if ranks.exact is not None else f"at least {ranks.minimum}"
            reason = f" ({ranks.why})" if ranks.why else ""
            case = _describe_case(line, params)
            raise ValueError(
                f"{entry.name} with {case} runs on {needed} ranks{reason}, not on {size}"
            )


def _describe_case(line: CommandLine, params: Params) -> str:
    """Return the parameters in which a case differs from the others, in words."""
    differing_params = [
        f"{name} {value}"
        for name, value in params.items()
        if value is not None and any(other[name] != value for other in line.cases)
    ]
    return ", ".join(differing_params) or "these parameters"


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark of that name.

    Raises:
        ValueError: The benchmark is unknown.
    """
    if name not in BENCHMARKS:
        raise ValueError(
            f"no benchmark is called {name!r}; there are {', '.join(BENCHMARKS)}, and the scripts "
            "that --help lists"
        )
    return BENCHMARKS[name]
