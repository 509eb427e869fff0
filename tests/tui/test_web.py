"""The web server of the console: access, and the content security policy."""

import asyncio
import re
from contextlib import asynccontextmanager
from unittest.mock import Mock

import aiohttp
import pytest
import typer
from typer.testing import CliRunner
from yarl import URL

pytest.importorskip("textual_serve", reason="the extra `serve` is not installed")

from spbench.cli import tui_commands
from spbench.errors import UsageError
from spbench.tui.web.server import ConsoleServer

TOKEN = "a-token"


@asynccontextmanager
async def run_server(token=TOKEN, command="true", host="127.0.0.1"):
    """Run a server and yield the address that it reports."""
    reported_address = asyncio.get_running_loop().create_future()
    server = ConsoleServer(command, token)
    task = asyncio.create_task(server.run(host, 0, reported_address.set_result))
    try:
        await asyncio.wait(
            {task, reported_address}, timeout=10, return_when=asyncio.FIRST_COMPLETED
        )
        if task.done():
            task.result()
        yield reported_address.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def fetch_status(address, **options):
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        aiohttp.ClientSession(cookie_jar=jar) as session,
        session.get(address, **options) as response,
    ):
        return response.status


def test_serve_passes_its_options_to_the_tui(tmp_path):
    app = typer.Typer()
    calls = []
    tui_commands.register(
        app, Mock(), lambda arguments, **keywords: calls.append((arguments, keywords))
    )
    hosts = ["--hostfile", "a.hosts", "--exclude-hosts", "node03", "--launcher", "hydra"]
    options = ["--readonly", "--home", str(tmp_path), *hosts]
    runner = CliRunner()
    assert runner.invoke(app, ["serve", "a.yaml", "--port", "0", *options]).exit_code == 0
    assert runner.invoke(app, ["serve", "--no-token", "--hosts", "node01:4"]).exit_code == 0
    assert [arguments for arguments, _ in calls] == [
        ["a.yaml", *options],
        ["--home", ".spbench", "--hosts", "node01:4"],
    ]
    assert [keywords["with_token"] for _, keywords in calls] == [True, False]


async def test_only_the_reported_address_opens_the_page():
    async with run_server() as address:
        bare = address.partition("?")[0]
        assert await fetch_status(address) == 200
        assert await fetch_status(bare) == 403
        assert await fetch_status(bare + "?token=a-tokem") == 403
        for path in ("ws", "static/js/textual.js", "download/x"):
            assert await fetch_status(bare + path) == 403


async def test_token_is_remembered_by_the_browser():
    async with (
        run_server() as address,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        bare = address.partition("?")[0]
        async with session.get(address) as page:
            assert page.status == 200
        async with session.get(bare + "static/js/textual.js") as script:
            assert script.status == 200


async def test_server_without_token_accepts_any_local_client():
    async with run_server(token=None) as address:
        assert "token" not in address
        assert await fetch_status(address) == 200


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1:80", "[::1]:9999"])
async def test_server_without_token_accepts_names_of_this_host(name):
    async with run_server(token=None) as address:
        assert await fetch_status(address, headers={"Host": name}) == 200


@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "["])
async def test_server_without_token_rejects_foreign_names(name):
    async with run_server(token=None) as address:
        assert await fetch_status(address, headers={"Host": name}) == 403
    async with run_server() as address:
        assert await fetch_status(address, headers={"Host": name}) == 200


async def test_server_on_all_addresses_accepts_any_name():
    async with run_server(token=None, host="0.0.0.0") as address:
        address = address.replace("0.0.0.0", "127.0.0.1")
        assert await fetch_status(address, headers={"Host": "login.example"}) == 200


async def test_rejects_requests_of_other_sites():
    async with run_server(token=None) as address:
        host = address.removeprefix("http://").rstrip("/")
        assert await fetch_status(address, headers={"Origin": "http://evil.example"}) == 403
        assert await fetch_status(address, headers={"Origin": f"http://{host}"}) == 200


async def test_page_loads_nothing_from_other_hosts():
    async with run_server() as address, aiohttp.ClientSession() as session:
        async with session.get(address) as response:
            page = await response.text()
            policy = response.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        server_host = re.match(r"http://([^/]+)/", address)[1]
        assert f"connect-src 'self' ws://{server_host} wss://{server_host};" in policy
        assert not re.findall(r"(?:https?|wss?)://[^/\"']+", page)


@pytest.mark.parametrize("host", ["localhost:9999", "login.example", "[::1]:8000"])
async def test_policy_allows_the_browsers_address_behind_a_tunnel(host):
    assert f" ws://{host} wss://{host};" in await fetch_policy(host)


@pytest.mark.parametrize("host", ["a; script-src *", "a *", "evil.example/x", "[", "a,b", "*"])
async def test_policy_omits_an_invalid_host(host):
    assert "connect-src 'self'; frame-ancestors" in await fetch_policy(host)


async def fetch_policy(host):
    """Return the page's policy for a request with this Host header."""
    async with (
        run_server() as address,
        aiohttp.ClientSession() as session,
        session.get(address, headers={"Host": host}) as response,
    ):
        return response.headers["Content-Security-Policy"]


async def test_two_servers_keep_separate_sessions():
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        run_server(token="first") as first,
        run_server(token="second") as second,
        aiohttp.ClientSession(cookie_jar=jar) as session,
    ):
        for address in (first, second):
            async with session.get(address) as page:
                assert page.status == 200
        for address in (first, second, first):
            async with session.get(address.partition("?")[0]) as page:
                assert page.status == 200


async def test_token_cookie_goes_only_to_its_server():
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        run_server() as address,
        run_server() as other,
        aiohttp.ClientSession(cookie_jar=jar) as session,
        session.get(address) as page,
    ):
        assert page.status == 200
        server_url = URL(address)
        assert [cookie.value for cookie in jar.filter_cookies(server_url).values()] == [TOKEN]
        for path in ("/", "/static/", "/ws", URL(other).path):
            assert not jar.filter_cookies(server_url.with_port(server_url.port + 1).with_path(path))


async def test_cookie_name_and_path_are_random():
    names = set()
    paths = set()
    for _ in range(2):
        async with (
            run_server() as address,
            aiohttp.ClientSession() as session,
            session.get(address) as page,
        ):
            (cookie,) = page.cookies.values()
            port = URL(address).port
            assert re.fullmatch(rf"spbench-{port}-[0-9a-f]{{8}}", cookie.key)
            assert cookie["path"] == URL(address).path
            assert len(cookie["path"]) > 12
            assert cookie["httponly"]
            assert cookie["samesite"] == "Strict"
            names.add(cookie.key.rpartition("-")[2])
            paths.add(cookie["path"])
    assert len(names) == len(paths) == 2


async def test_occupied_port_is_a_usage_error():
    async with run_server() as address:
        port = int(re.search(r":(\d+)/", address)[1])
        with pytest.raises(UsageError, match=f"port {port} of 127.0.0.1 is taken; choose another"):
            await ConsoleServer("true", None).run("127.0.0.1", port, print)
