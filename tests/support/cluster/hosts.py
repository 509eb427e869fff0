"""Several hosts on one machine: network namespaces with their own sshd.

The hosts share the files and the process table of this machine. Each has its own network, host name
and sshd. The controller runs outside of them, at the address of the bridge.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.cluster.requirements import MissingRequirementError

SSHD = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/local/sbin") or "sshd"
TOOLS = ("ip", "tc", "unshare", "ssh", "ssh-keygen")


@dataclass(frozen=True)
class NamespaceHost:
    """One host.

    Attributes:
        name: The name of the host and of its namespace.
        address: Its IPv4 address.
        link: The interface at the outer end of its link.
    """

    name: str
    address: str
    link: str

    @property
    def pids(self) -> list[int]:
        """The processes in the network namespace of this host."""
        return [int(word) for word in _run("ip", "netns", "pids", self.name).split()]


@dataclass(frozen=True)
class HostNetwork:
    """Hosts on a bridge.

    Attributes:
        hosts: The hosts.
        subnet: Their subnet, such as ``10.231.7.0/24``.
        address: The address of the controller.
        bridge: The interface of the controller.
        bin: A folder with an ``ssh`` that reaches the hosts.
    """

    hosts: tuple[NamespaceHost, ...]
    subnet: str
    address: str
    bridge: str
    bin: Path

    def render_hostfile(self) -> str:
        """Return a hostfile with the addresses of the hosts."""
        return "".join(f"{host.address}\n" for host in self.hosts)

    def render_alias_hostfile(self, slots: int, count: int) -> str:
        """Return a hostfile of the first ``count`` hosts, with ssh's names."""
        return "".join(f"{host.name} slots={slots}\n" for host in self.hosts[:count])

    @contextmanager
    def cut_link(self, host: NamespaceHost) -> Iterator[None]:
        """Set the link of a host down, and up again at the end."""
        _run("ip", "link", "set", host.link, "down")
        try:
            yield
        finally:
            _run("ip", "link", "set", host.link, "up")

    @contextmanager
    def limit_rate(self, host: NamespaceHost, rate: str, burst: str = "128kb") -> Iterator[None]:
        """Limit a host's rate in both directions to a value such as ``100mbit``.

        After a pause, ``burst`` bytes pass at once.
        """
        limit = ("root", "tbf", "rate", rate, "burst", burst, "latency", "100ms")
        inside = ("ip", "netns", "exec", host.name, "tc", "qdisc")
        _run("tc", "qdisc", "replace", "dev", host.link, *limit)
        _run(*inside, "replace", "dev", "eth0", *limit)
        try:
            yield
        finally:
            _run("tc", "qdisc", "del", "dev", host.link, "root")
            _run(*inside, "del", "dev", "eth0", "root")


def _run(*argv: str) -> str:
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise MissingRequirementError(
            f"{' '.join(argv[:4])}: {process.stderr.strip() or process.returncode}"
        )
    return process.stdout


@contextmanager
def start_hosts(folder: Path, count: int) -> Iterator[HostNetwork]:
    """Start hosts, and remove them at the end in any case.

    Raises:
        MissingRequirementError: This machine cannot simulate several hosts.
    """
    _check_tools()
    prefix = f"sp{os.getpid()}"
    base = _find_free_subnet()
    hosts = tuple(
        NamespaceHost(f"{prefix}n{number}", f"{base}.{number}", f"{prefix}v{number}")
        for number in range(1, count + 1)
    )
    network = HostNetwork(hosts, f"{base}.0/24", f"{base}.254", f"{prefix}br", folder / "bin")
    try:
        _write_ssh_files(folder, hosts)
        _make_network(network)
        for host in hosts:
            _start_sshd(host, folder)
        for host in hosts:
            _wait_for_ssh(host, network)
        yield network
    finally:
        _remove(network)


def _check_tools() -> None:
    if os.geteuid() != 0:
        raise MissingRequirementError("network namespaces need root")
    missing = [name for name in (*TOOLS, SSHD) if shutil.which(name) is None]
    if missing:
        raise MissingRequirementError(
            f"not installed: {', '.join(missing)} (openssh-server, iproute2)"
        )


def _find_free_subnet() -> str:
    used = _run("ip", "-4", "addr", "show") + _run("ip", "-4", "route", "show")
    numbers = ((os.getpid() + step) % 250 for step in range(250))
    return next(base for n in numbers if (base := f"10.231.{n}") + "." not in used)


def _write_ssh_files(folder: Path, hosts: tuple[NamespaceHost, ...]) -> None:
    Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("host_key", "user_key"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
    (folder / "sshd_config").write_text(
        f"HostKey {folder}/host_key\nAuthorizedKeysFile {folder}/user_key.pub\n"
        "StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\n"
        "MaxStartups 100\n"
    )
    aliases = "".join(f"Host {host.name}\n HostName {host.address}\n" for host in hosts)
    (folder / "ssh_config").write_text(
        f"{aliases}Host *\n User root\n IdentityFile {folder}/user_key\n IdentitiesOnly yes\n"
        " StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n"
    )
    ssh = folder / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    ssh.chmod(0o755)


def _make_network(network: HostNetwork) -> None:
    bridge = network.bridge
    _run("ip", "link", "add", bridge, "type", "bridge")
    _run("ip", "addr", "add", f"{network.address}/24", "dev", bridge)
    _run("ip", "link", "set", bridge, "up")
    for host in network.hosts:
        _run("ip", "netns", "add", host.name)
        pair = ("type", "veth", "peer", "name", "eth0", "netns", host.name)
        _run("ip", "link", "add", host.link, *pair)
        _run("ip", "link", "set", host.link, "master", bridge, "up")
        inside = ("ip", "-n", host.name)
        _run(*inside, "addr", "add", f"{host.address}/24", "dev", "eth0")
        _run(*inside, "link", "set", "eth0", "up")
        _run(*inside, "link", "set", "lo", "up")


def _start_sshd(host: NamespaceHost, folder: Path) -> None:
    sshd = f"{SSHD} -f {folder}/sshd_config -o PidFile={folder}/{host.name}.pid"
    script = f"hostname {host.name}; exec {sshd}"
    _run("ip", "netns", "exec", host.name, "unshare", "--uts", "sh", "-c", script)


def _wait_for_ssh(host: NamespaceHost, network: HostNetwork) -> None:
    ssh = (str(network.bin / "ssh"), "-o", "BatchMode=yes", "-o", "ConnectTimeout=2")
    deadline = time.monotonic() + 10
    while True:
        try:
            _run(*ssh, host.address, "true")
        except MissingRequirementError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _remove(network: HostNetwork) -> None:
    for host in network.hosts:
        with suppress(MissingRequirementError):
            for pid in host.pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with suppress(MissingRequirementError):
            _run("ip", "netns", "del", host.name)
        with suppress(MissingRequirementError):  # or it ends with the last process of the namespace
            _run("ip", "link", "del", host.link)
    with suppress(MissingRequirementError):
        _run("ip", "link", "del", network.bridge)
