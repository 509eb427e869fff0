"""Slow networks: the overlap, the choices, and the share of the link's limit.

    python -m benchmarks.network [--rates 1gbit,10gbit] [--rounds 5] [-k link]

Creates two hosts from network namespaces of this machine, joined by links of the given rate, like
the tests (needs root, sshd and iproute2). Then it runs suites/network.yaml over them with spbench.
Both hosts share this machine's cores, which do the work of network adapters: at 10 Gbit/s the cores
are the limit. The latency is that of the machine, because this kernel has no netem.

The links are slowed by tbf, which passes a burst immediately and then waits for its clock. With a
burst of less than 64 KiB a link of 1 Gbit/s has half of its rate. With less than 256 KiB a link of
10 Gbit/s has a third or less.
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

from benchmarks.goals import format_number, make_argument_parser
from benchmarks.two_hosts import RunTarget, two_hosts

SUITE = Path(__file__).parents[1] / "suites" / "network.yaml"
SHOWN = ("bandwidth_gb_s", "busbw_gb_s", "overlap", "images_per_second")
Case = Mapping[str, Any]


def main() -> None:
    """Measure at each rate and print a row for each case."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("--rates", default="1gbit,10gbit", help="rates of the hosts' links")
    parser.add_argument("--rounds", type=int, default=5, help="runs of the suite at each rate")
    parser.add_argument("-k", dest="cases", default="", help="cases, as spbench run -k has them")
    options = parser.parse_args()
    rows = []
    for rate in options.rates.split(","):
        with two_hosts(rate) as hosts:
            runs = [_run_suite(hosts, options.cases) for _ in range(options.rounds)]
        rows += [_format_row(rate, [run[name] for run in runs]) for name in runs[0]]
    print(
        "| link | case | ms | of the limit | seen | chosen |\n| --- | --- | --- | --- | --- | --- |"
    )
    print("\n".join(rows))


def _run_suite(hosts: RunTarget, selected: str) -> dict[str, Case]:
    """Run the suite over the hosts; return the report's cases by id."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "spbench", "run", str(SUITE), "--headless", "-q"]
        command += ["--home", f"{folder}/home", "--json", str(report), *hosts.options]
        command += ["-k", selected] if selected else []
        completed = subprocess.run(
            command, env=hosts.environ, capture_output=True, text=True, check=False
        )
        if completed.returncode:
            sys.exit(f"network: exit {completed.returncode}\n{completed.stdout}{completed.stderr}")
        return {case["id"]: case for case in json.loads(report.read_text())["cases"]}


def _format_row(rate: str, cases: list[Case]) -> str:
    """Return a case's row over all rounds: medians, and the choices of the last round."""
    last = cases[-1]
    time = median(case["metrics"]["time_ms"]["value"] for case in cases)
    limits = [case["limits"].get("time_ms") for case in cases]
    shares = [limit["value"] / time for limit in limits if limit and limit["value"]]
    share = f"{median(shares):.2f}" if shares else "-"
    measured = [
        f"{name} {format_number(median(case['metrics'][name]['value'] for case in cases))}"
        for name in SHOWN
        if all(name in case["metrics"] for case in cases)
    ]
    choices = [f"{name} {choice['value']}" for name, choice in last.get("choices", {}).items()]
    cells = [
        rate,
        last["id"],
        format_number(time),
        share,
        ", ".join(measured) or "-",
        ", ".join(choices),
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
