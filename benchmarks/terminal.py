"""A program in a terminal of its own: keys in, what it writes out, and when."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

ROWS = 60
COLUMNS = 200
DEADLINE = 60.0
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Runs a command in a pseudo-terminal of 200 columns and 60 rows.

    Times are counted from the start of the command, or from the last key.
    """

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        self._since = time.monotonic()
        self._seen = b""
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.environ["TEXTUAL_ANIMATIONS"] = "none"
            os.execv(words[0], list(words))
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End the command, if it has not ended by itself."""
        os.kill(self._pid, signal.SIGKILL)
        os.close(self._file)
        os.waitpid(self._pid, 0)

    def press(self, key: str) -> None:
        """Send a key, as a terminal would."""
        self._since = time.monotonic()
        os.write(self._file, key.encode())

    def rest(self, seconds: float) -> None:
        """Press nothing for so long, read on as a terminal does, and forget what was read."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            if select.select([self._file], [], [], left)[0]:
                os.read(self._file, 1 << 16)
        self._seen = b""

    def wait_for(self, pattern: str) -> float:
        """Return the seconds until text appears that fits the pattern.

        Raises:
            TimeoutError: It did not, within a minute.
        """
        wanted = re.compile(pattern.encode())
        while not wanted.search(_CONTROL.sub(b"", self._seen)):
            left = DEADLINE - (time.monotonic() - self._since)
            if left <= 0 or not select.select([self._file], [], [], left)[0]:
                shown = _CONTROL.sub(b"", self._seen)[-2000:].decode(errors="replace")
                raise TimeoutError(f"{pattern!r} did not appear in {DEADLINE:g} s: {shown}")
            self._seen += os.read(self._file, 1 << 16)
        return time.monotonic() - self._since

    def processor_seconds(self) -> float:
        """Return the processor time of the command so far."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
