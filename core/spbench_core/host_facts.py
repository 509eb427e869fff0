"""Facts of this host, read without torch: GPUs, adapters, cores, memory.

`doctor` sends the source of this module to the hosts, and runs it with the Python of each host.
Therefore it uses the standard library only, and the syntax of Python 3.6.
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
"""A GPU of which only a device file with another name is visible, like under WSL and on Jetson."""


def describe_device() -> str:
    """Return the GPUs of this host, ``2 x NVIDIA H200``, or ``cpu``."""
    names = [str(card["model"]) for card in read_cards()] or [UNNAMED_GPU] * _count_device_files()
    return format_name_counts(names) or (UNLISTED_GPU if _has_other_files() else "cpu")


def format_name_counts(names: "list[str]") -> str:
    """Return ``2 x NVIDIA H200, 1 x NVIDIA A100``; an empty text without names."""
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def find_gpus() -> "dict[str, object]":
    """Return the GPUs of this host, their driver, and the limits of this process.

    ``undriven`` are PCI addresses of NVIDIA GPUs without a driver. ``files`` is the number of files
    /dev/nvidia0 and so on. ``other_files`` is whether GPUs have files of other names, like under
    WSL and on Jetson. ``cuda`` is the newest CUDA version that the driver's library supports, and
    ``visible`` the variable that limits the GPUs of a process; each may be None.
    """
    cards = read_cards()
    driven_addresses = [card["address"] for card in cards]
    return {
        "cards": cards,
        "undriven": [address for address in _list_pci_gpus() if address not in driven_addresses],
        "files": _count_device_files(),
        "other_files": _has_other_files(),
        "driver": read_driver_version(),
        "cuda": read_driver_cuda(),
        "visible": os.environ.get(VISIBLE_DEVICES),
        "shared_gib": _measure_shared_memory(),
    }


# The name in the probe of older consoles, which run it with the core of a remote host.
gpus = find_gpus


def read_cards() -> "list[dict[str, object]]":
    """Return model, PCI address, NUMA node and UUID of each GPU with an NVIDIA driver.

    The node and the UUID are None if the kernel does not report them. Until a process opens a GPU,
    its UUID is ``GPU-????????-????-????-????-????????????``.
    """
    cards: list[dict[str, object]] = []
    for path in sorted(GPUS.glob("*/information")):
        fields = dict(line.split(":", 1) for line in _read_text(path).splitlines() if ":" in line)
        address = path.parent.name.lower()
        uuid = fields.get("GPU UUID", "").strip()
        cards.append(
            {
                "model": fields.get("Model", UNNAMED_GPU).strip(),
                "address": address,
                "node": _read_number(PCI / address / "numa_node"),
                "uuid": None if "?" in uuid else uuid or None,
            }
        )
    return cards


def read_driver_version() -> "str | None":
    """Return the version of NVIDIA's kernel driver, such as ``580.82.07``, or None."""
    match = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", _read_text(DRIVER))
    return match.group(1) if match else None


def read_driver_cuda() -> "str | None":
    """Return the newest CUDA version of the driver's library, or None.

    It may be newer than the kernel driver's, because NVIDIA's containers include such libraries.
    """
    try:
        import ctypes  # missing in a Python that was built without libffi

        version_number = ctypes.c_int(0)
        if ctypes.CDLL(DRIVER_LIBRARY).cuDriverGetVersion(ctypes.byref(version_number)):
            return None
    except (ImportError, OSError, AttributeError):
        return None
    return f"{version_number.value // 1000}.{version_number.value % 1000 // 10}"


def _count_device_files() -> int:
    return len([path for path in DEVICE_FILES.glob("nvidia*") if path.name[6:].isdigit()])


def _has_other_files() -> bool:
    return any((DEVICE_FILES / name).exists() for name in _OTHER_FILES)


def _list_pci_gpus() -> "list[str]":
    """Return the PCI addresses of NVIDIA's display controllers."""
    return [
        path.name.lower()
        for path in sorted(PCI.glob("*"))
        if _read_text(path / "vendor").strip() == _NVIDIA
        and _read_text(path / "class").startswith(_DISPLAY)
    ]


def _read_number(path: Path) -> "int | None":
    text = _read_text(path).strip()
    return int(text) if text.isdigit() else None


def _measure_shared_memory() -> "float | None":
    """Return the size of /dev/shm in GiB; NCCL's ranks on a host need it."""
    try:
        status = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    return round(status.f_blocks * status.f_frsize / 2**30, 3)


def list_adapters() -> "list[dict[str, str]]":
    """Return name, port, state and rate of the ports of InfiniBand and RoCE.

    State and rate are the kernel's texts, such as ``ACTIVE`` and ``200 Gb/sec (4X HDR)``.
    """
    return [
        {
            "name": port.parent.parent.name,
            "port": port.name,
            "state": _read_text(port / "state").partition(":")[2].strip() or "unknown",
            "rate": _read_text(port / "rate").strip(),
        }
        for port in sorted(ADAPTERS.glob("*/ports/*"))
    ]


def collect_facts() -> "dict[str, object]":
    """Return cores, memory in GiB, load over one minute, GPUs and adapters.

    ``governor`` is the frequency governor of the first core, or None. ``limits`` are those of
    `read_limits`.
    """
    lines = _read_text(MEMORY_INFO).splitlines()
    memory_fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": _to_gib(memory_fields.get("MemTotal")),
        "free_gib": _to_gib(memory_fields.get("MemAvailable")),
        "load": round(os.getloadavg()[0], 2),
        "gpus": find_gpus(),
        "adapters": list_adapters(),
        "governor": _read_text(GOVERNOR).strip() or None,
        "limits": read_limits(),
    }


def read_processor() -> "str | None":
    """Return the model of the first CPU, or None if the kernel does not name it."""
    try:
        with CPU_INFO.open("rb") as file:  # reading all of it takes long on hosts with many CPUs
            first_bytes = file.read(2048).decode(errors="replace")
    except OSError:
        return None
    match = re.search(r"^model name\s*: *(.+)$", first_bytes, re.MULTILINE)
    return match.group(1).strip() if match else None


def read_limits() -> "dict[str, int | None]":
    """Return the soft limits of locked bytes and of open files; None: no limit."""
    import resource

    soft_limits = {
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    return {
        name: None if limit == resource.RLIM_INFINITY else limit
        for name, limit in soft_limits.items()
    }


def inspect_folder(path: str) -> "dict[str, object]":
    """Return inode number (None if it does not exist) and file system of a folder.

    A folder that hosts share has the same number on all of them.
    """
    try:
        inode_number = os.stat(path).st_ino if os.path.isdir(path) else None
    except OSError:
        inode_number = None
    lines = _read_text(MOUNTS).splitlines()
    points_and_types = [line.split()[1:3] for line in lines if len(line.split()) > 2]
    parent_lengths_and_types = [
        (len(mount_point), filesystem_type)
        for mount_point, filesystem_type in points_and_types
        if _is_parent(mount_point, path)
    ]
    return {
        "number": inode_number,
        "filesystem": max(parent_lengths_and_types)[1] if parent_lengths_and_types else None,
    }


def _is_parent(mount_point: str, path: str) -> bool:
    return (path + "/").startswith(mount_point.rstrip("/") + "/")


def _to_gib(kib: "str | None") -> "float | None":
    return round(int(kib.split()[0]) / 2**20, 1) if kib else None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # some attributes of a port that is down cannot be read
        return ""
