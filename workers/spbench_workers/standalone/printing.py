"""Channels that print the events of a case as lines."""

from __future__ import annotations

import sys
from typing import Any

from spbench_core.catalog.benchmark import Benchmark
from spbench_core.events.statuses import LogLevel
from spbench_workers.standalone.progress_reporter import ProgressReporter


class PrintingChannel:
    """A channel that prints the events of one case as lines; each line is one write.

    Args:
        rank: This rank.
        names_checks: Whether lines about passed checks have the check's name, unlike those of the
            reference scripts.
        reporter: Reports progress while there is no output; None for no reports.
    """

    def __init__(
        self, rank: int, *, names_checks: bool = False, reporter: ProgressReporter | None = None
    ) -> None:
        self.rank: int | None = rank
        self._names_checks = names_checks
        self._reporter = reporter
        self.failed = False
        self._times: list[float] = []

    def send(self, event: str, **fields: Any) -> None:
        """Print an event as a line; some kinds print nothing."""
        printer = getattr(self, f"_print_{event}", None)
        if printer is not None:
            printer(**fields)

    def receive_cases(self) -> list[dict[str, Any]]:
        """Return no cases, since there is no console."""
        return []

    def close(self) -> None:
        """Print the mean time, like the reference scripts."""
        if self._times:
            mean = sum(self._times) / len(self._times)
            self._write_line(f"Rank:{self.rank} Time taken (ms):{mean:.6f}")

    def _print_progress(self, phase: str, done: int, total: int, **_: Any) -> None:
        if self._reporter is not None:
            self._reporter.note_progress(phase, done, total)

    def _print_samples(self, metric: str, values: list[float], **_: Any) -> None:
        if metric == "time_ms":
            self._times.extend(values)

    def _print_check(self, name: str, passed: bool, **fields: Any) -> None:
        if passed:
            self._write_line(
                f"Validation passed Rank:{self.rank}" + (f" {name}" if self._names_checks else "")
            )
            return
        self.failed = True
        error = fields["max_abs_error"]
        detail = fields["detail"]
        error_text = "not a number" if error is None else f"{error:.7g}"
        self._write_line(
            f"Validation failed Rank:{self.rank} {name}: largest error {error_text}: {detail}"
        )

    def _print_metric(self, name: str, value: float | None, **fields: Any) -> None:
        labels = "".join(f" {key}={label}" for key, label in fields.get("labels", {}).items())
        source = f" (limit, by {fields['measured_by']})" if "measured_by" in fields else ""
        number_text = f"{value:.7g}" if isinstance(value, float) else value
        self._write_line(f"Rank:{self.rank} {name}:{number_text}{labels}{source}")

    def _print_choice(self, name: str, value: str, reason: str, **_: Any) -> None:
        self._write_line(f"Rank:{self.rank} {name}:{value} ({reason})")

    def _print_log(self, message: str, **_: Any) -> None:
        self._write_line(f"Rank:{self.rank} {message}")

    def _write_line(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        if self._reporter is not None:
            self._reporter.note_output()


class OwnLinesChannel(PrintingChannel):
    """A channel that prints the benchmark's own lines on rank 0, and failed checks.

    With ``names_checks`` a rank reports at the end that all its checks passed, like MPI4DL's halo
    scripts.
    """

    _passed = 0

    def close(self) -> None:
        """Print that all checks passed, if that is requested."""
        if self._names_checks and self._passed and not self.failed:
            self._write_line(f"Validation passed Rank:{self.rank}")

    def _print_check(self, name: str, passed: bool, **fields: Any) -> None:
        self._passed += passed
        if not passed:
            super()._print_check(name, passed, **fields)

    def _print_metric(self, name: str, value: float | None, **fields: Any) -> None:
        """Print nothing, since the benchmark's own lines show it."""

    def _print_choice(self, name: str, value: str, reason: str, **_: Any) -> None:
        """Print nothing, since the benchmark's own lines show it."""

    def _print_log(self, message: str, level: str = "line", **_: Any) -> None:
        if level == LogLevel.LINE and self.rank == 0:
            self._write_line(message)


def open_printing_channel(
    entry: Benchmark, rank: int, reporter: ProgressReporter | None
) -> PrintingChannel:
    """Return the channel of a case of this benchmark."""
    if entry.own_lines:
        return OwnLinesChannel(rank, names_checks=entry.says_passed, reporter=reporter)
    return PrintingChannel(rank, names_checks=len(entry.checks) > 1, reporter=reporter)
