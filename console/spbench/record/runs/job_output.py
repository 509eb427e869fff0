"""The raw output of a job: the end of what its launcher and ranks wrote to stdout and stderr."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from spbench.record.runs.files import open_file, strip_controls_from_json
from spbench.record.runs.folder import RunFolder

MOST = 16 << 10
"""Bytes of each stream, from its end."""
STREAMS = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of a stream.

    Attributes:
        name: ``stdout`` or ``stderr``.
        text: Its last lines, without a terminal's commands.
        left_out: The bytes before them.
        path: The file that has it all.
    """

    name: str
    text: str
    left_out: int
    path: Path

    @property
    def title(self) -> str:
        """The stream's name, and how much of it is left out."""
        before = f", without its first {self.left_out:,} bytes" if self.left_out else ""
        return f"{self.name} ({self.path}{before})"


def read_job_output(folder: RunFolder, job: int | None, most: int = MOST) -> list[StreamEnd]:
    """Return the ends of a job's streams that have something; of one that is not there none."""
    if job is None:
        return []
    paths = [(name, folder.path / "jobs" / str(job) / f"{name}.log") for name in STREAMS]
    ends = [_end(name, path, most) for name, path in paths]
    return [end for end in ends if end is not None and end.text.strip()]


def _end(name: str, path: Path, most: int) -> StreamEnd | None:
    try:
        with open(open_file(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - most))
            content = file.read(most)
    except OSError:
        return None
    left_out = size - len(content)
    if left_out:
        cut = content.find(b"\n") + 1  # a line whose beginning is missing
        left_out, content = left_out + cut, content[cut:]
    text = strip_controls_from_json(content.replace(b"\0", b"").decode(errors="replace"))
    return StreamEnd(name, text, max(0, left_out), path)
