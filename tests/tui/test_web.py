"""The server of the console in a browser: who gets in, and what the page may ask for."""

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

from spbench.cli import console
from spbench.errors import UsageError
from spbench.tui.web.server import ConsoleServer

TOKEN = "a-token"


@asynccontextmanager
async def serving(token=TOKEN, command="true", host="127.0.0.1"):
    """The address of a running server, as it tells it."""
    told = asyncio.get_running_loop().create_future()
    server = ConsoleServer(command, token)
    task = asyncio.create_task(server.run(host, 0, told.set_result))
    try:
        await asyncio.wait({task, told}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield told.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def status_of(address, **options):
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        aiohttp.ClientSession(cookie_jar=jar) as session,
        session.get(address, **options) as got,
    ):
        return got.status


def test_the_console_in_the_browser_is_opened_as_the_command_line_says(tmp_path):
    app = typer.Typer()
    served = []
    console.register(app, Mock(), lambda words, **asked: served.append((words, asked)))
    hosts = ["--hostfile", "a.hosts", "--exclude-hosts", "node03", "--launcher", "hydra"]
    options = ["--readonly", "--home", str(tmp_path), *hosts]
    runner = CliRunner()
    assert runner.invoke(app, ["serve", "a.yaml", "--port", "0", *options]).exit_code == 0
    assert runner.invoke(app, ["serve", "--no-token", "--hosts", "node01:4"]).exit_code == 0
    assert [words for words, _ in served] == [
        ["a.yaml", *options],
        ["--home", ".spbench", "--hosts", "node01:4"],
    ]
    assert [asked["with_token"] for _, asked in served] == [True, False]


async def test_the_told_address_opens_the_page_and_no_other_does():
    async with serving() as address:
        bare = address.partition("?")[0]
        assert await status_of(address) == 200
        assert await status_of(bare) == 403
        assert await status_of(bare + "?token=a-tokem") == 403
        for path in ("ws", "static/js/textual.js", "download/x"):
            assert await status_of(bare + path) == 403


async def test_a_browser_that_showed_the_token_need_not_show_it_again():
    async with (
        serving() as address,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        bare = address.partition("?")[0]
        async with session.get(address) as page:
            assert page.status == 200
        async with session.get(bare + "static/js/textual.js") as script:
            assert script.status == 200


async def test_without_a_token_anyone_on_this_host_gets_in():
    async with serving(token=None) as address:
        assert "token" not in address
        assert await status_of(address) == 200


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1:80", "[::1]:9999"])
async def test_without_a_token_a_name_of_this_machine_gets_in(name):
    async with serving(token=None) as address:
        assert await status_of(address, headers={"Host": name}) == 200


@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "["])
async def test_without_a_token_a_name_that_others_chose_does_not_get_in(name):
    async with serving(token=None) as address:
        assert await status_of(address, headers={"Host": name}) == 403
    async with serving() as address:
        assert await status_of(address, headers={"Host": name}) == 200


async def test_who_serves_to_all_addresses_is_reached_by_any_name():
    async with serving(token=None, host="0.0.0.0") as address:
        address = address.replace("0.0.0.0", "127.0.0.1")
        assert await status_of(address, headers={"Host": "login.example"}) == 200


async def test_a_page_of_another_site_does_not_get_in():
    async with serving(token=None) as address:
        host = address.removeprefix("http://").rstrip("/")
        assert await status_of(address, headers={"Origin": "http://evil.example"}) == 403
        assert await status_of(address, headers={"Origin": f"http://{host}"}) == 200


async def test_the_page_asks_no_other_host_for_anything():
    async with serving() as address, aiohttp.ClientSession() as session:
        async with session.get(address) as got:
            page = await got.text()
            policy = got.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        own = re.match(r"http://([^/]+)/", address)[1]
        assert f"connect-src 'self' ws://{own} wss://{own};" in policy
        assert not re.findall(r"(?:https?|wss?)://[^/\"']+", page)


@pytest.mark.parametrize("host", ["localhost:9999", "login.example", "[::1]:8000"])
async def test_through_a_tunnel_the_page_may_connect_to_the_browsers_own_address(host):
    assert f" ws://{host} wss://{host};" in await policy_at(host)


@pytest.mark.parametrize("host", ["a; script-src *", "a *", "evil.example/x", "[", "a,b", "*"])
async def test_an_odd_host_is_not_repeated_in_the_policy(host):
    assert "connect-src 'self'; frame-ancestors" in await policy_at(host)


async def policy_at(host):
    """The policy of the page for a request with this Host header."""
    async with (
        serving() as address,
        aiohttp.ClientSession() as session,
        session.get(address, headers={"Host": host}) as got,
    ):
        return got.headers["Content-Security-Policy"]


async def test_two_servers_do_not_log_each_other_out():
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        serving(token="first") as first,
        serving(token="second") as second,
        aiohttp.ClientSession(cookie_jar=jar) as session,
    ):
        for address in (first, second):
            async with session.get(address) as page:
                assert page.status == 200
        for address in (first, second, first):
            async with session.get(address.partition("?")[0]) as page:
                assert page.status == 200


async def test_a_browser_shows_the_token_to_no_other_server_of_the_host():
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        serving() as address,
        serving() as other,
        aiohttp.ClientSession(cookie_jar=jar) as session,
        session.get(address) as page,
    ):
        assert page.status == 200
        own = URL(address)
        assert [cookie.value for cookie in jar.filter_cookies(own).values()] == [TOKEN]
        for path in ("/", "/static/", "/ws", URL(other).path):
            assert not jar.filter_cookies(own.with_port(own.port + 1).with_path(path))


async def test_the_name_of_a_cookie_and_its_path_cannot_be_guessed():
    names = set()
    paths = set()
    for _ in range(2):
        async with (
            serving() as address,
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


async def test_a_taken_port_is_one_sentence():
    async with serving() as address:
        port = int(re.search(r":(\d+)/", address)[1])
        with pytest.raises(UsageError, match=f"port {port} of 127.0.0.1 is taken; choose another"):
            await ConsoleServer("true", None).run("127.0.0.1", port, print)
