"""Two hosts made of this machine's network namespaces, between which a benchmark runs suites."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]

BURSTS = {"10gbit": "256kb"}
BURST = "64kb"
"""No more than the rate needs: what is sent within a burst takes no time on the link."""


@dataclass(frozen=True)
class RunPlace:
    """A place where suites run: what `spbench run` is told of it, and its environment."""

    words: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


@contextmanager
def two_hosts(rate: str) -> Iterator[RunPlace]:
    """Yield two hosts with links of a rate between them (root, sshd, iproute2)."""
    from cluster.hosts import started_hosts

    with tempfile.TemporaryDirectory(prefix="sp") as folder, started_hosts(Path(folder), 2) as made:
        hostfile = Path(folder) / "hostfile"
        hostfile.write_text(made.lines())
        path = f"{Path(sys.executable).parent}:{made.bin}:{os.environ['PATH']}"
        one, other = (made.slowed(host, rate, BURSTS.get(rate, BURST)) for host in made.hosts)
        with one, other:
            yield RunPlace(
                ("--hostfile", str(hostfile), "--set", "launch.bind=none"),
                os.environ | {"PATH": path},
            )
