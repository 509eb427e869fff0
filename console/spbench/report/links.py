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
from spbench.record.metric_names import format_metric_name
from spbench.record.outliers.links import HostPair, RankPair, compute_median_rows
from spbench.record.runs.files import open_file
from spbench.record.runs.folder import RunFolder, list_runs
from spbench.record.runs.follow import MAX_SKIPPED_BYTES, READ_SIZE
from spbench.record.runs.history import RunSummary
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun, load_run
from spbench.stats.summary import lower_median
from spbench_core.catalog import BENCHMARKS

_ENDS = ("source", "target")
# They describe the pair of ranks, not the measurement.
_NOT_LABELS = ("name", "value", "rank", *_ENDS, "host_a", "host_b")
_LABEL = b'"target"'
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True)
class LinkTable:
    """One measurement of all pairs, at one message size.

    Attributes:
        name: The metric.
        better: ``lower``, ``higher`` or ``none``.
        labels: Further labels of the measurement, such as ``{"bytes": 8}``.
        ranks: The ranks that are in any pair, in ascending order.
        hosts: The host of each rank, if it is known.
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
        """The metric, its unit and its labels: ``latency in us, 8 B``.

        Without a unit, its name is the key.
        """
        name = self.name
        if self.unit:
            name = f"{format_metric_name(self.name, self.unit)} in {self.unit}"
        labels = "".join(
            f", {_format_label(label, label_value)}" for label, label_value in self.labels.items()
        )
        return f"{name}{labels}"

    def get_value(self, source: int, target: int) -> float | None:
        """Return a pair's value; a value measured in one direction counts for both."""
        return self.values.get((source, target), self.values.get((target, source)))

    def worst_by_host(self) -> dict[HostPair, float]:
        """Return the worst value between two hosts, or within one, in both directions."""
        values_by_hosts: dict[HostPair, list[float]] = defaultdict(list)
        for (source, target), value in self.values.items():
            if source in self.hosts and target in self.hosts:
                host_ends = self.hosts[source], self.hosts[target]
                for host_pair in {host_ends, host_ends[::-1]}:
                    values_by_hosts[host_pair].append(value)
        return {
            host_pair: _choose_worst(pair_values, self.better)
            for host_pair, pair_values in values_by_hosts.items()
        }

    def typical_values(self) -> dict[bool, float]:
        """Return the median of pairs within a host (True) and between hosts (False)."""
        values_by_within_host: dict[bool, list[float]] = defaultdict(list)
        for ranks, value in self.values.items():
            values_by_within_host[self.within_host(ranks)].append(value)
        compute_median = statistics.median_high if self.better == "higher" else lower_median
        return {
            is_within_host: compute_median(values)
            for is_within_host, values in values_by_within_host.items()
        }

    def within_host(self, pair: RankPair) -> bool:
        """Whether both ranks are on one host."""
        return self.hosts.get(pair[0]) == self.hosts.get(pair[1])

    def compute_slowness(self) -> dict[RankPair, float]:
        """Return each pair's ratio to the median of its kind; above 1 it is worse."""
        if self.better == "none":
            return {}
        median_by_within_host = self.typical_values()
        slowness_by_pair = {}
        for pair, value in self.values.items():
            slowness = self._compare(value, median_by_within_host[self.within_host(pair)])
            if slowness is not None:
                slowness_by_pair[pair] = slowness
        return slowness_by_pair

    def compute_host_slowness(self) -> dict[HostPair, float]:
        """Return the ratio of each two hosts' worst pair to the median of its kind."""
        if self.better == "none":
            return {}
        median_by_within_host = self.typical_values()
        slowness_by_hosts = {}
        for (host_a, host_b), value in self.worst_by_host().items():
            slowness = self._compare(value, median_by_within_host[host_a == host_b])
            if slowness is not None:
                slowness_by_hosts[host_a, host_b] = slowness
        return slowness_by_hosts

    def _compare(self, value: float, median_value: float) -> float | None:
        """Return how many times worse than the median a value is; None if undefined."""
        if self.better == "higher":
            return median_value / value if value > 0 else None
        return value / median_value if median_value > 0 else None

    def find_slow_pairs(self) -> dict[RankPair, float]:
        """Return the pairs that are at least `NOTABLE_LINK` times worse, with the ratio."""
        return {
            pair: ratio for pair, ratio in self.compute_slowness().items() if ratio >= NOTABLE_LINK
        }


@dataclass(frozen=True, slots=True)
class LinkMatrix:
    """All measurements of a case between pairs of ranks.

    There is one table for each metric and message size.
    """

    case: str
    tables: tuple[LinkTable, ...]

    @property
    def ranks(self) -> int:
        """The number of ranks that are in any pair."""
        return len({rank for table in self.tables for rank in table.ranks})


def build_link_matrix(case: CasePart) -> LinkMatrix | None:
    """Return the measurements of a case between ranks; None if there are none.

    Such measurements have the labels source and target.
    """
    rows_by_metric_and_labels: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in case.measurements:
        if _measures_link(row):
            rows_by_metric_and_labels[str(row["name"]), repr(_select_labels(row))].append(row)
    tables = tuple(_make_table(case, rows) for rows in rows_by_metric_and_labels.values())
    return LinkMatrix(case.id, tables) if tables else None


def build_link_matrices(run: RecordedRun) -> list[LinkMatrix]:
    """Return the matrices of a run's cases, in the suite's order."""
    return [matrix for case in run.cases.values() if (matrix := build_link_matrix(case))]


def find_last_link_matrix(
    home: Path, before: str | None = None
) -> tuple[RunSummary, LinkMatrix] | None:
    """Return the newest run of a home with links, and its matrix with the most ranks.

    It reads runs until it finds one, which may take seconds: do not call it in an event loop. Runs
    that cannot be read are skipped.

    Args:
        home: The folder of the runs.
        before: The id of a run; only earlier ones are considered.
    """
    for folder in reversed(list_runs(home)):
        if before is None or folder.id < before:
            measured = read_widest_links(folder)
            if measured is not None:
                return measured
    return None


def read_widest_links(folder: RunFolder) -> tuple[RunSummary, LinkMatrix] | None:
    """Return a run and its matrix with the most ranks, or None without links.

    A run that cannot be read has none.
    """
    if not _may_have_links(folder):
        return None
    try:
        run = load_run(folder)
    except UsageError:
        return None
    matrices = build_link_matrices(run)
    return (run.summary, max(matrices, key=lambda matrix: matrix.ranks)) if matrices else None


def _may_have_links(folder: RunFolder) -> bool:
    """Return whether a run's text contains the label, far faster than by loading it."""
    path = folder.report if folder.report.exists() else folder.events
    try:
        with open(open_file(path), "rb") as file:
            return any(_LABEL in chunk for chunk in _overlapping_chunks(file))
    except OSError:
        return False


def _overlapping_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield chunks of a file that overlap by a label, up to a line that is too long."""
    overlap = b""
    line_bytes = 0
    while chunk := file.read(READ_SIZE):
        yield overlap + chunk
        overlap = chunk[1 - len(_LABEL) :]
        last_newline = chunk.rfind(b"\n")
        line_bytes = line_bytes + len(chunk) if last_newline < 0 else len(chunk) - last_newline
        if line_bytes > MAX_SKIPPED_BYTES:
            return


def _measures_link(row: Mapping[str, Any]) -> bool:
    value = row.get("value")
    is_measurement = isinstance(row.get("name"), str) and isinstance(value, (int, float))
    return is_measurement and all(type(row.get(end)) is int for end in _ENDS)


def _select_labels(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _NOT_LABELS}


def _make_table(case: CasePart, rows: list[Mapping[str, Any]]) -> LinkTable:
    name = rows[0]["name"]
    unit, better = _find_unit_and_direction(case, name)
    value_by_ranks = {
        (row["source"], row["target"]): row["value"] for row in compute_median_rows(rows)
    }
    return LinkTable(
        name=name,
        unit=unit,
        better=better,
        labels=_select_labels(rows[0]),
        ranks=tuple(sorted({rank for ranks in value_by_ranks for rank in ranks})),
        hosts=dict(_generate_hosts(rows)),
        values=value_by_ranks,
    )


def _find_unit_and_direction(case: CasePart, name: str) -> tuple[str, str]:
    """Return unit and better direction, from the case or from the catalog."""
    if name in case.metrics:
        return case.metrics[name].unit, case.metrics[name].better
    benchmark = BENCHMARKS.get(case.benchmark)
    for metric in benchmark.metrics if benchmark else ():
        if metric.name == name:
            return metric.unit, metric.better
    return "", "none"


def _generate_hosts(rows: list[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    for row in rows:
        for end, host in zip(_ENDS, ("host_a", "host_b"), strict=True):
            if host in row:
                yield row[end], row[host]


def _choose_worst(pair_values: list[float], better: str) -> float:
    return min(pair_values) if better == "higher" else max(pair_values)


def _format_label(name: str, label_value: Any) -> str:
    return (
        _format_size(label_value)
        if name == "bytes" and type(label_value) is int
        else f"{name} {label_value}"
    )


def _format_size(size_bytes: int) -> str:
    for unit_bytes, unit_name in _SIZES:
        if size_bytes >= unit_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes} {unit_name}"
    return f"{size_bytes} B"
