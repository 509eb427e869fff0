"""Parser of the log lines of MXNet's measure.py, which spbench prints too."""

import re
from typing import NamedTuple

_SIZE = re.compile(r"num of arrays = (\d+), total size = (\d+\.\d{6}) MB")
_NUMBER = r"(-?\d+\.\d{6}|inf|nan)"
_BATCH = re.compile(rf"iter (\d+), {_NUMBER} sec, {_NUMBER} GB/sec per gpu, error {_NUMBER}")


class SizeLine(NamedTuple):
    arrays: int
    total_mb: float


class BatchLine(NamedTuple):
    batch: int
    seconds: float
    gb_s: float
    error: float


def parse_line(line):
    """Return the numbers of a line, or None if measure.py prints no such line."""
    line = line.removeprefix("INFO:root:")
    if match := _SIZE.fullmatch(line):
        return SizeLine(int(match[1]), float(match[2]))
    if match := _BATCH.fullmatch(line):
        return BatchLine(int(match[1]), *map(float, match.groups()[1:]))
    return None


def parse_batches(text):
    """Return the numbers of all lines of batches in a text."""
    rows = map(parse_line, text.splitlines())
    return [row for row in rows if isinstance(row, BatchLine)]
