"""Options that take one value are given once: a repeat is an error, not a silent replacement."""

from __future__ import annotations

from collections import Counter
from typing import Any

import typer
from typer.core import TyperCommand


class OnceCommand(TyperCommand):
    """A command that refuses repeats of options with one value; flags may be repeated."""

    def make_parser(self, ctx: Any) -> Any:
        """Return the parser of the command line, which counts the options that it reads."""
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(*args: Any, **named: Any) -> Any:
            values, rest, order = parse(*args, **named)
            _refuse_repeats(ctx, order)
            return values, rest, order

        parser.parse_args = parse_once  # type: ignore[method-assign]
        return parser


def _refuse_repeats(ctx: Any, order: list[Any]) -> None:
    if ctx.resilient_parsing:
        return  # a shell asks for completions
    for param, count in Counter(order).items():
        single = not getattr(param, "is_flag", True) and not param.multiple and not param.count
        if single and count > 1:
            option = max(param.opts, key=len)
            ctx.fail(f"{option} takes one value, and is given {count} times")


def refuse_repeats(app: typer.Typer) -> None:
    """Make all commands of an app refuse repeats."""
    for command in app.registered_commands:
        command.cls = OnceCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            refuse_repeats(group.typer_instance)
