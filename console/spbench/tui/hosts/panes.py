"""The hosts of the source under the cursor, with a filter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from spbench.launch.doctor import NOT_NEEDED
from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.survey.differences import find_differences
from spbench.launch.survey.facts import HostFacts
from spbench.tui.advice import name_keys
from spbench.tui.hosts.host_rows import COLUMNS, WORST_FIRST, HostRows, make_finding_span
from spbench.tui.hosts.layout import NotedPane
from spbench.tui.hosts.sources import HostSource
from spbench.tui.panes import FilterPane, make_leave_filter_binding
from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.text import TextBlock


class HostTable(LineTable):
    """The table of hosts; enter asks one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding(
            "hosts.ask",
            "enter",
            "choose",
            "Examine one",
            "Ask the host under the cursor",
            show=True,
        )
    ]


class HostsPane(FilterPane):
    """The table of the hosts of a source, with a filter.

    Args:
        facts: Facts by host name; grows while hosts answer.
        pending: The hosts that have been queried but have not answered.
    """

    HELP = """\
The hosts in the order in which ranks fill them, with the state of each: ✓ ok, ! a note, ✗ missing
parts or unreachable, · not asked yet. load is the mean number of busy cores of the last minute. r
asks all hosts over ssh, Enter asks the one under the cursor, and Escape stops asking. The findings
are below, with their remedies."""
    BINDINGS: ClassVar[list[BindingType]] = [make_leave_filter_binding("hosts", "hosts")]
    DEFAULT_CSS = """
    HostsPane #source-error { height: 1fr; color: $text-error; display: none; }
    """

    def __init__(self, facts: Mapping[str, HostFacts], pending: set[str]) -> None:
        super().__init__("Hosts")
        self._rows = HostRows(facts, pending)

    def compose(self) -> ComposeResult:
        yield Input(placeholder="words that a host's row must have", id="filter", compact=True)
        yield Static("", id="source-error", markup=False)
        yield HostTable(COLUMNS, self._rows, id="hosts", empty="no hosts")

    @property
    def host(self) -> str | None:
        """The host under the cursor."""
        key = self.table.cursor_key
        return None if key is None else str(key)

    def show_source(self, source: HostSource) -> None:
        """Show the hosts of a source, or its error."""
        self._rows.show(source.hosts)
        self.border_title = Content(f"Hosts of {source.title}")
        error = self.query_one("#source-error", Static)
        error.update(source.error)
        error.display = bool(source.error)
        self.table.display = not source.error
        self.table.set_rows(self._rows)

    def show_progress(self, text: str) -> None:
        """Show the progress of the survey, and the answers of hosts."""
        self.border_subtitle = Content(text)
        self.table.update_rows()


class FindingsPane(VerticalScroll, NotedPane, can_focus=True):
    """The findings on a host with their remedies, and the differences between hosts."""

    HELP = """\
The findings on the host under the cursor: ✓ present, ! a note, ✗ missing. A line that begins with
→ is the remedy. The limit of the load is half the number of cores: above it, other work makes
measured times longer. The differences between the hosts of this source are below."""
    DEFAULT_CSS = """
    FindingsPane { scrollbar-size-vertical: 1; }
    FindingsPane Static { height: auto; }
    """

    def __init__(self) -> None:
        super().__init__(classes="pane", id="findings")
        self.set_title("Findings")

    def compose(self) -> ComposeResult:
        yield TextBlock("")

    @property
    def needed_lines(self) -> int:
        """The lines of the pane with all its text, and with its frame."""
        return max(1, self.query_one(TextBlock).size.height) + self.gutter.height

    def show(
        self,
        host: str | None,
        facts: HostFacts | None,
        machine_findings: Sequence[Finding],
        queried_facts: Iterable[HostFacts],
        answered_at: str,
    ) -> None:
        """Show the findings on a host.

        Args:
            host: The host under the cursor.
            facts: The facts about it; None if it was not queried.
            machine_findings: The findings of doctor if the host is this machine.
            queried_facts: The facts about all queried hosts of the source, to find differences.
            answered_at: The time of the facts about the host; empty if it was not queried.
        """
        self.set_title(f"Findings of {host}" if host else "Findings")
        asked_text = f"asked at {answered_at}" if answered_at else ""
        if asked_text and machine_findings:
            asked_text += ", load: now"  # of this machine, read every few seconds
        self.border_subtitle = Content(asked_text)
        lines = [*_render_findings(facts, machine_findings), *_render_differences(queried_facts)]
        if not lines:
            lines = [Content(_explain_empty(host, facts))]
        self.query_one(TextBlock).show(Content("\n").join(lines))


def _explain_empty(host: str | None, facts: HostFacts | None) -> str:
    if host is None:
        return "no host is chosen"
    return (
        "not asked yet: r asks all hosts, Enter asks this one" if facts is None else "no findings"
    )


def _render_findings(
    facts: HostFacts | None, machine_findings: Sequence[Finding]
) -> Iterator[Content]:
    """Yield findings, the worst first; on this machine, remedies are for it."""
    host_findings = facts.findings if facts else ()
    finding_by_key = {
        (finding.subject, finding.text): finding for finding in (*host_findings, *machine_findings)
    }
    findings = _merge_launchers(finding_by_key.values())
    for finding in sorted(findings, key=lambda finding: WORST_FIRST.index(finding.status)):
        yield from _render_finding(finding)


def _merge_launchers(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings with one for all launchers that are not needed."""
    unneeded = []
    for finding in findings:
        if finding.text.startswith(NOT_NEEDED):
            unneeded.append(finding.subject)
        else:
            yield finding
    if unneeded:
        yield Finding(FindingStatus.OK, ", ".join(unneeded), NOT_NEEDED)


def _render_differences(queried_facts: Iterable[HostFacts]) -> Iterator[Content]:
    findings = find_differences(queried_facts)
    if findings:
        yield Content.styled("The hosts differ", "bold underline")
    for finding in findings:
        yield from _render_finding(finding)


def _render_finding(finding: Finding) -> Iterator[Content]:
    yield Content.assemble(make_finding_span(finding.status), f" {finding.title}")
    if finding.remedy:
        yield Content.styled(f"  → {name_keys(finding.remedy)}", "italic")
