"""Findings on one host with their remedies, and the differences between hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spbench.launch.finding import Finding
from spbench.launch.survey.differences import find_differences
from spbench.launch.survey.facts import HostFacts
from spbench.tui.hosts.host_rows import finding_span


class FindingsPane(VerticalScroll, can_focus=True):
    """Findings in lines, each with its remedy."""

    HELP = """\
What was found on the host under the cursor: ✓ there, ! a note, ✗ missing; a line that begins with
→ is how to fix it. Below: in what the hosts of this source differ."""
    DEFAULT_CSS = """
    FindingsPane { scrollbar-size-vertical: 1; }
    FindingsPane Static { height: auto; }
    """

    def __init__(self) -> None:
        super().__init__(classes="pane", id="findings")
        self.border_title = "Findings"

    def compose(self) -> ComposeResult:
        yield Static("")

    def show(
        self,
        host: str | None,
        facts: HostFacts | None,
        machine: Sequence[Finding],
        others: Iterable[HostFacts],
    ) -> None:
        """Show what is known.

        Args:
            host: The host under the cursor.
            facts: What it has said.
            machine: What the doctor found here, where the host is this machine.
            others: All hosts that were asked, for what they differ in.
        """
        self.border_title = Content(f"Findings of {host}" if host else "Findings")
        lines = [*_of_host(facts, machine), *_different(others)]
        self.query_one(Static).update(Content("\n").join(lines or [Content(_nothing(host, facts))]))


def _nothing(host: str | None, facts: HostFacts | None) -> str:
    if host is None:
        return "no host is chosen"
    return "not asked yet: d asks all hosts, enter this one" if facts is None else "nothing amiss"


def _of_host(facts: HostFacts | None, machine: Sequence[Finding]) -> Iterator[Content]:
    told = dict.fromkeys((*(facts.findings if facts else ()), *machine))
    for finding in told:
        yield from _lines(finding)


def _different(others: Iterable[HostFacts]) -> Iterator[Content]:
    found = find_differences(others)
    if found:
        yield Content.styled("The hosts differ", "bold underline")
    for finding in found:
        yield from _lines(finding)


def _lines(finding: Finding) -> Iterator[Content]:
    told = f" {finding.subject}: {finding.text}"
    yield Content.assemble(finding_span(finding.status), told)
    if finding.mend:
        yield Content.styled(f"  → {finding.mend}", "italic")
