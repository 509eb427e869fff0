"""Asks a thousand made-up hosts what they have, by the real `spbench doctor --hostfile`.

    python benchmarks/hosts.py [HOSTS]

Prints how long it took, how many hosts were asked at once at most, the longest silence, and what
was found. Of each hundred hosts one refuses, one hangs and one has a core alone; ssh is a
stand-in that takes 0.3 s to log in. Exit 1 where it took over 30 s or was silent for over 2 s.
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

from quick_hosts import QuickHosts  # noqa: E402 - the folder is found above

LOGIN = 0.3
MOST_SECONDS = 30.0
MOST_SILENCE = 2.0


def made(hosts: QuickHosts, count: int) -> list[str]:
    """Make the hosts; return their names."""
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
    """Ask them, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hosts", nargs="?", type=int, default=1000, help="how many")
    count = parser.parse_args().hosts
    with tempfile.TemporaryDirectory() as folder:
        hosts = QuickHosts(Path(folder) / "quick", LOGIN)
        hostfile = Path(folder) / "hostfile"
        hostfile.write_text("".join(f"{name}\n" for name in made(hosts, count)))
        words = [sys.executable, "-m", "spbench", "doctor", "--hostfile", str(hostfile)]
        found = Path(folder) / "found"
        started = heard = time.monotonic()
        silence = 0.0
        most = 0
        with found.open("w") as output:
            process = subprocess.Popen(
                words, env=hosts.env, stdout=output, stderr=subprocess.PIPE, bufsize=0
            )
            assert process.stderr is not None
            os.set_blocking(process.stderr.fileno(), False)
            while process.poll() is None:
                most = max(most, len(os.listdir(hosts.now)))
                if process.stderr.read():
                    silence, heard = max(silence, time.monotonic() - heard), time.monotonic()
                time.sleep(0.05)
        seconds, silence = time.monotonic() - started, max(silence, time.monotonic() - heard)
        print(
            f"{count} hosts in {seconds:.1f} s, {most} at once, silent for {silence:.1f} s at most"
        )
        for line in found.read_text().splitlines()[count:]:
            print(line)
    return int(seconds > MOST_SECONDS or silence > MOST_SILENCE)


if __name__ == "__main__":
    sys.exit(main())
