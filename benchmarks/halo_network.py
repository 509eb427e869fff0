"""The share of an exchange that overlap hides between two hosts, where no core carries the data.

    python -m benchmarks.halo_network [--rates 100mbit]

Makes two hosts out of network namespaces of this machine, joined by links of the given rate, as the
tests do (root, sshd, iproute2), and runs halo.compute over them through spbench.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.goals import Figure, table

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]

LEAST_OVERLAP = 0.9
BURST = "16kb"
"""Much less than a message: it has to take the time that its bytes take at the link's rate."""
PARAMS = {
    "image_size": 512,
    "in_channels": 64,
    "out_channels": 64,
    "halo_len": 1,
    "slice_method": "horizontal",
    "num_spatial_parts": 2,
    "iterations": 10,
    "warmup": 1,
    "transport": "packed",
}
NAMES = ("overlap", "exchange_ms", "pack_ms", "wait_ms", "compute_ms", "time_ms")


def main() -> None:
    from cluster.hosts import started_hosts

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default="100mbit", help="rates of the hosts' links")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sp") as folder, started_hosts(Path(folder), 2) as made:
        path = f"{Path(sys.executable).parent}:{made.bin}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path}
        figures = []
        for rate in words.rates.split(","):
            one, other = (made.slowed(host, rate, BURST) for host in made.hosts)
            with one, other:
                cases = run(Path(folder), made.lines(), environment)
            figures += list_of(rate, cases)
    print(table(figures))


def run(folder: Path, hostfile: str, environment: dict[str, str]) -> dict[str, Any]:
    """Run both modes over the hosts; return the report's cases."""
    cases = [
        {"name": mode, "benchmark": "halo.compute", "params": PARAMS | {"overlap": mode}}
        for mode in ("on", "off")
    ]
    launch = {"bind": "none", "threads": 1}
    suite = {"schema": "spbench.suite/1", "name": "network", "launch": launch, "cases": cases}
    (folder / "suite.yaml").write_text(json.dumps(suite))
    (folder / "hostfile").write_text(hostfile)
    report = folder / "report.json"
    command = [sys.executable, "-m", "spbench", "run", str(folder / "suite.yaml"), "--headless"]
    command += ["--hostfile", str(folder / "hostfile"), "--home", str(folder / "home")]
    ended = subprocess.run(
        [*command, "--json", str(report)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        sys.exit(f"halo_network: exit {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return {case["id"]: case for case in json.loads(report.read_text())["cases"]}


def list_of(rate: str, cases: dict[str, Any]) -> list[Figure]:
    on, off = (cases[mode]["metrics"] for mode in ("on", "off"))
    units = {"overlap": ""}
    figures = [
        Figure(
            f"{rate}: {name}",
            on[name]["value"],
            units.get(name, "ms"),
            least=LEAST_OVERLAP if name == "overlap" else None,
        )
        for name in NAMES
    ]
    return [*figures, Figure(f"{rate}: time_ms, overlap off", off["time_ms"]["value"], "ms")]


if __name__ == "__main__":
    main()
