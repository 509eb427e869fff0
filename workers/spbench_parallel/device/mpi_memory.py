"""CUDA awareness of the MPI library, with the evidence. Standard library only, but for mpi4py.

A wrong yes ends in SIGSEGV or "Bad address", a wrong no costs two copies: so only clear evidence
counts. ``SPBENCH_CUDA_AWARE=0|1`` overrules it.

- MVAPICH2: ``MV2_USE_CUDA=1``, which the channel ch3:mrail alone reads, and that only where it was
  configured with CUDA; over ch3:sock it changes nothing. mpirun_rsh sets it for the ranks.
  ``MPIX_Query_cuda_support`` is a constant of the build there.
- Open MPI: ``MPIX_Query_cuda_support``, after MPI_Init.
- MPICH, MVAPICH 3 and 4: ``MPIX_GPU_query_support``, which ends the process before MPI_Init; of
  MVAPICH 3 with ch3:mrail as MVAPICH2, by ``MVP_USE_CUDA``. Cray's MPICH wants
  ``MPICH_GPU_SUPPORT_ENABLED=1`` as well.
- Intel MPI: ``I_MPI_OFFLOAD``; CUDA since 2021.11, before that GPUs of Intel's.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spbench_core.mpi_builds import is_built_with_cuda
from spbench_parallel.errors import CannotRunError

OVERRIDE_VARIABLE = "SPBENCH_CUDA_AWARE"
CudaAwareness = tuple[bool | None, str]
"""Whether MPI takes device pointers, None where it cannot be known before MPI_Init; and why."""

_CUDA = 0
"""MPIX_GPU_SUPPORT_CUDA of MPICH's mpi.h."""
_RAIL = "ch3:mrail"
_INTEL_WITH_CUDA = (2021, 11)


@dataclass(frozen=True, slots=True)
class QueryAnswers:
    """The answers of MPI's own functions; None where one is missing or was not called.

    Attributes:
        cuda: ``MPIX_Query_cuda_support()``.
        gpu: ``MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA)``.
        started: Whether MPI_Init had been called.
    """

    cuda: bool | None = None
    gpu: bool | None = None
    started: bool = True


def detect_cuda_awareness(
    *, started: bool = True, environ: Mapping[str, str] = os.environ
) -> CudaAwareness:
    """Return whether MPI takes memory of a GPU, and the evidence, as a clause.

    Args:
        started: Whether MPI_Init has been called. Before it most libraries must not be asked, and
            the answer is None where environment and version text alone do not settle it.
        environ: This process's environment.

    Raises:
        CannotRunError: ``SPBENCH_CUDA_AWARE`` is neither 0 nor 1.
    """
    from mpi4py import MPI

    version = MPI.Get_library_version().strip("\0")
    return classify_library(version, _answers(version, started), environ)


def classify_library(
    version: str, answers: QueryAnswers, environ: Mapping[str, str]
) -> CudaAwareness:
    """Return whether a library takes memory of a GPU, and the evidence.

    Args:
        version: The whole of the library's version text.
        answers: The answers of its functions.
        environ: The environment of the rank.

    Raises:
        CannotRunError: ``SPBENCH_CUDA_AWARE`` is neither 0 nor 1.
    """
    overruling = environ.get(OVERRIDE_VARIABLE, "")
    if overruling not in ("", "0", "1"):
        raise CannotRunError(f"{OVERRIDE_VARIABLE} is {overruling!r}; give 0 or 1, or unset it")
    if overruling:
        return overruling == "1", f"{OVERRIDE_VARIABLE}={overruling}"
    rule = next((rule for name, rule in _RULES if name in version), None)
    if rule is None:
        return False, f"the library is not known: {version.splitlines()[0] if version else ''!r}"
    return rule(version, answers, environ)


def _of_open_mpi(version: str, answers: QueryAnswers, environ: Mapping[str, str]) -> CudaAwareness:
    return _by_query("Open MPI", "MPIX_Query_cuda_support", answers.cuda, answers, environ)


def _of_mpich(version: str, answers: QueryAnswers, environ: Mapping[str, str]) -> CudaAwareness:
    return _by_query("MPICH", "MPIX_GPU_query_support", answers.gpu, answers, environ)


def _of_cray(version: str, answers: QueryAnswers, environ: Mapping[str, str]) -> CudaAwareness:
    switch = "MPICH_GPU_SUPPORT_ENABLED"
    if environ.get(switch) != "1":
        return False, f"Cray MPICH: {_said(environ, switch)}, not 1"
    if answers.gpu is False:
        return False, f"Cray MPICH: MPIX_GPU_query_support says no, with {switch}=1"
    return True, f"Cray MPICH: {switch}=1"


def _of_intel(version: str, answers: QueryAnswers, environ: Mapping[str, str]) -> CudaAwareness:
    found = re.search(r"Library (\d{4})\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < _INTEL_WITH_CUDA:
        return False, "Intel MPI: before 2021.11 it takes memory of Intel's GPUs alone"
    if environ.get("I_MPI_OFFLOAD", "0") in ("", "0"):
        return False, f"Intel MPI: {_said(environ, 'I_MPI_OFFLOAD')}, which is off"
    mode = environ.get("I_MPI_OFFLOAD_MODE", "auto")
    if mode not in ("auto", "cuda"):
        return False, f"Intel MPI: I_MPI_OFFLOAD_MODE={mode} is not for CUDA"
    return True, f"Intel MPI: I_MPI_OFFLOAD={environ['I_MPI_OFFLOAD']}"


def _of_mvapich2(version: str, answers: QueryAnswers, environ: Mapping[str, str]) -> CudaAwareness:
    return _by_rail("MVAPICH2", "MV2_USE_CUDA", version, answers, environ)


def _of_mvapich(version: str, answers: QueryAnswers, environ: Mapping[str, str]) -> CudaAwareness:
    if _device(version) == _RAIL:
        return _by_rail("MVAPICH", "MVP_USE_CUDA", version, answers, environ)
    if environ.get("MVP_ENABLE_GPU") == "0":
        return False, "MVAPICH: MVP_ENABLE_GPU=0"
    return _by_query("MVAPICH", "MPIX_GPU_query_support", answers.gpu, answers, environ)


def _by_rail(
    name: str, switch: str, version: str, answers: QueryAnswers, environ: Mapping[str, str]
) -> CudaAwareness:
    """Return the answer for a library whose only channel for GPUs is ch3:mrail."""
    device = _device(version)
    if device != _RAIL:
        return False, f"{name}: its device is {device or 'not told'}, and {_RAIL} alone takes it"
    if answers.cuda is False or not (answers.cuda or is_built_with_cuda(version)):
        return False, f"{name}: its {_RAIL} was configured without CUDA"
    if switch not in environ and not answers.started:
        # other launchers leave it to the user
        return None, (
            f"{name}: by device pointers under mpirun_rsh, which sets {switch}=1 where it sees a "
            f"GPU; under other launchers by way of pinned host memory"
        )
    if environ.get(switch) != "1":
        return False, f"{name}: {_said(environ, switch)}, not 1"
    return True, f"{name}: {_RAIL} configured with CUDA, and {switch}=1"


def _by_query(
    name: str, query: str, answer: bool | None, answers: QueryAnswers, environ: Mapping[str, str]
) -> CudaAwareness:
    """Return the answer for a library by its own query function."""
    if answer is None:
        if not answers.started:
            return None, f"{name}: {query} tells after MPI_Init alone"
        return False, f"{name}: it has no {query}"
    if answer and (lacking := _without_cuda_in_ucx(environ)):
        return False, f"{name}: {query} says yes, but {lacking}"
    return answer, f"{name}: {query} says {'yes' if answer else 'no'}"


def _device(version: str) -> str:
    found = re.search(r"Device\s*:\s*(\S+)", version)
    return found[1] if found else ""


def _without_cuda_in_ucx(environ: Mapping[str, str]) -> str:
    """Return in words the setting that keeps UCX from memory of a GPU; it would crash with it."""
    value = environ.get("UCX_TLS", "")
    names = set(value.removeprefix("^").split(","))
    named = bool(names & {"cuda", "cuda_copy"})
    lacks = named if value.startswith("^") else not named and "all" not in names
    return f"UCX_TLS={value} leaves cuda_copy out" if value and lacks else ""


def _said(environ: Mapping[str, str], name: str) -> str:
    return f"{name} is {environ[name]!r}" if name in environ else f"{name} is not set"


_RULES: tuple[tuple[str, Callable[[str, QueryAnswers, Mapping[str, str]], CudaAwareness]], ...] = (
    ("Open MPI", _of_open_mpi),
    ("Intel(R) MPI", _of_intel),
    ("MVAPICH2", _of_mvapich2),
    ("MVAPICH", _of_mvapich),
    ("CRAY MPICH", _of_cray),
    ("MPICH", _of_mpich),
)
"""The rule of each library, by a name in its version text; some hold the names of later ones."""


def _answers(version: str, started: bool) -> QueryAnswers:
    """Call the query functions that may be called: before MPI_Init only MVAPICH2's."""
    if not (started or "MVAPICH2" in version):
        return QueryAnswers(started=False)
    return QueryAnswers(_query_cuda(), _query_gpu() if started else None, started)


def _query_cuda() -> bool | None:
    query = _function("MPIX_Query_cuda_support")
    if query is None:
        return None
    query.argtypes = ()
    query.restype = ctypes.c_int
    return bool(query())


def _query_gpu() -> bool | None:
    query = _function("MPIX_GPU_query_support")
    if query is None:
        return None
    supported = ctypes.c_int(0)
    query.argtypes = (ctypes.c_int, ctypes.POINTER(ctypes.c_int))
    query.restype = ctypes.c_int
    return None if query(_CUDA, ctypes.byref(supported)) else bool(supported.value)


def _function(name: str) -> Any:
    """Return a function of the MPI library; None where it does not have it."""
    from mpi4py import MPI

    # The symbol is in the library that mpi4py was loaded with, or among all that are loaded.
    for path in (MPI.__file__, None):
        try:
            return getattr(ctypes.CDLL(path), name)
        except (OSError, AttributeError):
            continue
    return None
