"""The end of the stdout and stderr of a job's launcher and ranks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from spbench.record.runs.files import open_file, replace_controls_in_json
from spbench.record.runs.folder import RunFolder

MAX_BYTES = 16 << 10
"""The number of bytes that are read from the end of each stream."""
STREAMS = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of a stream.

    Attributes:
        name: ``stdout`` or ``stderr``.
        text: Its last lines, without control characters.
        left_out: The number of bytes before them.
        path: The file with the entire stream.
    """

    name: str
    text: str
    left_out: int
    path: Path

    @property
    def title(self) -> str:
        """The stream's name and file, and the size of the part that is left out."""
        before = f", without its first {self.left_out:,} bytes" if self.left_out else ""
        return f"{self.name} ({self.path}{before})"


def read_job_output(
    folder: RunFolder, job: int | None, max_bytes: int = MAX_BYTES
) -> list[StreamEnd]:
    """Return the ends of a job's streams that have any output."""
    if job is None:
        return []
    paths = [(name, folder.path / "jobs" / str(job) / f"{name}.log") for name in STREAMS]
    ends = [_read_end(name, path, max_bytes) for name, path in paths]
    return [end for end in ends if end is not None and end.text.strip()]


def _read_end(name: str, path: Path, max_bytes: int) -> StreamEnd | None:
    try:
        with open(open_file(path), "rb") as file:
            total_bytes = os.fstat(file.fileno()).st_size
            file.seek(max(0, total_bytes - max_bytes))
            end_bytes = file.read(max_bytes)
    except OSError:
        return None
    left_out = total_bytes - len(end_bytes)
    if left_out:
        # the first line is incomplete
        cut_bytes = end_bytes.find(b"\n") + 1
        left_out += cut_bytes
        end_bytes = end_bytes[cut_bytes:]
    text = replace_controls_in_json(end_bytes.replace(b"\0", b"").decode(errors="replace"))
    return StreamEnd(name, text, max(0, left_out), path)
