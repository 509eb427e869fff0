"""The server of the console for browsers with the token; each tab runs a console."""

from __future__ import annotations

import asyncio
import errno
import hmac
import re
import secrets
import signal
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp_jinja2
from aiohttp import web
from textual_serve.server import Server, to_int

from spbench.errors import UsageError

COOKIE = "spbench"
"""Prefix of the name of a cookie.

Cookies are shared by all ports of a host. With equal names, a second server on this host would
overwrite the cookie of the first.
"""
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'{sockets}; frame-ancestors 'none'"
)
"""Makes browsers reject requests to other hosts, independent of the page."""

_HOST = re.compile(r"[A-Za-z0-9._-]+(:\d+)?|\[[0-9A-Fa-f:.]+\](:\d+)?")
"""A Host header that is safe to insert into the policy."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ConsoleServer(Server):
    """A textual-serve server with a token, its own page, and addresses relative to it.

    Args:
        command: The shell command that each browser tab runs.
        token: The token that a browser must send; None for no token.
    """

    def __init__(self, command: str, token: str | None) -> None:
        super().__init__(command, title="spbench", templates_path=Path(__file__).parent)
        self._token = token
        # Browsers send a cookie to every port of its host, but only for addresses below its path.
        # Other servers do not have this path, so they do not get the token.
        self._path = "/" if token is None else f"/{secrets.token_urlsafe(9)}/"
        self._cookie = ""
        self._loopback = True

    async def _make_app(self) -> web.Application:
        console = app = await super()._make_app()
        if self._path != "/":
            app = web.Application()
            app.add_subapp(self._path, console)

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guard(request, handler)

        app.middlewares.append(guard)
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing, since the command prints the address."""

    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject requests without the token, and requests from pages of other sites."""
        token = request.query.get("token") or request.cookies.get(self._cookie, "")
        if self._token is not None and not _tokens_equal(token, self._token):
            text = (
                "This console needs its token: open the whole address that spbench serve wrote.\n"
            )
            raise web.HTTPForbidden(text=text)
        # Without a token, a page of a domain that an attacker resolves to this machine (DNS
        # rebinding) would have access.
        if self._token is None and self._loopback and not _is_loopback(_get_hostname(request.host)):
            raise web.HTTPForbidden(text="Open this console as localhost, or serve it elsewhere.\n")
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="This console is not for pages of other sites.\n")
        response = await handler(request)
        if not response.prepared:
            response.headers["Content-Security-Policy"] = _build_policy(request.host)
            response.headers["Referrer-Policy"] = "no-referrer"
            if self._token is not None:
                response.set_cookie(
                    self._cookie, self._token, path=self._path, httponly=True, samesite="Strict"
                )
        return response

    @aiohttp_jinja2.template("app_index.html")
    async def handle_index(self, request: web.Request) -> dict[str, Any]:
        """Return the template context; addresses are relative, for servers behind a proxy."""
        return {
            "font_size": to_int(request.query.get("fontsize", "16"), 16),
            "config": {"static": {"url": "static/"}},
            "application": {"name": self.title},
        }

    async def run(self, host: str, port: int, print_address: Callable[[str], None]) -> None:
        """Serve until a signal comes, and print the address when ready.

        Raises:
            UsageError: The address cannot be listened on.
        """
        runner = web.AppRunner(await self._make_app(), handle_signals=False, shutdown_timeout=2.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port)
            try:
                await site.start()
            except OSError as error:
                raise UsageError(_describe_bind_error(host, port, error)) from None
            bound_address = runner.addresses[0]
            self._cookie = f"{COOKIE}-{bound_address[1]}-{secrets.token_hex(4)}"
            self._loopback = _is_loopback(str(bound_address[0]))
            print_address(self._format_address(bound_address))
            await _wait_for_signal()
        finally:
            await runner.cleanup()

    def _format_address(self, bound_address: Sequence[Any]) -> str:
        host = f"[{bound_address[0]}]" if ":" in str(bound_address[0]) else bound_address[0]
        token = "" if self._token is None else f"?token={self._token}"
        return f"http://{host}:{bound_address[1]}{self._path}{token}"


def _tokens_equal(received: str, token: str) -> bool:
    return hmac.compare_digest(received.encode(errors="replace"), token.encode())


def _build_policy(host: str) -> str:
    """Return the policy of a page at a host; an unsafe Host header is left out."""
    sockets = f" ws://{host} wss://{host}" if _HOST.fullmatch(host) else ""
    return _POLICY.format(sockets=sockets)


def _get_hostname(host: str) -> str:
    """Return the name in a Host header without its port; empty if it is invalid."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _describe_bind_error(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken; choose another with --port, or 0 for any free one"
    return f"cannot listen on {host}:{port}: {error.strerror or error}"


async def _wait_for_signal() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
