"""The hosts, the launcher and the way back to the console that a user chooses for a run."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LaunchChoice:
    """Options of a launch, named as on the command line; None: the suite says.

    Where neither names hosts, ranks run on this machine. ``assume`` names an MPI library that need
    not be here: its launch lines are shown, and cannot be run. ``oversubscribe`` allows more ranks
    and memory than this machine has.
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
    def title(self) -> str:
        """The chosen hosts and launcher in a few words; empty where none were chosen."""
        hosts = self.hostfile.name if self.hostfile is not None else self.hosts
        told = (("hosts", hosts), ("launcher", self.launcher), ("assumed", self.assume))
        return "  ".join(f"{what}: {name}" for what, name in told if name)

    def with_hosts_of(self, other: LaunchChoice) -> LaunchChoice:
        """Return this choice with the hosts of another."""
        return replace(
            self,
            hostfile=other.hostfile,
            hosts=other.hosts,
            exclude_hosts=other.exclude_hosts,
        )

    def words(self) -> list[str]:
        """Return the words of a command line that make this choice."""
        given = (
            (field.name.replace("_", "-"), getattr(self, field.name)) for field in fields(self)
        )
        words: list[str] = []
        for name, value in given:
            if value is True:
                words.append(f"--{name}")
            elif value not in (None, False):
                words += [f"--{name}", str(value)]
        return words


NOTHING_CHOSEN = LaunchChoice()
