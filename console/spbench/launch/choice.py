"""The user's choice of hosts, launcher and console address for a run."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LaunchChoice:
    """Options of a launch; each has the name of its option on the command line.

    An option that is None leaves the choice to the suite. If the suite names no hosts either, ranks
    run on this machine.

    Attributes:
        hostfile: The file with the hosts.
        hosts: The hosts, such as ``node[01-08]:4,other``.
        exclude_hosts: Hosts to leave out of those of the suite or of these options.
        launcher: The name of the launcher.
        console_address: The address at which ranks reach the console.
        port_range: The ports on which the console may listen.
        assume: An MPI library that need not be installed. Its launch lines are shown but cannot
            be run.
        oversubscribe: Whether a run may have more ranks and memory than this machine.
    """

    hostfile: Path | None = None
    hosts: str | None = None
    exclude_hosts: str | None = None
    launcher: str | None = None
    console_address: str | None = None
    port_range: str | None = None
    assume: str | None = None
    oversubscribe: bool | None = None

    @property
    def hosts_title(self) -> str:
        """The chosen hosts in short; empty without a choice."""
        return self.hostfile.name if self.hostfile is not None else self.hosts or ""

    @property
    def title(self) -> str:
        """Launcher and hosts in short, such as ``openmpi on node[01-02]``."""
        launcher = self.launcher or self.assume or ""
        assumed = "(assumed)" if self.assume else ""
        hosts = f"on {self.hosts_title}" if self.hosts_title else ""
        return " ".join(filter(None, (launcher, assumed, hosts)))

    def replace_hosts(self, other: LaunchChoice) -> LaunchChoice:
        """Return this choice with the hosts of another."""
        return replace(
            self,
            hostfile=other.hostfile,
            hosts=other.hosts,
            exclude_hosts=other.exclude_hosts,
        )

    def to_args(self) -> list[str]:
        """Return command-line arguments that make this choice."""
        args: list[str] = []
        for option in fields(self):
            option_flag = f"--{option.name.replace('_', '-')}"
            setting = getattr(self, option.name)
            if setting is True:
                args.append(option_flag)
            elif setting not in (None, False):
                args += [option_flag, str(setting)]
        return args


DEFAULT_CHOICE = LaunchChoice()
