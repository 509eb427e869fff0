"""The probe of an interpreter's MPI library: its program and its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spbench.errors import MissingError
from spbench.launch.gpus.facts import HostGpus, MpiMemory
from spbench_core.mpi_builds import parse_library_name

INSTALL = "pip install 'spbench[workers,mpi]'"

# torch takes a second to import, and MPI_Init may need a launcher: the probe does neither.
# A remote host may have older packages: it uses only functions that these have, too.
PROBE = r"""
import importlib.metadata, importlib.util, json, os, re
found = {"mpi4py": None, "library": None, "torch": None, "error": None, "worker": False}
found["worker"] = importlib.util.find_spec("spbench_workers") is not None
modules = ("numpy", "PIL", "pynvml")
found["lacks"] = [name for name in modules if importlib.util.find_spec(name) is None]
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
    found["gpus"] = host_facts.gpus()
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
    from spbench_parallel.device.mpi_memory import cuda_aware
    found["mpi_memory"] = cuda_aware(started=False)
except ImportError:
    found["mpi_memory"] = None
except Exception as error:
    found["mpi_memory"] = [None, str(error)]
print("spbench-probe " + json.dumps(found))
"""

_TITLE_BY_LIBRARY = {
    "openmpi": "Open MPI",
    "mpich": "MPICH",
    "intelmpi": "Intel MPI",
    "mvapich": "MVAPICH",
    "mvapich2": "MVAPICH2",
}
_MEMORY_IN_FOLDERS = frozenset({"openmpi"})
LIBRARIES = tuple(_TITLE_BY_LIBRARY)
"""The names of the MPI libraries that spbench knows."""
VERSION_BY_LIBRARY = {
    "openmpi": "5.0",
    "mpich": "4.2",
    "intelmpi": "2021.18",
    "mvapich": "4.0",
    "mvapich2": "2.3.7",
}
"""The version that is assumed if only the name of a library is given."""
# Marks in the library's version text. MVAPICH2's contains "MVAPICH", so the order matters.
_NAME_BY_VERSION_MARK = (
    ("Open MPI", "openmpi"),
    ("Intel(R) MPI", "intelmpi"),
    ("MVAPICH2", "mvapich2"),
    ("MVAPICH", "mvapich"),
    ("MPICH", "mpich"),
)


class IncompleteInterpreterError(MissingError):
    """An interpreter lacks something: the problem, and its remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}: {remedy}")
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class MpiLibrary:
    """The MPI library that the ranks load, and other software of their interpreter.

    Attributes:
        torch: The version of torch; None if it is missing.
        torch_cuda: The CUDA version of torch's build; empty for a CPU build, None if unknown.
        gpus: The GPUs that the interpreter sees; None if it did not report them.
        mpi_memory: Whether MPI accepts memory of a GPU, with the evidence.
        lacks: Missing modules of the extras ``workers`` and ``gpu``, except torch.
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
        """Whether its ranks' shared memory is in folders that the launcher chooses."""
        return self.name in _MEMORY_IN_FOLDERS

    @property
    def title(self) -> str:
        """The name that its developers use."""
        return _TITLE_BY_LIBRARY.get(self.name, self.name)


def parse_probe(stdout: str) -> dict[str, Any] | None:
    """Return the probe's answer from the output of its command; None if there is none."""
    for line in stdout.splitlines():
        # the output of a setup line may end without a newline
        _, mark, text = line.partition("spbench-probe ")
        if mark:
            answer: dict[str, Any] = json.loads(text)
            return answer
    return None


def read_library(python: str, answer: Mapping[str, Any]) -> MpiLibrary:
    """Return the library that the answer of a probe describes.

    Raises:
        IncompleteInterpreterError: mpi4py, its MPI library or the workers are missing.
    """
    if answer["mpi4py"] is None:
        raise IncompleteInterpreterError(f"{python} has no mpi4py", f"{python} -m {INSTALL}")
    if answer["library"] is None:
        raise IncompleteInterpreterError(
            f"mpi4py of {python} finds no MPI library ({answer['error']})",
            f"{python} -m {INSTALL}, or load the cluster's MPI module",
        )
    if not answer["worker"]:
        raise IncompleteInterpreterError(
            f"{python} has no spbench_workers",
            f"{python} -m {INSTALL}, or set launch.env.PYTHONPATH to its folder",
        )
    text = parse_library_name(str(answer["library"]))
    name = next((name for mark, name in _NAME_BY_VERSION_MARK if mark in text), None)
    if name is None:
        raise IncompleteInterpreterError(
            f"{python} loads an MPI library that spbench does not know, {text!r}",
            f"use one of {', '.join(_TITLE_BY_LIBRARY.values())}",
        )
    gpus = answer.get("gpus")
    return MpiLibrary(
        name,
        text,
        str(answer["mpi4py"]),
        answer["torch"],
        answer.get("torch_cuda"),
        HostGpus.from_answer(gpus) if gpus else None,
        read_mpi_memory(answer),
        tuple(answer.get("lacks", ())),
    )


def read_mpi_memory(answer: Mapping[str, Any]) -> MpiMemory | None:
    """Return whether MPI accepts memory of a GPU, with the evidence; None if unknown."""
    answer_and_evidence = answer.get("mpi_memory")
    return (answer_and_evidence[0], str(answer_and_evidence[1])) if answer_and_evidence else None
