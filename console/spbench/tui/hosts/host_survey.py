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
from spbench.launch.survey.facts import HostFacts
from spbench.launch.survey.survey import survey_hosts
from spbench.suites.settings import LaunchSettings

_RANKS = 1
"""Number of ranks that doctor checks this machine for; the real number is unknown."""


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
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.facts: dict[str, HostFacts] = {}
        self.answer_times: dict[str, str] = {}
        self.pending: set[str] = set()
        self.machine_findings: list[Finding] = []
        self.version = 0

    async def query_hosts(self, hosts: Iterable[str]) -> None:
        """Query hosts that are not pending; a cancellation cancels all queries."""
        queried = {host: None for host in hosts if host not in self.pending}
        self.pending.update(queried)
        self.version += 1
        answers = survey_hosts(queried, LaunchSettings(), self._env)
        try:
            async with aclosing(cast("AsyncGenerator[HostFacts, None]", answers)):
                async for facts in answers:
                    self.facts[facts.host] = facts
                    self.answer_times[facts.host] = read_clock()
                    self.pending.discard(facts.host)
                    self.version += 1
        finally:
            self.pending.difference_update(queried)
            self.version += 1

    def update_load(self, host: str, load: float | None, findings: Sequence[Finding]) -> None:
        """Replace the load of this machine, and the findings on it, by a new reading.

        Args:
            host: The name of this machine.
            load: The mean load of the last minute; None if unknown.
            findings: The load and other runs of spbench.
        """
        facts = self.facts.get(host)
        if facts is None or facts.load is None or load is None or host in self.pending:
            return
        lasting = tuple(finding for finding in facts.findings if finding.subject != "load")
        busy = tuple(
            finding
            for finding in findings
            if finding.subject == "load" and finding.status == FindingStatus.NOTE
        )
        all_findings = (*lasting, *busy)
        missing = (f for f in all_findings if f.status == FindingStatus.MISSING)
        worst = next(missing, next(iter(all_findings), None))
        self.facts[host] = replace(
            facts,
            load=load,
            findings=all_findings,
            status=worst.status if worst else FindingStatus.OK,
            reason=worst.title if worst else "",
        )
        self.machine_findings = [
            *(f for f in self.machine_findings if f.subject not in ("load", "other runs")),
            *findings,
        ]
        self.version += 1

    async def examine_machine(self, host: str) -> None:
        """Query this machine, which needs no ssh, and check its launchers."""
        findings, _ = await asyncio.gather(
            asyncio.to_thread(examine_machine, None, _RANKS, self._env), self.query_hosts([host])
        )
        self.machine_findings = findings
        self.version += 1
