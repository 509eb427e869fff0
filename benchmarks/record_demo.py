"""Records the run of `spbench tui --demo`: two cores, four simulated hosts.

    python -m benchmarks.record_demo

The hosts are network namespaces of this machine, like those of the tests (needs root, sshd and
iproute2). Their names and this machine's folders are written as sim01 to sim04, /demo and
/opt/spbench. Each case has two ranks on two cores. Only the links are measured with four ranks, of
which two are busy at a time. One host has a slow link, one case a rank that is made slow, and one
case a planted wrong value. Run it on an idle machine: a recording with noise is rejected.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.goals import make_argument_parser

if TYPE_CHECKING:
    from support.cluster.hosts import HostNetwork

REPOSITORY = Path(__file__).parents[1]
sys.path[:0] = [str(REPOSITORY / "tests")]

DEMO = REPOSITORY / "console" / "spbench" / "demo"
HOSTS = 4
SLOW_LINK = 2
COPIED_FILES = ("suite.yaml", "run.json", "events.jsonl")
FAULTS = ("slow=2.5@stencil", "corrupt-halo@damaged")
SUITE = """\
schema: spbench.suite/1
name: demo
description: Four simulated hosts on one machine, with a slow link, a slow rank and a wrong value
launch: {bind: none, threads: 1}
cases:
  - name: memory
    benchmark: memory.copy
    params: {iterations: 100}
    np: 2
  - name: links
    benchmark: link.pingpong
    params: {sizes: [8, 4KiB, 64KiB], iterations: 20, warmup: 5}
    np: 4
  - name: exchange
    benchmark: halo.exchange
    params: {image_size: 512, halo_len: 3, in_channels: 3, iterations: 300}
    matrix:
      grid: [2x1, 1x2]
  - name: conv
    benchmark: halo.compute
    params: {image_size: 512, in_channels: 8, out_channels: 8, grid: 2x1, iterations: 60}
    matrix:
      overlap: [off, on]
  - name: stencil
    benchmark: halo.compute
    params: {image_size: 512, in_channels: 8, out_channels: 8, grid: 1x2, iterations: 60}
  - name: damaged
    benchmark: halo.exchange
    params: {image_size: 65x96, halo_len: 1, grid: 1x2, iterations: 100}
  - name: fused
    benchmark: halo.fused
    params: {image_size: 256, num_layers: 4, fused_layers: 4, grid: 1x2, iterations: 40}
"""


def main() -> None:
    make_argument_parser(__doc__).parse_args()
    from support.cluster.hosts import start_hosts

    with (
        tempfile.TemporaryDirectory(prefix="sp") as name,
        start_hosts(Path(name), HOSTS) as network,
        network.limit_rate(network.hosts[SLOW_LINK], "40mbit", "64kb"),
    ):
        folder = Path(name)
        (folder / "demo.yaml").write_text(SUITE)
        (folder / "demo.hosts").write_text(network.render_alias_hostfile(1, HOSTS))
        path = f"{Path(sys.executable).parent}:{network.bin}:{os.environ['PATH']}"
        arguments = ["run", "demo.yaml", "--headless", "--hostfile", "demo.hosts", "--home", "home"]
        faults = [argument for fault in FAULTS for argument in ("--inject", fault)]
        completed = subprocess.run(
            [sys.executable, "-m", "spbench", *arguments, *faults],
            cwd=folder,
            env=os.environ | {"PATH": path},
            check=False,
        )
        if completed.returncode != 1:
            sys.exit(f"record_demo: exit {completed.returncode}, expected 1 (the planted faults)")
        (run,) = (folder / "home" / "runs").iterdir()
        if noisy := list_noisy_cases(run):
            sys.exit(f"record_demo: other work disturbed {', '.join(noisy)}; run it again")
        DEMO.mkdir(exist_ok=True)
        for file_name in COPIED_FILES:
            (DEMO / file_name).write_text(
                replace_names((run / file_name).read_text(), network, folder)
            )


def list_noisy_cases(run: Path) -> list[str]:
    """Return the ids of the cases of a run that other work has disturbed."""
    report = json.loads((run / "report.json").read_text())
    return [case["id"] for case in report["cases"] if case["noisy"] and case["np"] <= 2]


def replace_names(text: str, network: HostNetwork, folder: Path) -> str:
    """Return a recorded text with plain names for the simulated hosts and for folders."""
    for number, host in enumerate(network.hosts, 1):
        text = text.replace(host.name, f"sim{number:02d}")
    return text.replace(str(folder), "/demo").replace(str(REPOSITORY), "/opt/spbench")


if __name__ == "__main__":
    main()
