"""Start of the server of the console."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import sys
from collections.abc import Callable, Sequence

from spbench.errors import MissingError


def serve_console(
    args: Sequence[str],
    *,
    host: str,
    port: int,
    with_token: bool,
    print_address: Callable[[str], None],
) -> None:
    """Serve ``spbench tui`` with these arguments to browsers until a signal comes.

    Raises:
        MissingError: textual-serve is not installed.
        UsageError: The address cannot be listened on.
    """
    try:
        from spbench.tui.web.server import ConsoleServer
    except ImportError as error:
        missing = f"spbench serve needs textual-serve ({error.name} is missing)"
        raise MissingError(f"{missing}; pip install 'spbench[serve]'") from None
    command = shlex.join([sys.executable, "-m", "spbench", "tui", *args])
    token = secrets.token_urlsafe(18) if with_token else None
    asyncio.run(ConsoleServer(command, token).run(host, port, print_address))
