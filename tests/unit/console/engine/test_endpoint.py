"""Endpoint of the console for ranks: addresses, ports and tunnels."""

import socket

import pytest

from spbench.engine.connections.collector import Collector
from spbench.engine.connections.endpoint import parse_addresses, parse_ports, resolve_endpoint
from spbench.engine.connections.tunnel import Tunnels
from spbench.errors import ExitCode, MissingError, UsageError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice
from support.collector_listener import RecordingListener

LOOPBACK = "127.0.0.1"
HOSTS = ("localhost", "192.0.2.7", "192.0.2.8")


def test_given_addresses_are_advertised_on_all_interfaces():
    endpoint = resolve_endpoint(HOSTS, LaunchChoice(console_address="login.ib,10.1.2.3"), "none")
    assert (endpoint.bind_address, endpoint.advertised_addresses, endpoint.ports) == (
        "0.0.0.0",
        ("login.ib", "10.1.2.3"),
        (0,),
    )


def test_local_ranks_get_the_loopback_address():
    endpoint = resolve_endpoint(("localhost",), DEFAULT_CHOICE, "none")
    assert (endpoint.bind_address, endpoint.advertised_addresses, endpoint.tunnel_hosts) == (
        LOOPBACK,
        (LOOPBACK,),
        (),
    )


def test_tunnels_use_loopback_with_one_per_remote_host():
    endpoint = resolve_endpoint(HOSTS, LaunchChoice(port_range="5000-5001"), "ssh")
    assert (endpoint.bind_address, endpoint.advertised_addresses, list(endpoint.ports)) == (
        LOOPBACK,
        (LOOPBACK,),
        [5000, 5001],
    )
    assert endpoint.tunnel_hosts == HOSTS[1:]


def test_rejects_tunnels_to_unknown_hosts(messages):
    with messages.raises(UsageError):
        resolve_endpoint((), DEFAULT_CHOICE, "ssh", has_unknown_hosts=True)


@pytest.mark.parametrize("text", ["", "0-5", "9-1", "5000-70000", "a-b", "1-2-3", "-5", "123456"])
def test_rejects_an_invalid_port_range(text):
    with pytest.raises(UsageError, match="--port-range"):
        parse_ports(text)


@pytest.mark.parametrize("text", ["", "a,,b", "login:5000", "a b", "::1", "-x", "a/b"])
def test_rejects_an_invalid_address(text):
    with pytest.raises(UsageError, match="--console-address"):
        parse_addresses(text)


async def test_takes_the_first_free_port_of_the_range():
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        collector = Collector("t0ken", RecordingListener())
        with pytest.raises(MissingError, match=f"--port-range {port}-{port} is free") as caught:
            await collector.listen(LOOPBACK, (port,))
        assert caught.value.exit_code == ExitCode.MISSING
        assert await collector.listen(LOOPBACK, (port, 0)) != port
        await collector.close()


# Tunnels, with a stand-in for ssh

STAND_IN = """#!/bin/sh
echo "$@" >>"$0.words"
for word do before=$last; last=$word; host=$before; done
case $host in
refusing) echo "Warning: remote port forwarding failed for listen port 5000" >&2; exit 255 ;;
esac
echo "Welcome to $host"
exec sh -c "$last"
"""


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    path = tmp_path / "ssh"
    path.write_text(STAND_IN)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "ssh.words"


async def test_each_host_gets_a_tunnel_until_close(ssh):
    tunnels = Tunnels()
    await tunnels.open(("n1", "n2", "n1"), 5000)
    commands = sorted(ssh.read_text().splitlines())
    assert len(commands) == 2
    assert "-R 127.0.0.1:5000:127.0.0.1:5000 n1 " in commands[0]
    assert "ExitOnForwardFailure=yes" in commands[0]
    await tunnels.close()
    await tunnels.close()


async def test_reports_a_host_that_refuses_the_tunnel(ssh, messages):
    tunnels = Tunnels()
    with pytest.raises(MissingError) as caught:
        await tunnels.open(("n1", "refusing"), 5000)
    messages.check(str(caught.value))
    await tunnels.close()


async def test_reports_a_missing_ssh(monkeypatch, messages):
    monkeypatch.setenv("PATH", "/nowhere")
    tunnels = Tunnels()
    with messages.raises(MissingError):
        await tunnels.open(("n1",), 5000)
    await tunnels.close()
