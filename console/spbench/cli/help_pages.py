"""Help pages: grouped commands and options, metavars, defaults and examples.

Typer lays out groups only with rich. Importing rich takes 136 ms, as long as `spbench --help`.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from spbench.cli.examples import EXAMPLES
from spbench.cli.text_layout import (
    Row,
    find_definition_column,
    format_definitions,
    wrap_description,
)
from spbench.errors import did_you_mean

Section = tuple[str, list[Row]]
"""A title and its rows."""

COMMAND_GROUPS: Mapping[str, Sequence[str]] = {
    "Runs": ("run", "scale", "script", "submit", "collect"),
    "Results": ("results", "report", "compare", "baseline", "gate", "replay"),
    "Suites": ("init", "benchmarks", "validate", "command", "schema"),
    "Cluster": ("doctor",),
    "Models": ("networks", "profile", "plan"),
    "Screens and shell": ("tui", "serve", "completion"),
}
"""The commands of each group, in the order in which help lists them."""

OPTION_GROUPS: Mapping[str, Sequence[str]] = {
    "Cases": ("-k", "--case", "--set", "--system", "--inject"),
    "Numbers of ranks": ("--np", "--strong", "--by", "--worth"),
    "Model and batch": (
        "--global-batch-size",
        "--micro-batch-size",
        "--profile-batch-size",
        "--batch-sizes",
        "--busy",
        "--optimizer-memory-scaling",
        "--peak-activation-bytes",
    ),
    "Cluster to plan for": ("--machines", "--cluster", "--cluster-from"),
    "Search": ("--mode", "--jobs"),
    "Batch job": ("--scheduler", "--site"),
    "Hosts and launch": (
        "--hostfile",
        "--hosts",
        "--exclude-hosts",
        "--launcher",
        "--assume",
        "--console-address",
        "--port-range",
        "--preflight",
        "--skip-bad-hosts",
        "--oversubscribe",
        "--dry-run",
    ),
    "Failures and time": (
        "--budget",
        "--retries",
        "--fail-on-flaky",
        "--failed",
        "--without-faults",
        "--without-cancelled",
        "--resume",
    ),
    "Comparison": ("--baseline", "--fail-on", "--max-unjudged"),
    "Screens": ("--demo", "--readonly", "--host", "--port", "--no-token"),
    "Output": (
        "--output",
        "--format",
        "--timeline",
        "--emit",
        "--verify",
        "--headless",
        "--json",
        "--no-samples",
        "--junit",
        "--html",
        "--push",
        "--quiet",
        "--verbose",
    ),
}
"""The options of each group on the pages of commands with many options."""
OTHER_OPTIONS = "Other options"
MANY_OPTIONS = 12
"""The least number of options for which a page has groups."""
_HELP_OPTION = "--help"


class HelpCommand(TyperCommand):
    """A command with a help page of this module."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line after the command."""
        return _usage_parts(self, ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page."""
        _write_page(self, ctx, formatter)


class SingleUseCommand(HelpCommand):
    """A command that rejects a second value of an option that takes one."""

    def make_parser(self, ctx: Any) -> Any:
        """Return the parser of the command line, which also counts the options."""
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(*args: Any, **keywords: Any) -> Any:
            values, leftover, order = parse(*args, **keywords)
            _check_counts(ctx, order)
            return values, leftover, order

        parser.parse_args = parse_once  # type: ignore[method-assign]
        return parser


def _check_counts(ctx: Any, order: list[Any]) -> None:
    if ctx.resilient_parsing:
        return  # a shell asks for completions
    for param, count in Counter(order).items():
        takes_one_value = (
            not getattr(param, "is_flag", True) and not param.multiple and not param.count
        )
        if takes_one_value and count > 1:
            option = max(param.opts, key=len)
            ctx.fail(f"{option} takes one value, and is given {count} times")


def reject_repeats(app: typer.Typer) -> None:
    """Make all commands of an app reject repeated options."""
    for command in app.registered_commands:
        command.cls = SingleUseCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            reject_repeats(group.typer_instance)


class HelpGroup(TyperGroup):
    """A group of commands with a help page of this module and suggestions."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line after the group."""
        return [*_usage_parts(self, ctx), "COMMAND ..."]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page."""
        _write_page(self, ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments begin with."""
        if args[0] not in self.commands and args[0][:1] != "-" and not ctx.resilient_parsing:
            ctx.fail(f"unknown command {args[0]}{did_you_mean(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


def usage_message(error: Any) -> str:
    """Return the message for a usage error of Typer."""
    param = getattr(error, "param", None)
    if type(error).__name__ == "NoSuchOption":
        option = error.option_name
        known_options = [
            name for param in error.ctx.command.get_params(error.ctx) for name in param.opts
        ]
        return f"unknown option {option}{did_you_mean(option, known_options)}"
    if type(error).__name__ == "MissingParameter" and param is not None:
        name = _metavar(param) if param.param_type_name == "argument" else max(param.opts, key=len)
        return f"missing {param.param_type_name} {name}"
    if param is not None and param.param_type_name == "option":
        # The library that reads values reports "Input should be a valid integer, unable to ...".
        reason = error.message.removeprefix("Value error, ").removesuffix(".")
        reason = re.sub(r"^Input should be (.*?)(, unable to parse.*)?$", r"must be \1", reason)
        return f"{max(param.opts, key=len)}: {reason}"
    message = _strip_full_stop(" ".join(error.format_message().split()))
    message = message[:1].lower() + message[1:]
    message = re.sub(r"^option '(.*)' requires an argument$", r"\1 needs a value", message)
    return re.sub(r"^got unexpected extra argument\(?s?\)? \((.*)\)$", r"unexpected \1", message)


def usage_lines(error: Any) -> list[str]:
    """Return the usage line of the command of an error, and where its help is."""
    if error.ctx is None:
        return []
    usage = " ".join(error.ctx.get_usage().split())
    return [
        f"usage: {usage.removeprefix('Usage: ')}",
        f"help: {error.ctx.command_path} {_HELP_OPTION}",
    ]


def _write_page(command: Any, ctx: Any, formatter: Any) -> None:
    command.format_usage(ctx, formatter)
    paragraphs = textwrap.dedent(command.help or "").strip().split("\n\n")
    for paragraph in paragraphs:
        text = " ".join(paragraph.split())
        _write_lines(formatter, ["", *wrap_description(_strip_full_stop(text), formatter.width)])
    for sections in _generate_blocks(command, ctx):
        column = find_definition_column(row for _, rows in sections for row in rows)
        for title, rows in sections:
            lines = format_definitions(rows, formatter.width, column)
            _write_lines(formatter, ["", f"{title}:", *lines])
    examples = EXAMPLES.get(_command_words(ctx), ())
    if examples:
        formatter.write("\nExamples:\n")
    for comment, line in examples:
        formatter.write(f"  # {comment}\n  {line}\n")


def _generate_blocks(command: Any, ctx: Any) -> Iterable[list[Section]]:
    """Yield blocks of sections; the descriptions of a block start in the same column."""
    if isinstance(command, TyperGroup):
        yield list(_command_sections(command, ctx))
    yield list(_parameter_sections(command, ctx))
    if command.epilog:
        title, *lines = command.epilog.splitlines()
        yield [(title, [_split_row(line) for line in lines])]


def _parameter_sections(command: Any, ctx: Any) -> Iterable[Section]:
    params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    arguments = [
        (_metavar(param), _description(param))
        for param in params
        if param.param_type_name == "argument"
    ]
    if arguments:
        yield "Arguments", arguments
    options = [param for param in params if param.param_type_name == "option"]
    if len(options) < MANY_OPTIONS:
        yield "Options", [_option_row(option) for option in options]
        return
    for title, names in OPTION_GROUPS.items():
        rows = [_option_row(option) for name in names for option in options if name in option.opts]
        if rows:
            yield title, rows
    grouped = {name for names in OPTION_GROUPS.values() for name in names}
    others = [option for option in options if not grouped.intersection(option.opts)]
    yield OTHER_OPTIONS, [_option_row(option) for option in others]


def _command_sections(group: TyperGroup, ctx: Any) -> Iterable[Section]:
    rows = {
        name: (name, _strip_full_stop(command.help.strip().split("\n")[0]))
        for name, command in group.commands.items()
        if not command.hidden and command.help
    }
    if ctx.parent is not None:
        yield "Commands", list(rows.values())
        return
    for title, names in COMMAND_GROUPS.items():
        # Typer builds only the command that a line names, so that others may be missing.
        yield title, [rows.pop(name) for name in names if name in rows]
    if rows:
        yield "Other commands", list(rows.values())


def _usage_parts(command: Any, ctx: Any) -> list[str]:
    parts = []
    for param in command.get_params(ctx):
        if param.param_type_name == "option":
            if param.required:
                parts.append(f"{max(param.opts, key=len)} {_metavar(param)}")
            continue
        name = f"{_metavar(param)}{'...' if param.nargs != 1 else ''}"
        parts.append(name if param.required else f"[{name}]")
    return ["[OPTIONS]", *parts]


def _command_words(ctx: Any) -> str:
    """Return the names of a command after ``spbench``."""
    return str(ctx.command_path.partition(" ")[2])


def _option_row(option: Any) -> Row:
    short_names = [name for name in option.opts if not name.startswith("--")]
    long_names = [name for name in option.opts if name.startswith("--")]
    names = ", ".join([*short_names, *long_names])
    # Long names begin in the same column, with or without a short one.
    names = names if short_names else f"    {names}"
    if option.secondary_opts:
        names += f" | {', '.join(option.secondary_opts)}"
    if not option.is_flag and not getattr(option, "count", False):
        names += f" {_metavar(option)}"
    if _HELP_OPTION in option.opts:
        return names, "Show this help"
    return names, _description(option)


def _metavar(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _description(param: Any) -> str:
    suffix = _default_text(param)
    if param.required and param.param_type_name == "option":
        suffix = "[required]"
    return f"{param.help or ''} {suffix}".strip()


def _default_text(param: Any) -> str:
    """Return ``[default: N]``; empty without a default and for switches."""
    default = param.default
    if isinstance(param.show_default, str):
        default = param.show_default
    elif not param.show_default or default in (None, "") or isinstance(default, bool):
        return ""
    if isinstance(default, Enum):
        default = default.value
    return f"[default: {default}]"


def _write_lines(formatter: Any, lines: Iterable[str]) -> None:
    for line in lines:
        formatter.write(f"{line}\n")


def _split_row(line: str) -> Row:
    """Return the two columns of an epilog's line, separated by two or more blanks."""
    name, text = re.split(r" {2,}", line.strip(), maxsplit=1)
    return name, text


def _strip_full_stop(text: str) -> str:
    return text.removesuffix(".")
