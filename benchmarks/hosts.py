"""Checks a thousand simulated hosts with the real `spbench doctor --hostfile`.

    python benchmarks/hosts.py [HOSTS]

Prints the duration, the maximum of hosts asked at the same time, the longest silence, and the
findings. In each hundred hosts, one refuses, one hangs and one has a single core. ssh is a stand-in
that takes 0.3 s to log in. The exit code is 1 after more than 30 s, or with a silence of more than
2 s.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.quick_hosts import QuickHosts  # noqa: E402 - the folder is found above

LOGIN_SECONDS = 0.3
MAX_SECONDS = 30.0
MAX_SILENCE = 2.0


def add_hosts(hosts: QuickHosts, count: int) -> list[str]:
    """Add simulated hosts; return their names."""
    names = [f"node{number:04}" for number in range(count)]
    for number, name in enumerate(names):
        match number % 100:
            case 17:
                hosts.refuse(name)
            case 42:
                hosts.hang(name)
            case 73:
                hosts.add(name, cores=1)
            case _:
                hosts.add(name)
    return names


def main() -> int:
    """Run the command, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hosts", nargs="?", type=int, default=1000, help="how many")
    count = parser.parse_args().hosts
    with tempfile.TemporaryDirectory() as folder:
        hosts = QuickHosts(Path(folder) / "quick", LOGIN_SECONDS)
        hostfile = Path(folder) / "hostfile"
        hostfile.write_text("".join(f"{name}\n" for name in add_hosts(hosts, count)))
        command = [sys.executable, "-m", "spbench", "doctor", "--hostfile", str(hostfile)]
        findings = Path(folder) / "found"
        started = last_output = time.monotonic()
        silence = 0.0
        most_at_once = 0
        with findings.open("w") as output:
            process = subprocess.Popen(
                command, env=hosts.env, stdout=output, stderr=subprocess.PIPE, bufsize=0
            )
            assert process.stderr is not None
            os.set_blocking(process.stderr.fileno(), False)
            while process.poll() is None:
                most_at_once = max(most_at_once, len(os.listdir(hosts.active_logins)))
                if process.stderr.read():
                    now = time.monotonic()
                    silence = max(silence, now - last_output)
                    last_output = now
                time.sleep(0.05)
        seconds = time.monotonic() - started
        silence = max(silence, time.monotonic() - last_output)
        print(
            f"{count} hosts in {seconds:.1f} s, {most_at_once} at once, "
            f"silent for {silence:.1f} s at most"
        )
        for line in findings.read_text().splitlines()[count:]:
            print(line)
    return int(seconds > MAX_SECONDS or silence > MAX_SILENCE)


if __name__ == "__main__":
    sys.exit(main())
