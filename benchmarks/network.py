"""Slow networks: what is hidden, what is chosen, and how near the link's limit it all is.

    python -m benchmarks.network [--rates 1gbit,10gbit] [--rounds 5] [-k link]

Makes two hosts out of network namespaces of this machine, joined by links of the given rate, as the
tests do (root, sshd, iproute2), and runs suites/network.yaml over them through spbench. Both hosts
share this machine's cores, which carry what an adapter would carry: at 10 Gbit/s they are the
limit. Latency is that of the machine: this kernel has no netem.

The links are slowed by tbf, which lets a burst pass at once and then waits for its clock: with a
burst of less than 64 KiB a link of 1 Gbit/s carries half of that, and with one of less than 256 KiB
a link of 10 Gbit/s a third or less.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.goals import argument_parser, number
from benchmarks.two_hosts import RunPlace, two_hosts

SUITE = Path(__file__).parents[1] / "suites" / "network.yaml"
SHOWN = ("bandwidth_gb_s", "busbw_gb_s", "overlap", "images_per_second")
Case = Mapping[str, Any]


def main() -> None:
    """Measure at each rate and print a row for each case."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rates", default="1gbit,10gbit", help="rates of the hosts' links")
    parser.add_argument("--rounds", type=int, default=5, help="runs of the suite at each rate")
    parser.add_argument("-k", dest="cases", default="", help="cases, as spbench run -k has them")
    words = parser.parse_args()
    rows = []
    for rate in words.rates.split(","):
        with two_hosts(rate) as hosts:
            runs = [_cases(hosts, words.cases) for _ in range(words.rounds)]
        rows += [_row(rate, [run[name] for run in runs]) for name in runs[0]]
    print(
        "| link | case | ms | of the limit | seen | chosen |\n| --- | --- | --- | --- | --- | --- |"
    )
    print("\n".join(rows))


def _cases(hosts: RunPlace, selected: str) -> dict[str, Case]:
    """Run the suite over the hosts; return the report's cases by id."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "spbench", "run", str(SUITE), "--headless", "-q"]
        command += ["--home", f"{folder}/home", "--json", str(report), *hosts.words]
        command += ["-k", selected] if selected else []
        done = subprocess.run(
            command, env=hosts.environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"network: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return {case["id"]: case for case in json.loads(report.read_text())["cases"]}


def _row(rate: str, found: list[Case]) -> str:
    """A case over all rounds: medians; what was chosen last."""
    last = found[-1]
    time = median(case["metrics"]["time_ms"]["value"] for case in found)
    limits = [case["limits"].get("time_ms") for case in found]
    shares = [limit["value"] / time for limit in limits if limit and limit["value"]]
    share = f"{median(shares):.2f}" if shares else "-"
    seen = [
        f"{name} {number(median(case['metrics'][name]['value'] for case in found))}"
        for name in SHOWN
        if all(name in case["metrics"] for case in found)
    ]
    chosen = [f"{name} {choice['value']}" for name, choice in last.get("choices", {}).items()]
    cells = [rate, last["id"], number(time), share, ", ".join(seen) or "-", ", ".join(chosen)]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
