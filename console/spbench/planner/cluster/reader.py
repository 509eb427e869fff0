"""Plain data as YAML has it to a cluster, with every error at its place; see `cluster_yaml`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from spbench.errors import did_you_mean
from spbench.planner.cluster.machines import Cluster, DeviceKind, Link, Machine
from spbench.planner.cluster.quantities import BYTES, RATES, SECONDS, quantity
from spbench.planner.errors import PlannerError
from spbench.planner.ranges import MAX_DEVICES
from spbench.suites.findings import Findings
from spbench.suites.yaml_nodes import KeyPath

SCHEMA = "spbench.cluster/1"

_KEYS = ("schema", "name", "devices", "links", "machines", "between", "pairs")


@dataclass(slots=True)
class ClusterReader:
    """Reads plain data, and tells every error at its place."""

    findings: Findings
    _devices_so_far: int = field(default=0, init=False)

    def cluster(self, data: Any, name: str) -> Cluster | None:
        """Return the cluster; None where there are errors."""
        findings = self.findings
        if not isinstance(data, dict):
            findings.at_value((), f"a cluster begins with 'schema: {SCHEMA}'")
            return None
        if data.get("schema") != SCHEMA:
            findings.at_value(("schema",), f"the schema must be {SCHEMA}")
        self._known(data, _KEYS, ())
        kinds = self._named(data, "devices", self._kind)
        links = self._named(data, "links", self._link)
        machines = self._machines(data, kinds, links)
        between = self._chosen(data, "between", links, ()) if "between" in data else None
        pairs = self._pairs(data, [machine.name for machine in machines], links)
        given = data.get("name", name)
        if not isinstance(given, str):
            findings.at_value(("name",), "the name must be text")
        if findings.count:
            return None
        made: Cluster | None = self._made(
            (), lambda: Cluster(given, tuple(machines), between, pairs)
        )
        return made

    def _made(self, path: KeyPath, make: Callable[[], Any]) -> Any:
        """Return what is made, None after telling why it cannot be."""
        try:
            return make()
        except PlannerError as error:
            self.findings.at_value(path, str(error))
            return None

    def _known(self, data: Mapping[str, Any], keys: tuple[str, ...], path: KeyPath) -> None:
        for key in data:
            if key not in keys:
                message = f"{key!r} is no key here{did_you_mean(key, keys)}"
                self.findings.at_key((*path, key), message)

    def _named(
        self,
        data: Mapping[str, Any],
        key: str,
        read: Callable[[str, Mapping[str, Any], KeyPath], Any],
    ) -> dict[str, Any]:
        entries = data.get(key, {})
        if not isinstance(entries, dict):
            self.findings.at_value((key,), f"{key} must be a mapping of names")
            return {}
        found = {}
        for name, entry in entries.items():
            path: KeyPath = (key, name)
            if isinstance(entry, dict):
                found[name] = read(name, entry, path)
            else:
                self.findings.at_value(path, f"{name} must be a mapping")
        return found

    def _quantity(
        self, entry: Mapping[str, Any], key: str, units: Mapping[str, Decimal], path: KeyPath
    ) -> float | None:
        if key not in entry:
            return None
        try:
            return quantity(entry[key], units)
        except ValueError as error:
            self.findings.at_value((*path, key), str(error))
            return None

    def _kind(self, name: str, entry: Mapping[str, Any], path: KeyPath) -> Any:
        self._known(entry, ("memory", "speed"), path)
        memory = self._quantity(entry, "memory", BYTES, path)
        speed = self._quantity(entry, "speed", {}, path)
        return self._made(path, lambda: DeviceKind(name, memory, 1.0 if speed is None else speed))

    def _link(self, name: str, entry: Mapping[str, Any], path: KeyPath) -> Any:
        self._known(entry, ("bandwidth", "latency", "overhead", "all_reduce"), path)
        if "bandwidth" not in entry:
            self.findings.at_value(path, f"the link {name} needs a bandwidth")
        bandwidth = self._quantity(entry, "bandwidth", RATES, path)
        latency = self._quantity(entry, "latency", SECONDS, path) or 0.0
        overhead = self._quantity(entry, "overhead", SECONDS, path) or 0.0
        collective = self._quantity(entry, "all_reduce", RATES, path)
        if bandwidth is None:
            return None
        return self._made(path, lambda: Link(name, bandwidth, latency, collective, overhead))

    def _chosen(
        self, entry: Mapping[str, Any], key: str, known: Mapping[str, Any], path: KeyPath
    ) -> Any:
        name = entry[key]
        if not isinstance(name, str) or name not in known:
            near = did_you_mean(str(name), known)
            self.findings.at_value((*path, key), f"no link is called {name!r}{near}")
            return None
        return known[name]

    def _machines(
        self, data: Mapping[str, Any], kinds: Mapping[str, Any], links: Mapping[str, Any]
    ) -> list[Machine]:
        entries = data.get("machines")
        if not isinstance(entries, list) or not entries:
            self.findings.at_value(("machines",), "machines must be a list of at least one machine")
            return []
        machines: list[Machine] = []
        for index, entry in enumerate(entries):
            path: KeyPath = ("machines", index)
            if isinstance(entry, dict):
                machines += self._machine(entry, index, path, kinds, links)
            else:
                self.findings.at_value(path, "a machine is a mapping with devices")
        names = Counter(machine.name for machine in machines)
        for name in sorted(name for name, count in names.items() if count > 1):
            self.findings.at_value(("machines",), f"the machine {name!r} stands twice")
        return machines

    def _machine(
        self,
        entry: Mapping[str, Any],
        index: int,
        path: KeyPath,
        kinds: Mapping[str, Any],
        links: Mapping[str, Any],
    ) -> list[Machine]:
        self._known(entry, ("name", "devices", "link", "count"), path)
        name, count = entry.get("name", f"node{index}"), entry.get("count", 1)
        if not isinstance(name, str):
            self.findings.at_value((*path, "name"), "the name must be text")
        if type(count) is not int or not 1 <= count <= MAX_DEVICES:
            self.findings.at_value(
                (*path, "count"), f"count must be a whole number from 1 to {MAX_DEVICES}"
            )
            count = 1
        link = self._chosen(entry, "link", links, path) if "link" in entry else None
        counts = self._devices(entry, path, kinds)
        self._count_devices(count * sum(counts.values()), path)
        if self.findings.count:
            return []
        devices = tuple(kinds[kind] for kind, many in counts.items() for _ in range(many))
        names = [f"{name}-{at}" for at in range(count)] if "count" in entry else [name]
        made = self._made(path, lambda: [Machine(each, devices, link) for each in names])
        return made or []

    def _devices(
        self, entry: Mapping[str, Any], path: KeyPath, kinds: Mapping[str, Any]
    ) -> dict[str, int]:
        """Return how many devices of which kind a machine has."""
        path = (*path, "devices")
        counts = entry.get("devices")
        if not isinstance(counts, dict) or not counts:
            self.findings.at_value(path, "devices must be a mapping of kinds to counts: {v100: 8}")
            return {}
        found: dict[str, int] = {}
        for kind, count in counts.items():
            if kind not in kinds:
                near = did_you_mean(kind, kinds)
                self.findings.at_key((*path, kind), f"no device is called {kind!r}{near}")
            elif type(count) is not int or not 1 <= count <= MAX_DEVICES:
                message = f"the number of devices must be a whole number from 1 to {MAX_DEVICES}"
                self.findings.at_value((*path, kind), message)
            else:
                found[kind] = count
        return found

    def _count_devices(self, count: int, path: KeyPath) -> None:
        """Count devices before they are made; tell once where they become too many."""
        before = self._devices_so_far
        self._devices_so_far += count
        if before <= MAX_DEVICES < self._devices_so_far:
            message = f"the machines up to here have {self._devices_so_far} devices"
            self.findings.at_value(path, f"{message}; give a cluster at most {MAX_DEVICES}")

    def _pairs(
        self, data: Mapping[str, Any], names: list[str], links: Mapping[str, Any]
    ) -> dict[tuple[int, int], Link]:
        entries = data.get("pairs", [])
        if not isinstance(entries, list):
            self.findings.at_value(("pairs",), "pairs must be a list")
            return {}
        found: dict[tuple[int, int], Link] = {}
        for index, entry in enumerate(entries):
            path: KeyPath = ("pairs", index)
            pair = self._pair(entry, names, path)
            if pair is None:
                continue
            if pair in found:
                self.findings.at_value(path, "these machines have a link of their own above")
            if "link" in entry:
                found[pair] = self._chosen(entry, "link", links, path)
            else:
                self.findings.at_value(path, "the pair needs a link")
        return found

    def _pair(self, entry: Any, names: list[str], path: KeyPath) -> tuple[int, int] | None:
        ends = entry.get("machines") if isinstance(entry, dict) else None
        if not isinstance(ends, list) or len(ends) != 2 or ends[0] == ends[1]:
            self.findings.at_value(path, "a pair is {machines: [a, b], link: name} of two machines")
            return None
        self._known(entry, ("machines", "link"), path)
        for at, end in enumerate(ends):
            if end not in names and names:
                message = f"no machine is called {end!r}{did_you_mean(str(end), names)}"
                self.findings.at_value((*path, "machines", at), message)
        if not all(end in names for end in ends):
            return None
        a, b = sorted(names.index(end) for end in ends)
        return a, b
