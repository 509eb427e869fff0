"""Command lines of benchmarks, from words to parameters.

Their flags come from the catalog.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from spbench_core.catalog import BENCHMARKS, COMMON_FAULTS, parse_fault
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.parameters import Param, Params


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line that was read.

    Attributes:
        entry: The benchmark.
        cases: The complete parameters of its cases.
        inject: The fault to plant, if any.
        verbose: Whether each step says more.
        head: The lines to print first.
        warnings: The sentences on flags that do nothing.
    """

    entry: Benchmark
    cases: tuple[Params, ...]
    inject: str | None = None
    verbose: bool = False
    first_lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Parser(argparse.ArgumentParser):
    """A parser that raises errors instead of printing them: all ranks parse, rank 0 prints."""

    def error(self, message: str) -> NoReturn:
        """Raise a ValueError with the message."""
        raise ValueError(f"{self.prog}: {message}")


def create_parser(entry: Benchmark, defaults: Mapping[str, Any] | None = None) -> Parser:
    """Return the parser of a benchmark's command line.

    It raises a ValueError for wrong words.

    Args:
        entry: The benchmark.
        defaults: What each parameter is where it is left out, for the help; None for the
            catalog's.
    """
    parser = Parser(
        prog=f"spbench_workers {entry.name}", description=entry.summary, allow_abbrev=False
    )
    add_params(parser, entry, entry.params, defaults or {})
    return parser


def add_params(
    parser: Parser, entry: Benchmark, params: Iterable[Param], defaults: Mapping[str, Any]
) -> None:
    """Add flags for some parameters of a benchmark, and the one for faults."""
    for param in params:
        flags = [param.flag, *("--" + alias.replace("_", "-") for alias in param.aliases)]
        default = defaults.get(param.name) if param.default is None else param.default
        # The reference scripts' switches take no value.
        switch: dict[str, Any] = {"nargs": "?", "const": "true"} if param.kind == "bool" else {}
        text = help_text(param, default)
        parser.add_argument(*flags, dest=param.name, metavar="V", help=text, **switch)
    faults = [*entry.faults, *COMMON_FAULTS]
    parser.add_argument(
        "--inject",
        action=_Once,
        type=partial(_fault_among, faults),
        metavar=f"{{{','.join(faults)}}}",
        help="plant a fault in the last rank",
    )


class _Once(argparse.Action):
    """The action of an option that is not repeated: argparse itself keeps the last value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Take the value.

        Raises:
            argparse.ArgumentError: There is one already.
        """
        before = getattr(namespace, self.dest)
        if before is not None:
            raise argparse.ArgumentError(self, f"{before} is planted already, and a run takes one")
        setattr(namespace, self.dest, values)


def _fault_among(faults: Sequence[str], word: str) -> str:
    try:
        name, _ = parse_fault(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if name not in faults:
        known = ", ".join(faults)
        raise argparse.ArgumentTypeError(f"invalid choice: {word!r} (choose from {known})")
    return word


def help_text(param: Param, default: Any, meaning: str | None = None) -> str:
    """Return the help of a parameter: what it is, its choices, and its default where it has one.

    Args:
        param: The parameter.
        default: Its value where it is left out; None where that is open.
        meaning: What it is on this command line; None for what the catalog says.
    """
    words = [*param.choices, *(word for word in param.spellings if word not in param.choices)]
    among = f"; of {', '.join(words)}" if words else ""
    told = "" if default is None else f" (default: {_as_word(default)})"
    return f"{meaning or param.help}{among}{told}".replace("%", "%%")


def _as_word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def true_defaults(entry: Benchmark) -> Params:
    """Return the parameters of a command line without flags, derived ones among them."""
    try:
        return entry.complete({})
    except ExceptionGroup:  # it does not run without one that must be given
        return {}


def read_benchmark(words: list[str]) -> CommandLine:
    """Return the command line of a benchmark by its name in the catalog.

    Raises:
        ValueError: The words are wrong.
    """
    entry = find_benchmark(words[0])
    given = vars(create_parser(entry).parse_args(words[1:]))
    inject = given.pop("inject")
    try:
        cases = entry.list_cases(given)
    except ExceptionGroup as group:
        raise ValueError(join_errors(group)) from None
    return CommandLine(entry, tuple(params for _, params in cases), inject)


def join_errors(group: ExceptionGroup[Exception]) -> str:
    """Return the errors of a group in one line."""
    return "; ".join(str(error) for error in group.exceptions)


def check_ranks(line: CommandLine, size: int) -> None:
    """Refuse another number of ranks than the cases need.

    Raises:
        ValueError: The number of ranks is another.
    """
    entry = line.entry
    for params in line.cases:
        ranks = entry.ranks(params)
        if ranks.exact not in (None, size) or size < ranks.minimum:
            needed = ranks.exact if ranks.exact is not None else f"at least {ranks.minimum}"
            why = f" ({ranks.why})" if ranks.why else ""
            which = _which(line, params)
            raise ValueError(
                f"{entry.name} with {which} runs on {needed} ranks{why}, not on {size}"
            )


def _which(line: CommandLine, params: Params) -> str:
    """Return in which parameters a case differs from the others, in words."""
    differs = [
        f"{name} {value}"
        for name, value in params.items()
        if value is not None and any(other[name] != value for other in line.cases)
    ]
    return ", ".join(differs) or "these parameters"


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark of that name.

    Raises:
        ValueError: There is none.
    """
    if name not in BENCHMARKS:
        raise ValueError(
            f"no benchmark is called {name!r}; there are {', '.join(BENCHMARKS)}, and the scripts "
            "that --help lists"
        )
    return BENCHMARKS[name]
