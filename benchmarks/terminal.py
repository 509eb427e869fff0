"""A program in a separate terminal: keys, its output, and their times."""

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

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._since = time.monotonic()
        self._output = b""
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.environ["TEXTUAL_ANIMATIONS"] = "none"
            os.execv(command[0], list(command))
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the command, if it still runs."""
        os.kill(self._pid, signal.SIGKILL)
        os.close(self._file)
        os.waitpid(self._pid, 0)

    def press(self, key: str) -> None:
        """Send a key."""
        self._since = time.monotonic()
        os.write(self._file, key.encode())

    def rest(self, seconds: float) -> None:
        """Read the output for some seconds without a key, and discard it."""
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            if select.select([self._file], [], [], remaining)[0]:
                os.read(self._file, 1 << 16)
        self._output = b""

    def wait_for_text(self, pattern: str) -> float:
        """Return the seconds until text appears that matches the pattern.

        Raises:
            TimeoutError: It did not appear within a minute.
        """
        expression = re.compile(pattern.encode())
        while not expression.search(_CONTROL.sub(b"", self._output)):
            remaining = DEADLINE - (time.monotonic() - self._since)
            if remaining <= 0 or not select.select([self._file], [], [], remaining)[0]:
                output = _CONTROL.sub(b"", self._output)[-2000:].decode(errors="replace")
                raise TimeoutError(f"{pattern!r} did not appear in {DEADLINE:g} s: {output}")
            self._output += os.read(self._file, 1 << 16)
        return time.monotonic() - self._since

    def processor_seconds(self) -> float:
        """Return the processor time of the command so far."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
