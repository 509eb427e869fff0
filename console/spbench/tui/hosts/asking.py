"""The survey of hosts over ssh: those that are being asked, and the facts that they gave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import cast

from spbench.launch.doctor import examine_machine
from spbench.launch.finding import Finding
from spbench.launch.survey.facts import HostFacts
from spbench.launch.survey.survey import survey_hosts
from spbench.suites.settings import LaunchSettings

_RANKS = 1
"""Ranks that doctor looks for room for: nobody has said yet how many there will be."""


class HostSurvey:
    """Facts of hosts by name, and the names of those that are being asked.

    Args:
        env: The environment of ssh, and of the question to this machine.

    Attributes:
        machine: What doctor has found on this machine.
        version: Grows with everything that becomes known.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.facts: dict[str, HostFacts] = {}
        self.pending: set[str] = set()
        self.machine_findings: list[Finding] = []
        self.version = 0

    async def ask(self, hosts: Iterable[str]) -> None:
        """Ask hosts, except those that are being asked; when this is cancelled they all are."""
        mine = {host: None for host in hosts if host not in self.pending}
        self.pending.update(mine)
        self.version += 1
        answers = survey_hosts(mine, LaunchSettings(), self._env)
        try:
            async with aclosing(cast("AsyncGenerator[HostFacts, None]", answers)):
                async for facts in answers:
                    self.facts[facts.host] = facts
                    self.pending.discard(facts.host)
                    self.version += 1
        finally:
            self.pending.difference_update(mine)
            self.version += 1

    async def examine_machine(self, host: str) -> None:
        """Ask this machine, which takes no ssh, and look for its launchers."""
        found, _ = await asyncio.gather(
            asyncio.to_thread(examine_machine, None, _RANKS, self._env), self.ask([host])
        )
        self.machine_findings = found
        self.version += 1
