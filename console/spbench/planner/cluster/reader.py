"""Cluster files as pydantic models, ``spbench.cluster/1``; see `yaml_file`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from spbench.planner.cluster.machines import Cluster, DeviceKind, Link, Machine
from spbench.planner.cluster.quantities import BYTES, RATES, SECONDS, Quantity
from spbench.planner.ranges import BANDWIDTHS, DELAYS_S, MAX_DEVICES, MEMORIES, SPEEDS
from spbench.planner.references import (
    ValidationContext,
    check_reference,
    check_unique,
    get_context,
    make_validation_error,
)
from spbench.suites.settings import StrictModel
from spbench.suites.yaml_nodes import KeyPath

Bandwidth = Annotated[float, Quantity(RATES, BANDWIDTHS)]
Delay = Annotated[float, Quantity(SECONDS, DELAYS_S)]
Count = Annotated[int, Field(ge=1, le=MAX_DEVICES)]
LinkName = Annotated[str, check_reference("link")]


class DeviceEntry(StrictModel):
    """A kind of device, an entry of ``devices:``."""

    memory: Annotated[float, Quantity(BYTES, MEMORIES)] = Field(
        default_factory=float, description="bytes; without it nothing is too large"
    )
    speed: Annotated[float, Quantity({}, SPEEDS)] = Field(
        default=1.0, description="times as fast as the device of the profile"
    )


class LinkEntry(StrictModel):
    """A kind of link, an entry of ``links:``."""

    bandwidth: Bandwidth = Field(description="bytes a second from one device to another")
    latency: Delay = Field(default=0.0, description="seconds until the first byte is there")
    overhead: Delay = Field(
        default=0.0, description="seconds for which a message keeps each device from computing"
    )
    copy_bandwidth: Bandwidth = Field(
        default_factory=float,
        description="bytes a second at which each device copies its messages, in place of "
        "computing; none if left out",
    )
    all_reduce: Bandwidth = Field(
        default_factory=float, description="bytes a second and device; bandwidth if left out"
    )


class MachineEntry(StrictModel):
    """One machine, or ``count`` equal ones, an entry of ``machines:``."""

    name: str = Field(default_factory=str, description="node and its index if left out")
    devices: dict[Annotated[str, check_reference("device")], Count] = Field(
        min_length=1, description="how many devices of which kind", examples=[{"v100": 8}]
    )
    link: LinkName = Field(default_factory=str, description="joins any two of its devices")
    count: Count = Field(default_factory=int, description="makes machines NAME-0, NAME-1, ...")

    @property
    def size(self) -> int:
        """Devices of each machine."""
        return sum(self.devices.values())

    def names(self, index: int) -> list[str]:
        """Return the names of its machines, where it is the entry of this index."""
        name = self.name if "name" in self.model_fields_set else f"node{index}"
        return [f"{name}-{at}" for at in range(self.count)] if self.count else [name]


def _within_limit(entry: MachineEntry, info: ValidationInfo) -> MachineEntry:
    """Count devices before they are made; tell once where they become too many."""
    before = get_context(info).device_count
    now = get_context(info).device_count = before + (entry.count or 1) * entry.size
    if before <= MAX_DEVICES < now:
        told = f"the machines up to here have {now} devices"
        raise ValueError(f"{told}; give a cluster at most {MAX_DEVICES}")
    return entry


def _named_once(entries: list[MachineEntry], info: ValidationInfo) -> list[MachineEntry]:
    known: set[str] = set()
    found: list[tuple[KeyPath, str]] = []
    for index, entry in enumerate(entries):
        names = entry.names(index)
        twice = known.intersection(names)
        found += [((index,), f"duplicate machine {name!r}") for name in sorted(twice)]
        if entry.size > 1 and "link" not in entry.model_fields_set:
            told = f"the machine {names[0]} has several devices and no link for them"
            found.append(((index,), told))
        known.update(names)
    get_context(info).names["machine"] = known
    if found:
        raise make_validation_error(found)
    return entries


def _check_machine_pair(names: Any) -> Any:
    if not isinstance(names, list) or len(names) != 2 or names[0] == names[1]:
        raise ValueError("a pair is {machines: [a, b], link: name} of two machines")
    return names


class PairEntry(StrictModel):
    """Two machines with a link of their own, an entry of ``pairs:``."""

    machines: Annotated[
        list[Annotated[str, check_reference("machine")]],
        Field(min_length=2, max_length=2),
        BeforeValidator(_check_machine_pair),
        check_unique(frozenset, "these machines have a link of their own above"),
    ]
    link: LinkName


class ClusterFile(StrictModel):
    """A whole cluster file."""

    schema_: Literal["spbench.cluster/1"] = Field(alias="schema", description="the format")
    name: str = Field(default_factory=str, description="the file's name if left out")
    devices: dict[str, DeviceEntry] = Field(default={}, description="kinds of devices")
    links: dict[str, LinkEntry] = Field(default={}, description="kinds of links")
    machines: Annotated[
        list[Annotated[MachineEntry, AfterValidator(_within_limit)]], AfterValidator(_named_once)
    ] = Field(min_length=1, description="the machines, in the order of their devices' numbers")
    between: LinkName = Field(default_factory=str, description="joins any two machines")
    pairs: list[PairEntry] = Field(default=[], description="machines with a link of their own")

    @classmethod
    def read(cls, data: object) -> ClusterFile:
        """Return the model of a file's data.

        Raises:
            ValidationError: There are errors; it holds them all.
        """
        parts = data if isinstance(data, dict) else {}
        given = {"device": parts.get("devices", {}), "link": parts.get("links", {})}
        known = {what: set(found) for what, found in given.items() if isinstance(found, dict)}
        return cls.model_validate(data, context=ValidationContext(known))

    def cluster(self, name: str) -> Cluster:
        """Return the cluster; ``name`` stands for one that the file does not give.

        Raises:
            PlannerError: Two machines have no link.
        """
        kinds = {
            key: DeviceKind(key, each.memory or None, each.speed)
            for key, each in self.devices.items()
        }
        links = {
            key: Link(
                key,
                each.bandwidth,
                each.latency,
                each.all_reduce or None,
                each.overhead,
                each.copy_bandwidth or None,
            )
            for key, each in self.links.items()
        }
        machines = []
        for index, entry in enumerate(self.machines):
            devices = tuple(kinds[kind] for kind, n in entry.devices.items() for _ in range(n))
            link = links[entry.link] if "link" in entry.model_fields_set else None
            machines += [Machine(each, devices, link) for each in entry.names(index)]
        places = {machine.name: index for index, machine in enumerate(machines)}
        pairs = {}
        for pair in self.pairs:
            a, b = sorted(places[end] for end in pair.machines)
            pairs[a, b] = links[pair.link]
        given = self.model_fields_set
        between = links[self.between] if "between" in given else None
        return Cluster(self.name if "name" in given else name, tuple(machines), between, pairs)
