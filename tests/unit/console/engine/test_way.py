"""The way from ranks to the console: addresses, ports and tunnels."""

import socket

import pytest

from spbench.engine.connections.collector import Collector
from spbench.engine.connections.endpoint import parse_addresses, parse_ports, resolve_endpoint
from spbench.engine.connections.tunnel import Tunnels
from spbench.errors import ExitCode, MissingError, UsageError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice
from unit.heard import Heard

LOOPBACK = "127.0.0.1"
HOSTS = ("localhost", "192.0.2.7", "192.0.2.8")


def test_addresses_that_are_given_are_told_and_every_interface_listens():
    way = resolve_endpoint(HOSTS, LaunchChoice(console_address="login.ib,10.1.2.3"), "none")
    assert (way.bind, way.advertised, way.ports) == ("0.0.0.0", ("login.ib", "10.1.2.3"), (0,))


def test_ranks_on_this_machine_alone_are_told_loopback():
    way = resolve_endpoint(("localhost",), DEFAULT_CHOICE, "none")
    assert (way.bind, way.advertised, way.tunnels) == (LOOPBACK, (LOOPBACK,), ())


def test_by_tunnels_only_loopback_listens_and_each_remote_host_has_one():
    way = resolve_endpoint(HOSTS, LaunchChoice(port_range="5000-5001"), "ssh")
    assert (way.bind, way.advertised, list(way.ports)) == (LOOPBACK, (LOOPBACK,), [5000, 5001])
    assert way.tunnels == HOSTS[1:]


def test_no_tunnel_leads_to_hosts_that_are_not_known():
    with pytest.raises(UsageError, match="needs to know the hosts"):
        resolve_endpoint((), DEFAULT_CHOICE, "ssh", unknown=True)


@pytest.mark.parametrize("text", ["", "0-5", "9-1", "5000-70000", "a-b", "1-2-3", "-5", "123456"])
def test_what_is_no_range_of_ports_is_refused(text):
    with pytest.raises(UsageError, match="--port-range"):
        parse_ports(text)


@pytest.mark.parametrize("text", ["", "a,,b", "login:5000", "a b", "::1", "-x", "a/b"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UsageError, match="--console-address"):
        parse_addresses(text)


async def test_the_first_free_port_of_the_range_is_taken_and_none_is_an_error():
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        collector = Collector("t0ken", Heard())
        with pytest.raises(MissingError, match=f"--port-range {port}-{port} is free") as refused:
            await collector.listen(LOOPBACK, (port,))
        assert refused.value.exit_code == ExitCode.MISSING
        assert await collector.listen(LOOPBACK, (port, 0)) != port
        await collector.close()


# Tunnels, by a stand-in for ssh

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


async def test_each_host_gets_a_tunnel_that_ends_with_the_job(ssh):
    tunnels = Tunnels()
    await tunnels.open(("n1", "n2", "n1"), 5000)
    words = sorted(ssh.read_text().splitlines())
    assert len(words) == 2
    assert "-R 127.0.0.1:5000:127.0.0.1:5000 n1 " in words[0]
    assert "ExitOnForwardFailure=yes" in words[0]
    await tunnels.close()
    await tunnels.close()


async def test_a_host_that_forwards_nothing_is_named_with_sshs_own_words(ssh):
    tunnels = Tunnels()
    with pytest.raises(MissingError) as refused:
        await tunnels.open(("n1", "refusing"), 5000)
    assert "to refusing: Warning: remote port forwarding failed" in str(refused.value)
    await tunnels.close()


async def test_a_machine_without_ssh_is_told_as_such(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    tunnels = Tunnels()
    with pytest.raises(MissingError, match="to n1: ssh cannot run: No such file or directory"):
        await tunnels.open(("n1",), 5000)
    await tunnels.close()
