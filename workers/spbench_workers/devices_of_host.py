"""What this host has, found without loading torch: accelerators, adapters, cores and memory.

`doctor` sends this module's text to the hosts and runs it there under whatever Python they have:
standard library only, and words that Python 3.6 knows.
"""

import os
import re
from pathlib import Path

GPUS = Path("/proc/driver/nvidia/gpus")
DRIVER = Path("/proc/driver/nvidia/version")
ADAPTERS = Path("/sys/class/infiniband")
MEMORY = Path("/proc/meminfo")


def describe() -> str:
    """Return ``2 x NVIDIA H200``, or ``cpu`` where there is none."""
    return counted(gpus()) or "cpu"


def counted(names: "list[str]") -> str:
    """Return ``2 x NVIDIA H200, 1 x NVIDIA A100``; nothing for no names."""
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def gpus() -> "list[str]":
    """Return the kind of each GPU."""
    found = []
    for info in sorted(GPUS.glob("*/information")):
        fields = dict(line.split(":", 1) for line in _text(info).splitlines() if ":" in line)
        found.append(fields.get("Model", "GPU").strip())
    return found


def driver_version() -> "str | None":
    """Return the version of NVIDIA's kernel driver, ``580.82.07``; None where there is none."""
    found = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", _text(DRIVER))
    return found.group(1) if found else None


def adapters() -> "list[dict[str, str]]":
    """Return name, port, state and rate of each port of each InfiniBand or RoCE adapter.

    The kernel's words are kept: ``ACTIVE`` or ``DOWN``, ``200 Gb/sec (4X HDR)``.
    """
    return [
        {
            "name": port.parent.parent.name,
            "port": port.name,
            "state": _text(port / "state").partition(":")[2].strip() or "unknown",
            "rate": _text(port / "rate").strip(),
        }
        for port in sorted(ADAPTERS.glob("*/ports/*"))
    ]


def facts() -> "dict[str, object]":
    """Return cores that may be used, memory in GiB, load over a minute, GPUs and adapters."""
    memory = dict(line.split(":", 1) for line in _text(MEMORY).splitlines() if ":" in line)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": _gib(memory.get("MemTotal")),
        "free_gib": _gib(memory.get("MemAvailable")),
        "load": round(os.getloadavg()[0], 2),
        "gpus": gpus(),
        "adapters": adapters(),
    }


def _gib(kib: "str | None") -> "float | None":
    return round(int(kib.split()[0]) / 2**20, 1) if kib else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # the kernel refuses to read some attributes of a port that is down
        return ""
