"""Link matrices: measurements between pairs of ranks, by rank and by host."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from spbench.errors import UsageError
from spbench.record.findings import NOTABLE_LINK
from spbench.record.outliers.link_kinds import HostPair, RankPair, median_rows
from spbench.record.runs.files import open_file
from spbench.record.runs.folder import RunFolder, list_runs
from spbench.record.runs.follow import MAX_SKIPPED_BYTES, READ_SIZE
from spbench.record.runs.history import RunSummary
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun, load_run
from spbench.stats.summary import lower_median
from spbench_core.catalog import BENCHMARKS

_ENDS = ("source", "target")
_NOT_LABELS = ("name", "value", "rank", *_ENDS, "host_a", "host_b")
_LABEL = b'"target"'
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True)
class LinkTable:
    """One measurement of all pairs, at one message size.

    Attributes:
        name: The metric.
        better: ``lower``, ``higher`` or ``none``.
        labels: What else the measurement is about, such as ``{"bytes": 8}``.
        ranks: The ranks that are in any pair, rising.
        hosts: The host of each rank, where the measurement tells.
        values: By source and target, in ``unit``; the median of a case's repeats.
    """

    name: str
    unit: str
    better: str
    labels: Mapping[str, Any]
    ranks: tuple[int, ...]
    hosts: Mapping[int, str]
    values: Mapping[RankPair, float]

    @property
    def title(self) -> str:
        """The metric, its unit and its labels: ``latency_us in us, 8 B``."""
        unit = f" in {self.unit}" if self.unit else ""
        about = ", ".join(_label(key, value) for key, value in self.labels.items())
        return f"{self.name}{unit}{', ' if about else ''}{about}"

    def get_value(self, source: int, target: int) -> float | None:
        """Return a pair's value; one that was measured in one direction stands for both."""
        return self.values.get((source, target), self.values.get((target, source)))

    def worst_by_host(self) -> dict[HostPair, float]:
        """Return the worst pair between any two hosts, and within each; both directions alike."""
        found: dict[HostPair, list[float]] = defaultdict(list)
        for (source, target), value in self.values.items():
            if source in self.hosts and target in self.hosts:
                ends = self.hosts[source], self.hosts[target]
                for pair in {ends, ends[::-1]}:
                    found[pair].append(value)
        return {pair: _worst(values, self.better) for pair, values in found.items()}

    def typical_values(self) -> dict[bool, float]:
        """Return the usual value of pairs within a host (True) and between hosts (False)."""
        kinds: dict[bool, list[float]] = defaultdict(list)
        for pair, value in self.values.items():
            kinds[self.within_host(pair)].append(value)
        middle = statistics.median_high if self.better == "higher" else lower_median
        return {kind: middle(values) for kind, values in kinds.items()}

    def within_host(self, pair: RankPair) -> bool:
        """Whether both ranks are on one host."""
        return self.hosts.get(pair[0]) == self.hosts.get(pair[1])

    def compute_slowness(self) -> dict[RankPair, float]:
        """Return how many times worse each pair is than the median of its kind; 1 is as usual."""
        if self.better == "none":
            return {}
        usual = self.typical_values()
        found = {}
        for pair, value in self.values.items():
            middle = usual[self.within_host(pair)]
            over, under = (middle, value) if self.better == "higher" else (value, middle)
            if under > 0:
                found[pair] = over / under
        return found

    def find_slow_pairs(self) -> dict[RankPair, float]:
        """Return those of the pairs that are `NOTABLE_LINK` times worse, and by how much."""
        return {
            pair: ratio for pair, ratio in self.compute_slowness().items() if ratio >= NOTABLE_LINK
        }


@dataclass(frozen=True, slots=True)
class LinkMatrix:
    """All that a case measured between pairs of ranks: one table a metric and message size."""

    case: str
    tables: tuple[LinkTable, ...]

    @property
    def ranks(self) -> int:
        """The number of ranks that are in any pair."""
        return len({rank for table in self.tables for rank in table.ranks})


def build_link_matrix(case: CasePart) -> LinkMatrix | None:
    """Return what a case measured between ranks; None where none of it has source and target."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in case.measurements:
        if _is_link(row):
            groups[str(row["name"]), repr(_labels(row))].append(row)
    tables = tuple(_table(case, rows) for rows in groups.values())
    return LinkMatrix(case.id, tables) if tables else None


def build_link_matrices(run: RecordedRun) -> list[LinkMatrix]:
    """Return the matrices of a run's cases, in the suite's order."""
    return [matrix for case in run.cases.values() if (matrix := build_link_matrix(case))]


def find_last_link_matrix(home: Path) -> tuple[RunSummary, LinkMatrix] | None:
    """Return the newest run under a home that measured links, and its matrix of the most ranks.

    It reads runs until it finds one, so it may take seconds: call it beside an event loop, not in
    it. Runs that cannot be read are passed over.
    """
    for folder in reversed(list_runs(home)):
        if _may_have_links(folder):
            try:
                run = load_run(folder)
            except UsageError:
                continue
            matrices = build_link_matrices(run)
            if matrices:
                return run.summary, max(matrices, key=lambda matrix: matrix.ranks)
    return None


def _may_have_links(folder: RunFolder) -> bool:
    """Look for the label in the text: far faster than to read what has none."""
    path = folder.report if folder.report.exists() else folder.events
    try:
        with open(open_file(path), "rb") as file:
            return any(_LABEL in part for part in _parts(file))
    except OSError:
        return False


def _parts(file: BinaryIO) -> Iterator[bytes]:
    """Yield parts of a file that overlap by a label; it ends with a line that is far too long."""
    before = b""
    line_bytes = 0
    while part := file.read(READ_SIZE):
        yield before + part
        before = part[1 - len(_LABEL) :]
        end = part.rfind(b"\n")
        line_bytes = line_bytes + len(part) if end < 0 else len(part) - end
        if line_bytes > MAX_SKIPPED_BYTES:
            return


def _is_link(row: Mapping[str, Any]) -> bool:
    value = row.get("value")
    named = isinstance(row.get("name"), str) and isinstance(value, (int, float))
    return named and all(type(row.get(end)) is int for end in _ENDS)


def _labels(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in _NOT_LABELS}


def _table(case: CasePart, rows: list[Mapping[str, Any]]) -> LinkTable:
    name = rows[0]["name"]
    unit, better = _unit_of(case, name)
    values = {(row["source"], row["target"]): row["value"] for row in median_rows(rows)}
    return LinkTable(
        name=name,
        unit=unit,
        better=better,
        labels=_labels(rows[0]),
        ranks=tuple(sorted({rank for pair in values for rank in pair})),
        hosts=dict(_hosts(rows)),
        values=values,
    )


def _unit_of(case: CasePart, name: str) -> tuple[str, str]:
    """Unit and better direction, from the case, or from the catalog where it came to no result."""
    if name in case.metrics:
        return case.metrics[name].unit, case.metrics[name].better
    entry = BENCHMARKS.get(case.benchmark)
    for metric in entry.metrics if entry else ():
        if metric.name == name:
            return metric.unit, metric.better
    return "", "none"


def _hosts(rows: list[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    for row in rows:
        for end, host in zip(_ENDS, ("host_a", "host_b"), strict=True):
            if host in row:
                yield row[end], row[host]


def _worst(values: list[float], better: str) -> float:
    return min(values) if better == "higher" else max(values)


def _label(key: str, value: Any) -> str:
    return _size(value) if key == "bytes" and type(value) is int else f"{key} {value}"


def _size(count: int) -> str:
    for unit, name in _SIZES:
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"
