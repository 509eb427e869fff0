"""A rank's channel to a file, and the cases and limits of a batch job."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spbench_core.events import rank_events
from spbench_core.events.statuses import LogLevel, PhaseProgress, restarts_deadline
from spbench_workers.channel.base import ConsoleUnreachableError, NumberedChannel


class FileChannel(NumberedChannel):
    """A channel to a file for ``spbench collect``, if no console can be reached.

    Each line is in the file when `send` returns. A thread adds a heartbeat per second. Since there
    is no console to do so, it ends this process if a case exceeds its timeout.

    Args:
        folder: The folder of the file, which is created if it is missing.
        limits: Seconds for each case, by id; under None the seconds for start and end.
    """

    def __init__(self, folder: Path, limits: Mapping[str | None, float] | None = None) -> None:
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        # A random part, since several containers of one host may use the same process number.
        name = f"{socket.gethostname()}-{os.getpid()}"
        descriptor, _ = tempfile.mkstemp(".jsonl", f"{name}-", folder)
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._limits = limits or {}
        self._closing = threading.Event()
        self._deadline = self._compute_deadline(None)
        self._progress: PhaseProgress | None = None

    def send(self, event: str, **fields: Any) -> None:
        super().send(event, **fields)
        if event in ("case_start", "case_end"):
            self._deadline = self._compute_deadline(
                fields["case"] if event == "case_start" else None
            )
            self._progress = None
        elif event == "progress":
            previous_progress = self._progress
            self._progress = fields["phase"], fields["done"]
            if restarts_deadline(previous_progress, self._progress):
                self._deadline = self._compute_deadline(fields["case"])

    def receive_cases(self) -> list[dict[str, Any]]:
        return read_cases(os.environ)

    def close(self) -> None:
        # The heartbeat ends first, so that ``bye`` is the last event.
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self.send("bye")
        self._file.close()

    def _compute_deadline(self, case: str | None) -> float:
        return time.monotonic() + self._limits.get(case, math.inf)

    def _write(self, line: bytes) -> None:
        remaining = memoryview(line)
        while remaining:
            remaining = remaining[self._file.write(remaining) :]

    def _watch(self) -> None:
        while not self._closing.wait(rank_events.HEARTBEAT_INTERVAL):
            try:
                self._beat()
            except OSError as error:
                self._end(f"stops because its events cannot be written ({error.strerror})")
            if time.monotonic() > self._deadline:
                self._handle_overdue()

    def _handle_overdue(self) -> None:
        """Report the position of this rank, and end it unless it makes progress.

        The pause lets the other ranks, which are probably overdue, too, report their positions.
        """
        self.send("log", level=LogLevel.WHERE, message=self.locate())
        time.sleep(rank_events.HEARTBEAT_INTERVAL)
        if time.monotonic() <= self._deadline:
            return
        self._end("stops because its case exceeded its timeout")

    @contextlib.contextmanager
    def guarded_by_kernel(self) -> Iterator[None]:
        """Let SIGALRM end this process when its time to start is over."""
        if math.isfinite(self._deadline):
            signal.setitimer(signal.ITIMER_REAL, max(0.001, self._deadline - time.monotonic()))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)


def read_limits(environ: Mapping[str, str]) -> dict[str | None, float]:
    """Return the seconds for each case of a batch job, by id.

    The seconds for start and end are under None. It is empty if there is no file of cases, or if
    the file has no limits.
    """
    path = environ.get(rank_events.ENV_CASES)
    if path is None:
        return {}
    cases = [case for case in json.loads(Path(path).read_text()) if "timeout" in case]
    limits: dict[str | None, float] = {case["id"]: case["timeout"] for case in cases}
    if cases:
        limits[None] = cases[0]["start_timeout"]
    return limits


def read_cases(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the cases of a batch job from the file that SPBENCH_CASES names.

    Raises:
        ConsoleUnreachableError: SPBENCH_CASES is not set.
    """
    path = environ.get(rank_events.ENV_CASES)
    if path is None:
        raise ConsoleUnreachableError(f"no console, and {rank_events.ENV_CASES} names no file")
    cases: list[dict[str, Any]] = json.loads(Path(path).read_text())
    return cases
