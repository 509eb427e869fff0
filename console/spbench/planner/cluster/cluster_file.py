"""Cluster files, ``spbench.cluster/1``, in YAML.

::

    schema: spbench.cluster/1
    name: two-racks                     # the file's name if left out
    devices:                            # kinds of devices
      v100: {memory: 16GB, speed: 1.0}  # speed relative to the profile's device; default: 1
    links:
      nvlink: {bandwidth: 25GB/s, latency: 5us}           # default latency: 0
      ethernet: {bandwidth: 1GB/s, all_reduce: 3GB/s}     # default all_reduce: bandwidth
      sockets: {bandwidth: 1GB/s, overhead: 80us}         # per message and device; default: 0
      memory: {bandwidth: 9GB/s, copy_bandwidth: 4GB/s}   # copies by each device; default: none
    machines:
      - {name: rack0, devices: {v100: 8}, link: nvlink, count: 2}   # rack0-0 and rack0-1
      - {name: big, devices: {v100: 4, a100: 4}, link: nvlink}
    between: ethernet                   # joins any two machines
    pairs:                              # pairs of machines with a different link
      - {machines: [rack0-0, big], link: nvlink}

Bare numbers are bytes, bytes per second, or seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, Overflow
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import core_schema

from spbench.errors import Diagnostic
from spbench.planner.cluster.machines import Cluster, DeviceKind, Link, Machine
from spbench.planner.errors import ClusterError, PlannerError
from spbench.planner.profile.files import read_text
from spbench.planner.ranges import BANDWIDTHS, DELAYS_S, MAX_DEVICES, MEMORIES, SPEEDS, Range
from spbench.planner.references import (
    ValidationContext,
    get_context,
    make_reference_validator,
    make_unique_validator,
    make_validation_error,
)
from spbench.suites.file_errors import FileErrors
from spbench.suites.settings import StrictModel
from spbench.suites.validation_messages import report_errors
from spbench.suites.yaml_nodes import KeyPath, YamlError, parse_yaml

MAX_BYTES = 4 << 20
"""The largest cluster file."""

_DECIMAL = {"": "1", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12"}
_BINARY = {f"{prefix}i": 1024**power for power, prefix in enumerate("KMGT", 1)}
BYTES = {f"{prefix}B": Decimal(factor) for prefix, factor in (_DECIMAL | _BINARY).items()}
RATES = {f"{unit}/s": factor for unit, factor in BYTES.items()} | {
    f"{prefix}bit/s": Decimal(factor) / 8 for prefix, factor in _DECIMAL.items()
}
SECONDS = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9")}

_NUMBER = r"[0-9.]+(?:[eE][-+]?[0-9]+)?"
_WITH_UNIT = re.compile(rf"({_NUMBER})\s*([A-Za-z/]+)")


@dataclass(frozen=True)
class Quantity:
    """The annotation of a pydantic field that is a quantity in a range."""

    units: Mapping[str, Decimal]
    allowed: Range

    def read(self, value: object, info: ValidationInfo) -> float:
        """Return the quantity.

        Raises:
            ValueError: The value is not a quantity, or out of range.
        """
        number = parse_quantity(value, self.units)
        if not self.allowed.contains(number):
            raise ValueError(f"{info.field_name} must be {self.allowed}, not {value!r}")
        return number

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.with_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(self, *_: Any) -> dict[str, Any]:
        number = self.allowed.json_schema()
        units = "|".join(self.units)
        with_unit = {"type": "string", "pattern": rf"^\s*{_NUMBER}\s*({units})\s*$"}
        return {"anyOf": [number, with_unit]} if units else number


def parse_quantity(value: object, units: Mapping[str, Decimal]) -> float:
    """Return a quantity in the unit of factor 1; a bare number is in that unit.

    Raises:
        ValueError: The value is not a quantity, or not finite.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = _to_float(value)
    else:
        number = _parse_with_unit(value, units)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no finite number")
    return number


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of over 308 digits
        return math.inf


def _parse_with_unit(value: object, units: Mapping[str, Decimal]) -> float:
    match = _WITH_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    try:
        if match is not None and match[2] in units:
            return float(Decimal(match[1]) * units[match[2]])
    except InvalidOperation:
        pass  # such as several points
    except Overflow:
        return math.inf
    choices = f" with one of the units {', '.join(units)}" if units else ""
    raise ValueError(f"{value!r} is no number{choices}")


Bandwidth = Annotated[float, Quantity(RATES, BANDWIDTHS)]
Delay = Annotated[float, Quantity(SECONDS, DELAYS_S)]
Count = Annotated[int, Field(ge=1, le=MAX_DEVICES)]
LinkName = Annotated[str, make_reference_validator("link")]


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
    devices: dict[Annotated[str, make_reference_validator("device")], Count] = Field(
        min_length=1, description="how many devices of which kind", examples=[{"v100": 8}]
    )
    link: LinkName = Field(default_factory=str, description="joins any two of its devices")
    count: Count = Field(default_factory=int, description="makes machines NAME-0, NAME-1, ...")

    @property
    def size(self) -> int:
        """Devices of each machine."""
        return sum(self.devices.values())

    def names(self, index: int) -> list[str]:
        """Return the names of its machines; `index` is that of the entry."""
        name = self.name if "name" in self.model_fields_set else f"node{index}"
        return [f"{name}-{number}" for number in range(self.count)] if self.count else [name]


def _check_device_count(entry: MachineEntry, info: ValidationInfo) -> MachineEntry:
    """Count devices before they are created, so that one error reports too many."""
    devices_before = get_context(info).device_count
    devices_so_far = get_context(info).device_count = (
        devices_before + (entry.count or 1) * entry.size
    )
    if devices_before <= MAX_DEVICES < devices_so_far:
        message = f"the machines up to here have {devices_so_far} devices"
        raise ValueError(f"{message}; give a cluster at most {MAX_DEVICES}")
    return entry


def _check_machines(entries: list[MachineEntry], info: ValidationInfo) -> list[MachineEntry]:
    names_so_far: set[str] = set()
    errors: list[tuple[KeyPath, str]] = []
    for index, entry in enumerate(entries):
        names = entry.names(index)
        duplicates = names_so_far.intersection(names)
        errors += [((index,), f"duplicate machine {name!r}") for name in sorted(duplicates)]
        if entry.size > 1 and "link" not in entry.model_fields_set:
            message = f"the machine {names[0]} has several devices and no link for them"
            errors.append(((index,), message))
        names_so_far.update(names)
    get_context(info).names["machine"] = names_so_far
    if errors:
        raise make_validation_error(errors)
    return entries


def _check_machine_pair(names: Any) -> Any:
    if not isinstance(names, list) or len(names) != 2 or names[0] == names[1]:
        raise ValueError("a pair is {machines: [a, b], link: name} of two machines")
    return names


class PairEntry(StrictModel):
    """Two machines with their own link, an entry of ``pairs:``."""

    machines: Annotated[
        list[Annotated[str, make_reference_validator("machine")]],
        Field(min_length=2, max_length=2),
        BeforeValidator(_check_machine_pair),
        make_unique_validator(frozenset, "these machines have a link of their own above"),
    ]
    link: LinkName


class ClusterFile(StrictModel):
    """A whole cluster file."""

    schema_: Literal["spbench.cluster/1"] = Field(alias="schema", description="the format")
    name: str = Field(default_factory=str, description="the file's name if left out")
    devices: dict[str, DeviceEntry] = Field(default={}, description="kinds of devices")
    links: dict[str, LinkEntry] = Field(default={}, description="kinds of links")
    machines: Annotated[
        list[Annotated[MachineEntry, AfterValidator(_check_device_count)]],
        AfterValidator(_check_machines),
    ] = Field(min_length=1, description="the machines, in the order of their devices' numbers")
    between: LinkName = Field(default_factory=str, description="joins any two machines")
    pairs: list[PairEntry] = Field(default=[], description="machines with a link of their own")

    @classmethod
    def read(cls, data: object) -> ClusterFile:
        """Return the model of a file's data.

        Raises:
            ValidationError: There are errors; the exception contains all of them.
        """
        fields = data if isinstance(data, dict) else {}
        entries = {"device": fields.get("devices", {}), "link": fields.get("links", {})}
        names = {kind: set(group) for kind, group in entries.items() if isinstance(group, dict)}
        return cls.model_validate(data, context=ValidationContext(names))

    def to_cluster(self, name: str) -> Cluster:
        """Return the cluster; ``name`` is used if the file does not contain one.

        Raises:
            PlannerError: Two machines have no link.
        """
        kind_by_name = {
            name_in_file: DeviceKind(name_in_file, device.memory or None, device.speed)
            for name_in_file, device in self.devices.items()
        }
        link_by_name = {
            name_in_file: Link(
                name_in_file,
                link.bandwidth,
                link.latency,
                link.all_reduce or None,
                link.overhead,
                link.copy_bandwidth or None,
            )
            for name_in_file, link in self.links.items()
        }
        machines = []
        for index, entry in enumerate(self.machines):
            devices = tuple(
                kind_by_name[kind] for kind, count in entry.devices.items() for _ in range(count)
            )
            inner_link = link_by_name[entry.link] if "link" in entry.model_fields_set else None
            machines += [
                Machine(machine_name, devices, inner_link) for machine_name in entry.names(index)
            ]
        index_by_machine = {machine.name: index for index, machine in enumerate(machines)}
        link_by_machines = {}
        for machine_pair in self.pairs:
            a, b = sorted(index_by_machine[machine_name] for machine_name in machine_pair.machines)
            link_by_machines[a, b] = link_by_name[machine_pair.link]
        if "name" in self.model_fields_set:
            name = self.name
        between = link_by_name[self.between] if "between" in self.model_fields_set else None
        return Cluster(name, tuple(machines), between, link_by_machines)


def load_cluster(path: Path) -> Cluster:
    """Return the cluster of a YAML file.

    Raises:
        ClusterError: The file has errors; the exception contains all of them.
        PlannerError: The file cannot be read.
    """
    return read_cluster(read_text(path, MAX_BYTES), str(path), path.stem)


def read_cluster(text: str, file: str, name: str) -> Cluster:
    """Return the cluster of a text; ``name`` is used if it does not contain one.

    Raises:
        ClusterError: The text has errors; the exception contains all of them.
    """
    try:
        document = parse_yaml(text)
    except YamlError as error:
        mark = error.mark
        raise ClusterError([Diagnostic(file, mark.line, mark.column, str(error))]) from None
    errors = FileErrors(file, document)
    data = document.root.data
    try:
        cluster = ClusterFile.read(data).to_cluster(name)
    except ValidationError as error:
        report_errors(error, data, errors, ClusterFile)
    except PlannerError as error:
        errors.add_at_value((), str(error))
    if errors.count:
        raise ClusterError(errors.diagnostics)
    return cluster
