"""Recorded runs with their results, loaded from a report or from events."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, overload

from spbench.errors import UsageError
from spbench.record.findings import collect_findings_or_defect, names_slow_part
from spbench.record.planted_faults import FaultOutcome, find_run_outcome
from spbench.record.runs.files import TooLargeError
from spbench.record.runs.folder import RunFolder, file_stamp
from spbench.record.runs.history import UNKNOWN, RunSummary, read_summary_with_note
from spbench.record.runs.report_text import read_report_file
from spbench.report.build import build_case_parts, build_environment, dump_model, settle_case
from spbench.report.document import PackedCases, ReportDocument, dump_json
from spbench.report.model import CasePart, RankPart, Report
from spbench.report.times import parse_timestamp
from spbench_core.events.statuses import RunStatus

MAX_UNPACKED_BYTES = 8 << 20
"""The largest report with unpacked ranks; as objects, they take seven times as much."""
_FASTEST_LEVEL = 1
"""zlib's level; higher levels save little, because ranks are similar."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run and its cases by id, in the suite's order.

    Cases of a run that is still running may be ``waiting`` or ``running``.

    Attributes:
        left_out: A message on the unreadable part of its event log, if any.
        made_of: The runs of a baseline.
    """

    summary: RunSummary
    cases: Mapping[str, CasePart]
    findings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    left_out: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    made_of: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """The facts of its machines and libraries; empty for runs of older versions."""
        fingerprint = self.environment.get("fingerprint")
        return fingerprint if isinstance(fingerprint, Mapping) else {}

    def find_slow_cases(self) -> frozenset[str]:
        """Return the ids of the cases in which a finding names a slow rank, host or link.

        Ranks and hosts that a planted fault slows down do not count.
        """
        slow_parts = list(filter(names_slow_part, self.findings))
        return frozenset(
            id_
            for id_, case in self.cases.items()
            if case.status_text != FaultOutcome.FOUND
            and any(re.search(rf" in {re.escape(id_)}(?: \(|;|,|$)", text) for text in slow_parts)
        )


def load_run(folder: RunFolder, *, max_unpacked_bytes: int = MAX_UNPACKED_BYTES) -> RecordedRun:
    """Load the results of a run from report.json, or by replaying its events.

    Args:
        folder: The run.
        max_unpacked_bytes: The largest report with ranks that are not packed.

    Raises:
        UsageError: There is no report and the event log cannot be read, or a file is too large.
    """
    folder.check_readable()
    summary = read_summary_with_note(folder)
    recorded_report = read_report(folder, max_unpacked_bytes=max_unpacked_bytes)
    if recorded_report is not None:
        return _make_run(recorded_report, summary)
    state = folder.replay()
    if state.run is None and folder.report.exists():
        raise UsageError(f"run {summary.id}: its report is damaged, and {folder.events} is empty")
    cases = build_case_parts(state)
    if summary.status != RunStatus.RUNNING:
        cases = [settle_case(case) for case in cases]
    ended = state.run is not None and state.run.finished is not None
    return RecordedRun(
        _add_fault_outcome(summary, cases, state.errors),
        {case.id: case for case in cases},
        tuple(state.findings if ended else collect_findings_or_defect(state)),
        tuple(state.errors),
        state.skipped_message,
        build_environment(state),
    )


def load_report(path: Path) -> RecordedRun:
    """Load the results of a run from the file of its report.

    Raises:
        UsageError: The file cannot be read, or is not a report.
    """
    report = _read_report_path(path, MAX_UNPACKED_BYTES)
    if report is None:
        raise UsageError(f"{path} is no report of spbench; name a report.json, or a run's id")
    return make_recorded_run(report, path)


def make_recorded_run(report: Report, path: Path) -> RecordedRun:
    """Return the run of a report; ``path`` is its file, which may be missing."""
    run = report.run
    host = report.environment.get("host")
    started, finished = (parse_timestamp(moment) for moment in (run.started, run.finished))
    summary = RunSummary(
        folder=RunFolder(path.parent),
        id=run.id or path.name,
        suite=run.suite or UNKNOWN,
        file=None,
        started=started,
        finished=finished,
        status=run.verdict,
        exit_code=run.exit_code,
        argv=tuple(run.argv),
        duration_s=run.duration_s,
        host=host if isinstance(host, str) else None,
    )
    return _make_run(report, summary)


def _make_run(report: Report, summary: RunSummary) -> RecordedRun:
    return RecordedRun(
        _add_fault_outcome(summary, report.cases, report.errors),
        {case.id: case for case in report.cases},
        tuple(report.run.findings),
        tuple(report.errors),
        environment=report.environment,
    )


def _add_fault_outcome(
    summary: RunSummary, cases: Iterable[CasePart], errors: Sequence[str]
) -> RunSummary:
    """Return a summary with the outcome that run.json of an older run lacks."""
    if summary.fault_outcome is not None:
        return summary
    results = ((case.status, case.reason) for case in cases)
    return replace(summary, fault_outcome=find_run_outcome(summary.status, results, errors))


def read_report(
    folder: RunFolder, *, max_unpacked_bytes: int = MAX_UNPACKED_BYTES
) -> Report | None:
    """Return the report of a run; None if it is missing or damaged.

    A report of more than ``max_unpacked_bytes`` has `PackedRanks`.

    Raises:
        UsageError: The report is too large.
    """
    return _read_report_path(folder.report, max_unpacked_bytes)


def read_document(folder: RunFolder) -> ReportDocument | None:
    """Return the report of a run, like `read_report`, for writing case by case.

    Raises:
        UsageError: The report is too large.
    """
    cases = PackedCases()

    def add_case(case: Any) -> None:
        cases.append(dump_json(dump_model(CasePart.model_validate(case))))

    try:
        head, _ = read_report_file(folder.report, add_case)
        return ReportDocument(dump_model(Report.model_validate(head)), cases)
    except TooLargeError as error:
        raise UsageError(f"cannot read a report: {error}") from None
    except (OSError, ValueError):
        return None


def _read_report_path(path: Path, max_unpacked_bytes: int) -> Report | None:
    is_large = file_stamp(path)[1] > max_unpacked_bytes
    try:
        head, cases = read_report_file(
            path, read_packed_case if is_large else CasePart.model_validate
        )
        return Report.model_validate(head).model_copy(update={"cases": cases})
    except TooLargeError as error:
        raise UsageError(f"cannot read a report: {error}") from None
    except (OSError, ValueError):
        return None


class PackedRanks(Sequence[RankPart]):
    """The ranks of a case as compressed text, unpacked at each access.

    Ranks take most of the memory of a large run.

    Args:
        ranks: The JSON objects of the ranks, which must fit the format.
    """

    def __init__(self, ranks: Sequence[dict[str, Any]]) -> None:
        self._count = len(ranks)
        self._packed = zlib.compress(json.dumps(ranks).encode(), _FASTEST_LEVEL)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[RankPart]:
        return iter(self._unpack())

    @overload
    def __getitem__(self, index: int) -> RankPart: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RankPart]: ...
    def __getitem__(self, index: int | slice) -> RankPart | Sequence[RankPart]:
        return self._unpack()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._unpack() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _unpack(self) -> list[RankPart]:
        return [RankPart.model_validate(rank) for rank in json.loads(zlib.decompress(self._packed))]


def read_packed_case(case: Any) -> CasePart:
    """Validate the JSON object of a case, and return it with packed ranks.

    Raises:
        ValueError: The case does not fit the format.
    """
    case_part = CasePart.model_validate(case)
    # model_copy does not validate fields. PackedRanks is not a list, but a sequence like one.
    return case_part.model_copy(update={"ranks": PackedRanks(case["ranks"])})
