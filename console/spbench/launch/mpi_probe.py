"""Probe of an interpreter's MPI library: the question, and the reader of its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spbench.errors import MissingError
from spbench.launch.gpus.facts import HostGpus, MpiMemory
from spbench_core.mpi_builds import parse_library_name

INSTALL = "pip install 'spbench[workers,mpi]'"

# torch takes a second to import, and MPI_Init may need a launcher: neither happens here
PROBE = r"""
import importlib.metadata, importlib.util, json, os, re
found = {"mpi4py": None, "library": None, "torch": None, "error": None, "worker": False}
found["worker"] = importlib.util.find_spec("spbench_workers") is not None
found["lacks"] = [name for name in ("numpy", "PIL") if importlib.util.find_spec(name) is None]
try:
    found["torch"] = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    pass
try:  # its version.py says which CUDA it is built for
    with open(os.path.join(importlib.util.find_spec("torch").submodule_search_locations[0],
                           "version.py")) as file:
        built = re.search(r"^cuda\b[^=\n]*=\s*(?:None|['\"]([\d.]+)['\"])", file.read(), re.M)
    found["torch_cuda"] = built and (built.group(1) or "")
except Exception:
    found["torch_cuda"] = None
try:
    from spbench_core import host_facts
    found["gpus"] = host_facts.find_gpus()
except Exception:
    found["gpus"] = None
try:
    import spbench
    found["spbench"] = spbench.__version__
except Exception:
    found["spbench"] = None
try:
    import mpi4py
    found["mpi4py"] = mpi4py.__version__
    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
    from mpi4py import MPI
    found["library"] = MPI.Get_library_version().splitlines()[0].strip("\0 ")
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
try:
    from spbench_parallel.device.mpi_memory import detect_cuda_awareness
    found["mpi_memory"] = detect_cuda_awareness(started=False)
except ImportError:
    found["mpi_memory"] = None
except Exception as error:
    found["mpi_memory"] = [None, str(error)]
print("spbench-probe " + json.dumps(found))
"""

_TITLES = {
    "openmpi": "Open MPI",
    "mpich": "MPICH",
    "intelmpi": "Intel MPI",
    "mvapich": "MVAPICH",
    "mvapich2": "MVAPICH2",
}
_MEMORY_IN_FOLDERS = frozenset({"openmpi"})
LIBRARIES = tuple(_TITLES)
"""The names of the MPI libraries that spbench knows."""
# what a library's version text holds; MVAPICH2's holds MVAPICH, so the order counts
_MARKS = (
    ("Open MPI", "openmpi"),
    ("Intel(R) MPI", "intelmpi"),
    ("MVAPICH2", "mvapich2"),
    ("MVAPICH", "mvapich"),
    ("MPICH", "mpich"),
)


class LackingError(MissingError):
    """An interpreter that lacks something: what it is, and how to fix it."""

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(f"{what}: {mend}")
        self.what = what
        self.mend = mend


@dataclass(frozen=True, slots=True)
class MpiLibrary:
    """The MPI library that the ranks load, and what else there is for them.

    Attributes:
        torch: The version of torch; None where there is none.
        torch_cuda: The CUDA that torch is built for; empty for a build without, None: not known.
        gpus: What their interpreter sees of GPUs; None where it has not told.
        mpi_memory: Whether MPI takes memory of a GPU, None where it says so in MPI_Init alone, and
            by what evidence.
        lacks: Modules of the extra ``workers`` that their interpreter has not, beside torch.
    """

    name: str
    version_text: str
    mpi4py: str = ""
    torch: str | None = None
    torch_cuda: str | None = None
    gpus: HostGpus | None = None
    mpi_memory: MpiMemory | None = None
    lacks: tuple[str, ...] = ()

    @property
    def keeps_memory_in_folders(self) -> bool:
        """Whether the shared memory of its ranks is in folders that the launcher names."""
        return self.name in _MEMORY_IN_FOLDERS

    @property
    def title(self) -> str:
        """Its name as its makers write it."""
        return _TITLES.get(self.name, self.name)


def probed_in(stdout: str) -> dict[str, Any] | None:
    """Return what the probe found, from among whatever else was printed; None: nothing."""
    for line in stdout.splitlines():
        # a setup line's output may end without a newline
        _, mark, told = line.partition("spbench-probe ")
        if mark:
            found: dict[str, Any] = json.loads(told)
            return found
    return None


def library_in(python: str, found: Mapping[str, Any]) -> MpiLibrary:
    """Return the library that a probe found.

    Raises:
        LackingError: mpi4py, its MPI library or the workers are missing.
    """
    if found["mpi4py"] is None:
        raise LackingError(f"{python} has no mpi4py", f"{python} -m {INSTALL}")
    if found["library"] is None:
        raise LackingError(
            f"mpi4py of {python} finds no MPI library ({found['error']})",
            f"{python} -m {INSTALL}, or load the cluster's MPI module",
        )
    if not found["worker"]:
        raise LackingError(
            f"{python} has no spbench_workers",
            f"{python} -m {INSTALL}, or set launch.env.PYTHONPATH to its folder",
        )
    text = parse_library_name(str(found["library"]))
    name = next((name for mark, name in _MARKS if mark in text), None)
    if name is None:
        raise LackingError(
            f"{python} loads an MPI library that spbench does not know, {text!r}",
            f"use one of {', '.join(_TITLES.values())}",
        )
    gpus = found.get("gpus")
    return MpiLibrary(
        name,
        text,
        str(found["mpi4py"]),
        found["torch"],
        found.get("torch_cuda"),
        HostGpus.of(gpus) if gpus else None,
        mpi_memory_in(found),
        tuple(found.get("lacks", ())),
    )


def mpi_memory_in(found: Mapping[str, Any]) -> MpiMemory | None:
    """Return whether MPI takes memory of a GPU, as a probe found, and by what evidence."""
    told = found.get("mpi_memory")
    return (told[0], str(told[1])) if told else None
