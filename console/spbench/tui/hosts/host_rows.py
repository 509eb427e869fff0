"""The hosts of one source as rows of a table, with the facts about each."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from spbench.launch.finding import FindingStatus
from spbench.launch.hosts.hosts import Hosts
from spbench.launch.survey.facts import HostFacts
from spbench.record.number_formatting import format_number
from spbench.tui.widgets.table_columns import Column, TableCell

COLUMNS = (
    Column("host", "host", 12, flexible=True),
    Column("slots", "slots", 5, "right", drop_priority=4),
    Column("status", "status", 13),
    Column("cores", "cores", 5, "right", drop_priority=1),
    Column("memory", "memory", 9, "right", drop_priority=2),
    Column("load", "load 1 min", 10, "right", drop_priority=3),
    Column("devices", "devices", 12, drop_priority=6),
    Column("mpi", "MPI", 18, drop_priority=7),
    Column("mpi4py", "mpi4py", 7, drop_priority=10),
    Column("torch", "torch", 12, drop_priority=8),
    Column("python", "Python", 7, drop_priority=11),
    Column("adapters", "adapters", 24, drop_priority=9),
    Column("note", "note", 40, drop_priority=5, flexible=True),
)
_SIGNS: Mapping[str, str] = {
    FindingStatus.OK: "✓",
    FindingStatus.NOTE: "!",
    FindingStatus.MISSING: "✗",
    FindingStatus.UNREACHABLE: "✗",
}
_STYLES: Mapping[str, str] = {
    FindingStatus.OK: "passed",
    FindingStatus.NOTE: "slow",
    FindingStatus.MISSING: "failed",
    FindingStatus.UNREACHABLE: "failed",
}
_COLOURS: Mapping[str, str] = {
    FindingStatus.OK: "$text-success",
    FindingStatus.NOTE: "$text-warning",
    FindingStatus.MISSING: "bold $text-error",
}
ASKING = "asking"
NOT_ASKED = "not asked"
WORST_FIRST = (
    FindingStatus.UNREACHABLE,
    FindingStatus.MISSING,
    FindingStatus.NOTE,
    ASKING,
    NOT_ASKED,
    FindingStatus.OK,
)


class HostRows:
    """Rows of hosts in the order in which ranks fill them.

    Args:
        facts: Facts by host name; grows while hosts answer.
        pending: The hosts that have been queried but have not answered.
    """

    def __init__(self, facts: Mapping[str, HostFacts], pending: set[str]) -> None:
        self._facts = facts
        self._pending = pending
        self._slots: dict[str, int | None] = {}

    def show(self, hosts: Hosts | None) -> None:
        """Show the hosts of another source."""
        self._slots = {}
        for host in hosts.entries if hosts else ():
            slots = self._slots.get(host.name)
            counts = [count for count in (slots, host.slots) if count is not None]
            self._slots[host.name] = sum(counts) if counts else None

    def status(self, host: str) -> str:
        """Return the status of a host, or the status of its query."""
        if host in self._pending:
            return ASKING
        return self._facts[host].status if host in self._facts else NOT_ASKED

    def keys(self) -> Sequence[Hashable]:
        """Return the names of the hosts."""
        return list(self._slots)

    def version(self, key: Hashable) -> Hashable:
        """Return values that change with the cells of a host."""
        return self.status(str(key)), id(self._facts.get(str(key)))

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a host."""
        host = str(key)
        slots = self._slots[host]
        head = (host, "" if slots is None else str(slots), make_host_status_cell(self.status(host)))
        facts = self._facts.get(host)
        if facts is None:
            return (*head, *[""] * (len(COLUMNS) - len(head)))
        return (
            *head,
            "" if facts.cores is None else str(facts.cores),
            "" if facts.memory_gib is None else f"{format_number(facts.memory_gib)} GiB",
            "" if facts.load is None else format_number(facts.load),
            "" if facts.cores is None else facts.devices,
            *(value or "" for value in (facts.mpi, facts.mpi4py, facts.torch, facts.python)),
            facts.links,
            # The findings below show all of it.
            TableCell(facts.reason.partition(", ")[0], "muted"),
        )

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a host; the worst status sorts first."""
        host = str(key)
        if column in ("host", "slots", "status"):
            severity_order = WORST_FIRST.index(self.status(host))
            return {"host": host, "slots": self._slots[host], "status": severity_order}[column]
        facts = self._facts.get(host)
        if facts is None:
            return None
        name = {"memory": "memory_gib", "adapters": "links", "note": "reason"}.get(column, column)
        return getattr(facts, name)

    def search_text(self, key: Hashable) -> str:
        """Return the text that a filter searches."""
        cells = (cell.text if isinstance(cell, TableCell) else cell for cell in self.cells(key))
        return " ".join(cells).lower()


def make_host_status_cell(status: str) -> TableCell:
    """Return the status of a host with sign and colour."""
    sign = {ASKING: "…", NOT_ASKED: "·"}.get(status) or _SIGNS[status]
    return TableCell(
        f"{sign} {status}", _STYLES.get(status, "running" if status == ASKING else "muted")
    )


def make_finding_span(status: str) -> tuple[str, str]:
    """Return the status of a finding with its sign, and its colour."""
    return f"{_SIGNS[status]} {status}", _COLOURS[status]
