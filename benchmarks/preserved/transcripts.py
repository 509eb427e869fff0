"""Commands of this checkout with their output, to compare between commits."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.mpi_ranks import ENVIRONMENT

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT, ROOT / "core", ROOT / "console", ROOT / "workers")
BUSY = re.compile(r".*machine was busy.*\n")
VERSION = re.compile(r"\b\d+\.\d+\.\d+\+[\w.]+")
TIMEOUT = 1200.0


class Transcripts:
    """Runs commands in parallel, and writes the output of each into a folder.

    Attributes:
        names: The names of the texts that were written.
        scratch: A temporary folder for files of the commands.
    """

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._folder = folder
        self.names: set[str] = set()
        self.scratch = Path(tempfile.mkdtemp(prefix="preserved-"))
        self._pool = ThreadPoolExecutor(max_workers=os.cpu_count())
        self._pending: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for future in self._pending:
                future.result()
        finally:
            self._pool.shutdown(cancel_futures=True)
            shutil.rmtree(self.scratch, ignore_errors=True)

    def record(self, name: str, *arguments: str, home: Path | None = None) -> None:
        """Run a command of spbench in the background, and write its output as ``name``."""
        self._pending.append(self._pool.submit(self._record, name, arguments, home))

    def write(self, name: str, text: str) -> None:
        """Write a text, without the names of this checkout and of temporary folders."""
        assert name not in self.names, f"{name} is written twice"
        self.names.add(name)
        (self._folder / name).write_text(self._normalize(text))

    def run(self, *arguments: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of spbench from this checkout's sources; return its result."""
        return subprocess.run(
            [sys.executable, "-m", "spbench", *arguments],
            cwd=ROOT,
            env=build_environment(home or self.scratch / "home"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )

    def _record(self, name: str, arguments: Sequence[str], home: Path | None) -> None:
        result = self.run(*arguments, home=home)
        parts = [f"$ spbench {shlex.join(arguments)}", f"exit {result.returncode}", result.stdout]
        if result.stderr:
            parts += ["--- stderr", result.stderr]
        self.write(name, "\n".join(parts))

    def _normalize(self, text: str) -> str:
        text = text.replace(sys.prefix, "PREFIX")  # first, since it may be below ROOT
        text = text.replace(str(self.scratch), "SCRATCH").replace(str(ROOT), "ROOT")
        return VERSION.sub("VERSION", BUSY.sub("", text))


def build_environment(home: Path) -> Mapping[str, str]:
    """Return an environment with the sources of this checkout in PYTHONPATH."""
    variables = {
        "PYTHONPATH": os.pathsep.join(map(str, SOURCES)),
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "SPBENCH_HOME": str(home),
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    return os.environ | ENVIRONMENT | variables
