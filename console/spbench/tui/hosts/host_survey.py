"""The survey of hosts over ssh: pending hosts, and the facts about the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

from spbench.launch.doctor import examine_machine
from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.hosts.names import is_local
from spbench.launch.survey.facts import HostFacts
from spbench.launch.survey.survey import survey_hosts
from spbench.suites.settings import LaunchSettings

_RANKS = 1
"""Number of ranks that doctor checks this machine for; the real number is unknown."""
_LOAD_SUBJECTS = ("load", "other runs")
"""The subjects of the findings that each reading of the load replaces."""


def read_clock() -> str:
    """Return the clock time in UTC."""
    return f"{datetime.now(UTC):%H:%M:%S} UTC"


class HostSurvey:
    """Facts about hosts, and the hosts that have not answered.

    Args:
        env: The environment of ssh and of the survey of this machine.

    Attributes:
        facts: Facts by host name.
        answer_times: The times of the facts by host name, as clock times in UTC.
        pending: The names of hosts that have been queried but have not answered.
        machine_findings: The findings of doctor on this machine.
        version: Grows with every change.

    The load of this machine is that of its last reading in all places, since an answer or doctor
    cannot know which runs are the console's own.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.facts: dict[str, HostFacts] = {}
        self.answer_times: dict[str, str] = {}
        self.pending: set[str] = set()
        self.machine_findings: list[Finding] = []
        self.version = 0
        self._load: float | None = None
        self._load_findings: Sequence[Finding] = ()
        self._has_read_load = asyncio.Event()

    async def query_hosts(self, hosts: Iterable[str]) -> None:
        """Query hosts that are not pending; a cancellation cancels all queries."""
        queried = {host: None for host in hosts if host not in self.pending}
        self.pending.update(queried)
        self.version += 1
        answers = survey_hosts(queried, LaunchSettings(), self._env)
        try:
            async with aclosing(cast("AsyncGenerator[HostFacts, None]", answers)):
                async for facts in answers:
                    self.facts[facts.host] = self._replace_load(facts)
                    self.answer_times[facts.host] = read_clock()
                    self.pending.discard(facts.host)
                    self.version += 1
        finally:
            self.pending.difference_update(queried)
            self.version += 1

    def update_load(self, load: float | None, findings: Sequence[Finding]) -> None:
        """Use a new reading of the load of this machine.

        Args:
            load: The mean load of the last minute; None if unknown.
            findings: The load and other runs of spbench.
        """
        self._load = load
        self._load_findings = findings
        self._has_read_load.set()
        self.facts.update({host: self._replace_load(facts) for host, facts in self.facts.items()})
        if self.machine_findings:
            self.machine_findings = self._replace_load_findings(self.machine_findings)
        self.version += 1

    def _replace_load(self, facts: HostFacts) -> HostFacts:
        """Return the facts with the last reading of the load if the host is this machine."""
        if self._load is None or facts.load is None or not is_local(facts.host):
            return facts
        lasting = (finding for finding in facts.findings if finding.subject != "load")
        busy = (
            finding
            for finding in self._load_findings
            if finding.subject == "load" and finding.status == FindingStatus.NOTE
        )
        findings = (*lasting, *busy)
        missing = (f for f in findings if f.status == FindingStatus.MISSING)
        worst = next(missing, next(iter(findings), None))
        return replace(
            facts,
            load=self._load,
            findings=findings,
            status=worst.status if worst else FindingStatus.OK,
            reason=worst.title if worst else "",
        )

    def _replace_load_findings(self, findings: Sequence[Finding]) -> list[Finding]:
        lasting = (f for f in findings if f.subject not in _LOAD_SUBJECTS)
        return [*lasting, *self._load_findings]

    async def examine_machine(self, host: str) -> None:
        """Query this machine, which needs no ssh, and check its launchers."""
        await self._has_read_load.wait()
        findings, _ = await asyncio.gather(
            asyncio.to_thread(examine_machine, None, _RANKS, self._env), self.query_hosts([host])
        )
        self.machine_findings = self._replace_load_findings(findings)
        self.version += 1
