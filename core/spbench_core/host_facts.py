"""Facts of this host, found without loading torch: accelerators, adapters, cores and memory.

`doctor` sends this module's text to the hosts and runs it there under whatever Python they have:
standard library only, and words that Python 3.6 knows.
"""

import os
import re
from pathlib import Path

GPUS = Path("/proc/driver/nvidia/gpus")
DRIVER = Path("/proc/driver/nvidia/version")
PCI = Path("/sys/bus/pci/devices")
DEVICE_FILES = Path("/dev")
SHARED_MEMORY = Path("/dev/shm")
ADAPTERS = Path("/sys/class/infiniband")
MEMORY_INFO = Path("/proc/meminfo")
CPU_INFO = Path("/proc/cpuinfo")
MOUNTS = Path("/proc/mounts")
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
DRIVER_LIBRARY = "libcuda.so.1"
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"

_NVIDIA = "0x10de"
_DISPLAY = "0x03"
_OTHER_FILES = ("dxg", "nvgpu", "nvhost-gpu")

UNNAMED_GPU = "GPU"
UNLISTED_GPU = "a GPU that the kernel does not list"
"""A GPU of which nothing but a file of another name is seen, as under WSL and on Jetson."""


def describe_device() -> str:
    """Return ``2 x NVIDIA H200``, or ``cpu`` where there is none."""
    names = [str(card["model"]) for card in read_cards()] or [UNNAMED_GPU] * _files()
    return format_name_counts(names) or (UNLISTED_GPU if _other_files() else "cpu")


def format_name_counts(names: "list[str]") -> str:
    """Return ``2 x NVIDIA H200, 1 x NVIDIA A100``; nothing for no names."""
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def find_gpus() -> "dict[str, object]":
    """Return the GPUs of this host, their driver, and what of them this process may use.

    ``undriven`` are PCI addresses of NVIDIA's GPUs that its driver does not serve. ``files`` counts
    /dev/nvidia0 and so on; ``other_files`` tells of GPUs that have files of other names, under WSL
    and on Jetson. ``cuda`` is the newest CUDA that the driver's library takes, ``visible`` the
    variable that says which GPUs a process sees; both are None where there is none.
    """
    found = read_cards()
    known = [card["address"] for card in found]
    return {
        "cards": found,
        "undriven": [address for address in _on_the_bus() if address not in known],
        "files": _files(),
        "other_files": _other_files(),
        "driver": read_driver_version(),
        "cuda": read_driver_cuda(),
        "visible": os.environ.get(VISIBLE_DEVICES),
        "shared_gib": _room(),
    }


def read_cards() -> "list[dict[str, object]]":
    """Return model, PCI address, NUMA node and UUID of each GPU that NVIDIA's driver serves.

    The node and the UUID are None where the kernel does not tell them: until a process opens a
    GPU, its UUID is ``GPU-????????-????-????-????-????????????``.
    """
    found: list[dict[str, object]] = []
    for info in sorted(GPUS.glob("*/information")):
        fields = dict(line.split(":", 1) for line in _text(info).splitlines() if ":" in line)
        address = info.parent.name.lower()
        uuid = fields.get("GPU UUID", "").strip()
        found.append(
            {
                "model": fields.get("Model", UNNAMED_GPU).strip(),
                "address": address,
                "node": _node(PCI / address / "numa_node"),
                "uuid": None if "?" in uuid else uuid or None,
            }
        )
    return found


def read_driver_version() -> "str | None":
    """Return the version of NVIDIA's kernel driver, ``580.82.07``; None where there is none."""
    found = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", _text(DRIVER))
    return found.group(1) if found else None


def read_driver_cuda() -> "str | None":
    """Return the newest CUDA that the driver's library takes, ``13.0``; None without the library.

    It may be newer than the kernel's driver would say: NVIDIA's containers bring such libraries.
    """
    try:
        import ctypes  # a Python that was built without libffi has none

        number = ctypes.c_int(0)
        if ctypes.CDLL(DRIVER_LIBRARY).cuDriverGetVersion(ctypes.byref(number)):
            return None
    except (ImportError, OSError, AttributeError):
        return None
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _files() -> int:
    return len([path for path in DEVICE_FILES.glob("nvidia*") if path.name[6:].isdigit()])


def _other_files() -> bool:
    return any((DEVICE_FILES / name).exists() for name in _OTHER_FILES)


def _on_the_bus() -> "list[str]":
    return [
        path.name.lower()
        for path in sorted(PCI.glob("*"))
        if _text(path / "vendor").strip() == _NVIDIA and _text(path / "class").startswith(_DISPLAY)
    ]


def _node(path: Path) -> "int | None":
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _room() -> "float | None":
    """Return how large /dev/shm is, in GiB: NCCL's ranks on one host meet there."""
    try:
        told = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    return round(told.f_blocks * told.f_frsize / 2**30, 3)


def list_adapters() -> "list[dict[str, str]]":
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


def collect_facts() -> "dict[str, object]":
    """Return cores that may be used, memory in GiB, load over a minute, GPUs, adapters, limits.

    ``governor`` is the first core's, None where the kernel has none; limits are soft ones, memory
    that may be locked in bytes, None without a limit.
    """
    memory = dict(line.split(":", 1) for line in _text(MEMORY_INFO).splitlines() if ":" in line)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": _gib(memory.get("MemTotal")),
        "free_gib": _gib(memory.get("MemAvailable")),
        "load": round(os.getloadavg()[0], 2),
        "gpus": find_gpus(),
        "adapters": list_adapters(),
        "governor": _text(GOVERNOR).strip() or None,
        "limits": read_limits(),
    }


def read_processor() -> "str | None":
    """Return the model of the first CPU; None where the kernel does not name it."""
    try:
        with CPU_INFO.open("rb") as file:  # the whole of it takes long where CPUs are many
            head = file.read(2048).decode(errors="replace")
    except OSError:
        return None
    found = re.search(r"^model name\s*: *(.+)$", head, re.MULTILINE)
    return found.group(1).strip() if found else None


def read_limits() -> "dict[str, int | None]":
    """Return the soft limits of locked memory in bytes and of open files; None: there is none."""
    import resource

    soft = {
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    return {
        name: None if value == resource.RLIM_INFINITY else value for name, value in soft.items()
    }


def inspect_folder(path: str) -> "dict[str, object]":
    """Return number and file system of a folder; number None where it is not there.

    A folder that hosts share has the same number on all of them.
    """
    try:
        number = os.stat(path).st_ino if os.path.isdir(path) else None
    except OSError:
        number = None
    mounts = [line.split()[1:3] for line in _text(MOUNTS).splitlines() if len(line.split()) > 2]
    above = [(len(point), kind) for point, kind in mounts if _is_above(point, path)]
    return {"number": number, "filesystem": max(above)[1] if above else None}


def _is_above(point: str, path: str) -> bool:
    return (path + "/").startswith(point.rstrip("/") + "/")


def _gib(kib: "str | None") -> "float | None":
    return round(int(kib.split()[0]) / 2**20, 1) if kib else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # the kernel refuses to read some attributes of a port that is down
        return ""
