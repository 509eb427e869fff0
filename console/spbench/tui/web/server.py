"""Serves the console to browsers: each tab runs one of its own, and none without the token."""

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
"""The beginning of a cookie's name. Cookies do not belong to a port: with equal names, a second
server on this host would overwrite the cookie of the first."""
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'{sockets}; frame-ancestors 'none'"
)
"""The browser itself refuses to ask any other host, whatever a page contains."""

_HOST = re.compile(r"[A-Za-z0-9._-]+(:\d+)?|\[[0-9A-Fa-f:.]+\](:\d+)?")
"""A Host header that can be put into the policy."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ConsoleServer(Server):
    """textual-serve with a token, our own page, and addresses as the browser wrote them.

    Args:
        command: The shell line that each browser tab runs.
        token: What a browser must show; None: nothing.
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
        """Say nothing: the command says where it serves."""

    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse who has no token, and pages of other sites that would use this browser's."""
        shown = request.query.get("token") or request.cookies.get(self._cookie, "")
        if self._token is not None and not _equal(shown, self._token):
            text = (
                "This console needs its token: open the whole address that spbench serve wrote.\n"
            )
            raise web.HTTPForbidden(text=text)
        # With no token, a page whose name an attacker lets point to this machine would get in.
        if self._token is None and self._loopback and not _is_loopback(_name(request.host)):
            raise web.HTTPForbidden(text="Open this console as localhost, or serve it elsewhere.\n")
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="This console is not for pages of other sites.\n")
        response = await handler(request)
        if not response.prepared:
            response.headers["Content-Security-Policy"] = _policy(request.host)
            response.headers["Referrer-Policy"] = "no-referrer"
            if self._token is not None:
                response.set_cookie(
                    self._cookie, self._token, path=self._path, httponly=True, samesite="Strict"
                )
        return response

    @aiohttp_jinja2.template("app_index.html")
    async def handle_index(self, request: web.Request) -> dict[str, Any]:
        """Return the page's context; the page knows its address better than a server behind it."""
        return {
            "font_size": to_int(request.query.get("fontsize", "16"), 16),
            "config": {"static": {"url": "static/"}},
            "application": {"name": self.title},
        }

    async def run(self, host: str, port: int, tell: Callable[[str], None]) -> None:
        """Serve until a signal comes; ``tell`` is told the address once it can be opened.

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
                raise UsageError(_why(host, port, error)) from None
            bound = runner.addresses[0]
            self._cookie = f"{COOKIE}-{bound[1]}-{secrets.token_hex(4)}"
            self._loopback = _is_loopback(str(bound[0]))
            tell(self._address(bound))
            await _signalled()
        finally:
            await runner.cleanup()

    def _address(self, bound: Sequence[Any]) -> str:
        host = f"[{bound[0]}]" if ":" in str(bound[0]) else bound[0]
        token = "" if self._token is None else f"?token={self._token}"
        return f"http://{host}:{bound[1]}{self._path}{token}"


def _equal(shown: str, token: str) -> bool:
    return hmac.compare_digest(shown.encode(errors="replace"), token.encode())


def _policy(host: str) -> str:
    """Return the policy of a page at this host; an odd Host header is not repeated in it."""
    sockets = f" ws://{host} wss://{host}" if _HOST.fullmatch(host) else ""
    return _POLICY.format(sockets=sockets)


def _name(host: str) -> str:
    """The name in a Host header, without its port; empty where there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken; choose another with --port, or 0 for any free one"
    return f"cannot listen on {host}:{port}: {error.strerror or error}"


async def _signalled() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
