"""Marks of runs: a planted fault, another machine or version, a batch job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, StrEnum

from spbench.record.machine.fingerprint import ComparedMachine
from spbench.record.runs.history import RunSummary


class RunMark(StrEnum):
    """A reason why a run differs from others; those with a sign affect its times."""

    FAULT = "! fault"
    OTHER_MACHINE = "≠ other machine"
    OTHER_VERSIONS = "≠ other versions"
    BATCH = "batch job"

    @property
    def short(self) -> str:
        """The sign with one word, for narrow columns."""
        return self.replace("other ", "").removesuffix(" job")

    @property
    def sign(self) -> str:
        """The sign only, for the narrowest columns."""
        return "□" if self is RunMark.BATCH else self[0]


RunMarks = Mapping[str, Sequence[RunMark]]
"""The marks of runs by their ids; runs without marks are left out."""
MARK_WORDS: Mapping[str, RunMark] = {
    "fault": RunMark.FAULT,
    "machine": RunMark.OTHER_MACHINE,
    "versions": RunMark.OTHER_VERSIONS,
    "batch": RunMark.BATCH,
}
"""The marks by the words of a filter."""


def find_marks(runs: Iterable[RunSummary]) -> dict[str, tuple[RunMark, ...]]:
    """Return the marks of each run that has any, by its id.

    A run was made with a planted fault, or on other hosts, processors or numbers of cores than the
    newest run of its suite, or on the same with another MPI library or torch. A run without
    recorded machines is compared with none. Runs of a batch job are made by ``spbench collect``.

    Args:
        runs: All runs of the home, in any order.
    """
    runs = list(runs)
    newest_by_suite: dict[str, tuple[str, ComparedMachine]] = {}
    for run in runs:
        if run.machine is None:
            continue
        newest = newest_by_suite.get(run.suite)
        if newest is None or run.id > newest[0]:  # ids begin with the time
            newest_by_suite[run.suite] = run.id, run.machine
    marks_by_run = {}
    for run in runs:
        marks = [RunMark.FAULT] if run.faults else []
        if run.machine is not None:
            marks += _compare_machines(run.machine, newest_by_suite[run.suite][1])
        if run.argv[:1] in (("script",), ("submit",)):
            marks.append(RunMark.BATCH)
        if marks:
            marks_by_run[run.id] = tuple(marks)
    return marks_by_run


def _compare_machines(machine: ComparedMachine, other: ComparedMachine) -> list[RunMark]:
    if machine.hardware != other.hardware:
        return [RunMark.OTHER_MACHINE]
    return [RunMark.OTHER_VERSIONS] if machine.versions != other.versions else []


class MarksFormat(Enum):
    """Lengths of the text of a run's marks, the longest first."""

    FULL = "full"
    SHORT = "short"
    FIRST = "first"
    SIGNS = "signs"


def format_marks(marks: Sequence[RunMark], form: MarksFormat = MarksFormat.FULL) -> str:
    """Return ``! fault, ≠ other machine``, or a shorter form; empty without marks.

    The short form has one word for each mark, the next one the first mark and ``+`` for others, and
    the shortest one sign for each.
    """
    if form is MarksFormat.SIGNS:
        return "".join(mark.sign for mark in marks)
    if form is MarksFormat.FULL:
        return ", ".join(marks)
    if form is MarksFormat.SHORT:
        return ", ".join(mark.short for mark in marks)
    if not marks:
        return ""
    others = " +" if len(marks) > 1 else ""
    return marks[0].short + others
