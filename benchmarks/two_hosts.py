"""Two hosts from this machine's network namespaces, between which suites run."""

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
"""The minimum for the rate, because data within a burst takes no time on the link."""


@dataclass(frozen=True)
class RunTarget:
    """The hosts of a run: options of `spbench run`, and its environment."""

    options: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


@contextmanager
def two_hosts(rate: str) -> Iterator[RunTarget]:
    """Yield two hosts with links of a rate between them (root, sshd, iproute2)."""
    from support.cluster.hosts import start_hosts

    with (
        tempfile.TemporaryDirectory(prefix="sp") as folder,
        start_hosts(Path(folder), 2) as network,
    ):
        hostfile = Path(folder) / "hostfile"
        hostfile.write_text(network.render_hostfile())
        path = f"{Path(sys.executable).parent}:{network.bin}:{os.environ['PATH']}"
        first_link, second_link = (
            network.limit_rate(host, rate, BURSTS.get(rate, BURST)) for host in network.hosts
        )
        with first_link, second_link:
            yield RunTarget(
                ("--hostfile", str(hostfile), "--set", "launch.bind=none"),
                os.environ | {"PATH": path},
            )
