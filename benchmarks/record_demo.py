"""Records the run that `spbench tui --demo` plays, on four hosts of two ranks each.

    python -m benchmarks.record_demo

The hosts are network namespaces of this machine, as the tests make them (root, sshd, iproute2); the
link of one is slowed, and one case has a planted fault. Their names and this machine's folders are
written as node01 to node04, /demo and /opt/spbench. All times are those of ranks that share
this machine's cores: the demo shows the console, not the speed of anything.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.hosts import NetHosts

REPOSITORY = Path(__file__).parents[1]
sys.path[:0] = [str(REPOSITORY / "tests")]

DEMO = REPOSITORY / "console" / "spbench" / "demo"
HOSTS, SLOTS, SLOW = 4, 2, 2
KEPT = ("suite.yaml", "run.json", "events.jsonl")
SUITE = """\
schema: spbench.suite/1
name: demo
description: Four hosts, one with a slow link, and a case with a planted fault
launch: {bind: none, threads: 1}
cases:
  - name: memory
    benchmark: memory.copy
    params: {iterations: 20}
    np: 8
  - name: links
    benchmark: link.pingpong
    params: {sizes: [8, 4KiB, 64KiB], iterations: 5, warmup: 1}
    np: 8
  - name: exchange
    benchmark: halo.exchange
    params: {image_size: 256, halo_len: 3, in_channels: 3, iterations: 40}
    matrix:
      grid: [8x1, 2x4]
  - name: conv
    benchmark: halo.compute
    params: {image_size: 128, in_channels: 8, out_channels: 8, grid: 2x4, iterations: 20}
    matrix:
      overlap: [off, on]
  - name: damaged
    benchmark: halo.exchange
    params: {image_size: 65x96, halo_len: 1, grid: 2x4, iterations: 20}
  - name: fused
    benchmark: halo.fused
    params: {image_size: 128, num_layers: 4, fused_layers: 4, grid: 2x4, iterations: 20}
"""


def main() -> None:
    from cluster.hosts import started_hosts

    with (
        tempfile.TemporaryDirectory(prefix="sp") as name,
        started_hosts(Path(name), HOSTS) as made,
        made.slowed(made.hosts[SLOW], "40mbit", "64kb"),
    ):
        folder = Path(name)
        (folder / "demo.yaml").write_text(SUITE)
        (folder / "demo.hosts").write_text(made.aliases(SLOTS, HOSTS))
        path = f"{Path(sys.executable).parent}:{made.bin}:{os.environ['PATH']}"
        words = ["run", "demo.yaml", "--headless", "--hostfile", "demo.hosts", "--home", "home"]
        ended = subprocess.run(
            [sys.executable, "-m", "spbench", *words, "--inject", "corrupt-halo@damaged"],
            cwd=folder,
            env=os.environ | {"PATH": path},
            check=False,
        )
        if ended.returncode != 1:
            sys.exit(f"record_demo: exit {ended.returncode}, where 1 was due (the planted fault)")
        (run,) = (folder / "home" / "runs").iterdir()
        DEMO.mkdir(exist_ok=True)
        for kept in KEPT:
            (DEMO / kept).write_text(renamed((run / kept).read_text(), made, folder))


def renamed(text: str, made: NetHosts, folder: Path) -> str:
    """Return what was recorded with plain names for the made hosts and for folders."""
    for number, host in enumerate(made.hosts, 1):
        text = text.replace(host.name, f"node{number:02d}")
    return text.replace(str(folder), "/demo").replace(str(REPOSITORY), "/opt/spbench")


if __name__ == "__main__":
    main()
