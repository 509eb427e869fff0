"""Reject options with one value that are given twice, instead of using only the last value."""

from __future__ import annotations

from collections import Counter
from typing import Any

import typer

from spbench.cli.help_pages import HelpCommand


class SingleUseCommand(HelpCommand):
    """A command that rejects a second value of an option that takes one."""

    def make_parser(self, ctx: Any) -> Any:
        """Return the parser of the command line, which also counts the options."""
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(*args: Any, **named: Any) -> Any:
            values, rest, order = parse(*args, **named)
            _check_counts(ctx, order)
            return values, rest, order

        parser.parse_args = parse_once  # type: ignore[method-assign]
        return parser


def _check_counts(ctx: Any, order: list[Any]) -> None:
    if ctx.resilient_parsing:
        return  # a shell asks for completions
    for param, count in Counter(order).items():
        single = not getattr(param, "is_flag", True) and not param.multiple and not param.count
        if single and count > 1:
            option = max(param.opts, key=len)
            ctx.fail(f"{option} takes one value, and is given {count} times")


def reject_repeats(app: typer.Typer) -> None:
    """Make all commands of an app reject repeated options."""
    for command in app.registered_commands:
        command.cls = SingleUseCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            reject_repeats(group.typer_instance)
