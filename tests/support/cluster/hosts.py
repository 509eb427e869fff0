"""Three hosts on one machine: network namespaces on a bridge, each with its own sshd.

They share this machine's files and process table; network, host name and ssh are their own. The
console runs outside, at the bridge's address.
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
    """One host: its name, which is also its namespace's, its address, and its link's outer end."""

    name: str
    address: str
    link: str

    @property
    def pids(self) -> list[int]:
        """The processes whose network is this host's."""
        return [int(word) for word in _output("ip", "netns", "pids", self.name).split()]


@dataclass(frozen=True)
class HostNetwork:
    """The hosts, the console's address, its interface, and a folder whose ``ssh`` reaches them."""

    hosts: tuple[NamespaceHost, ...]
    subnet: str
    address: str
    bridge: str
    bin: Path

    def render_hostfile(self) -> str:
        """Return a hostfile that names the hosts by their addresses."""
        return "".join(f"{host.address}\n" for host in self.hosts)

    def render_alias_hostfile(self, slots: int, count: int) -> str:
        """Return a hostfile of the first ``count`` hosts, by names that only ssh knows."""
        return "".join(f"{host.name} slots={slots}\n" for host in self.hosts[:count])

    @contextmanager
    def cut_link(self, host: NamespaceHost) -> Iterator[None]:
        """Set the link of one host down, and up again at the end."""
        _output("ip", "link", "set", host.link, "down")
        try:
            yield
        finally:
            _output("ip", "link", "set", host.link, "up")

    @contextmanager
    def limit_rate(self, host: NamespaceHost, rate: str, burst: str = "128kb") -> Iterator[None]:
        """Limit what one host receives and sends to a rate such as ``100mbit``.

        After a pause, as much as ``burst`` goes at once.
        """
        limit = ("root", "tbf", "rate", rate, "burst", burst, "latency", "100ms")
        inside = ("ip", "netns", "exec", host.name, "tc", "qdisc")
        _output("tc", "qdisc", "replace", "dev", host.link, *limit)
        _output(*inside, "replace", "dev", "eth0", *limit)
        try:
            yield
        finally:
            _output("tc", "qdisc", "del", "dev", host.link, "root")
            _output(*inside, "del", "dev", "eth0", "root")


def _output(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingRequirementError(
            f"{' '.join(words[:4])}: {done.stderr.strip() or done.returncode}"
        )
    return done.stdout


@contextmanager
def start_hosts(folder: Path, count: int) -> Iterator[HostNetwork]:
    """Make the hosts, and take them away at the end, whatever happened.

    Raises:
        UnfitError: This machine cannot play several hosts; the sentence says why.
    """
    _check_tools()
    mark = f"sp{os.getpid()}"
    base = _free_subnet()
    hosts = tuple(
        NamespaceHost(f"{mark}n{number}", f"{base}.{number}", f"{mark}v{number}")
        for number in range(1, count + 1)
    )
    made = HostNetwork(hosts, f"{base}.0/24", f"{base}.254", f"{mark}br", folder / "bin")
    try:
        _write_ssh_files(folder, hosts)
        _make_network(made)
        for host in hosts:
            _start_sshd(host, folder)
        for host in hosts:
            _wait_for_ssh(host, made)
        yield made
    finally:
        _remove(made)


def _check_tools() -> None:
    if os.geteuid() != 0:
        raise MissingRequirementError("network namespaces need root")
    missing = [name for name in (*TOOLS, SSHD) if shutil.which(name) is None]
    if missing:
        raise MissingRequirementError(
            f"not installed: {', '.join(missing)} (openssh-server, iproute2)"
        )


def _free_subnet() -> str:
    taken = _output("ip", "-4", "addr", "show") + _output("ip", "-4", "route", "show")
    numbers = ((os.getpid() + step) % 250 for step in range(250))
    return next(base for n in numbers if (base := f"10.231.{n}") + "." not in taken)


def _write_ssh_files(folder: Path, hosts: tuple[NamespaceHost, ...]) -> None:
    Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("host_key", "user_key"):
        _output("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
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


def _make_network(made: HostNetwork) -> None:
    bridge = made.bridge
    _output("ip", "link", "add", bridge, "type", "bridge")
    _output("ip", "addr", "add", f"{made.address}/24", "dev", bridge)
    _output("ip", "link", "set", bridge, "up")
    for host in made.hosts:
        _output("ip", "netns", "add", host.name)
        pair = ("type", "veth", "peer", "name", "eth0", "netns", host.name)
        _output("ip", "link", "add", host.link, *pair)
        _output("ip", "link", "set", host.link, "master", bridge, "up")
        inside = ("ip", "-n", host.name)
        _output(*inside, "addr", "add", f"{host.address}/24", "dev", "eth0")
        _output(*inside, "link", "set", "eth0", "up")
        _output(*inside, "link", "set", "lo", "up")


def _start_sshd(host: NamespaceHost, folder: Path) -> None:
    sshd = f"{SSHD} -f {folder}/sshd_config -o PidFile={folder}/{host.name}.pid"
    script = f"hostname {host.name}; exec {sshd}"
    _output("ip", "netns", "exec", host.name, "unshare", "--uts", "sh", "-c", script)


def _wait_for_ssh(host: NamespaceHost, made: HostNetwork) -> None:
    ssh = (str(made.bin / "ssh"), "-o", "BatchMode=yes", "-o", "ConnectTimeout=2")
    deadline = time.monotonic() + 10
    while True:
        try:
            _output(*ssh, host.address, "true")
        except MissingRequirementError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _remove(made: HostNetwork) -> None:
    for host in made.hosts:
        with suppress(MissingRequirementError):
            for pid in host.pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with suppress(MissingRequirementError):
            _output("ip", "netns", "del", host.name)
        with suppress(MissingRequirementError):  # else the namespace's last process takes it along
            _output("ip", "link", "del", host.link)
    with suppress(MissingRequirementError):
        _output("ip", "link", "del", made.bridge)
