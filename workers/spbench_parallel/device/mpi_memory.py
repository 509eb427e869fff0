"""Whether the MPI library accepts GPU memory (CUDA awareness), with the evidence.

Needs only the standard library and mpi4py. A wrong yes ends in SIGSEGV or "Bad address", a wrong no
costs two copies. Therefore only clear evidence counts as yes. ``SPBENCH_CUDA_AWARE=0|1`` overrides
the detection.

- MVAPICH2: ``MV2_USE_CUDA=1``. Only the channel ch3:mrail reads it, and only if it was configured
  with CUDA; ch3:sock ignores it. mpirun_rsh sets it for the ranks. There
  ``MPIX_Query_cuda_support`` returns a constant of the build.
- Open MPI: ``MPIX_Query_cuda_support``, after MPI_Init.
- MPICH, MVAPICH 3 and 4: ``MPIX_GPU_query_support``, which ends the process before MPI_Init.
  MVAPICH 3 with ch3:mrail is handled like MVAPICH2, with ``MVP_USE_CUDA``. Cray MPICH also needs
  ``MPICH_GPU_SUPPORT_ENABLED=1``.
- Intel MPI: ``I_MPI_OFFLOAD``. CUDA is supported since 2021.11; before, only GPUs by Intel.
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
"""Whether MPI accepts device pointers (None: unknown before MPI_Init), and the reason."""

_MPIX_GPU_SUPPORT_CUDA = 0  # value in MPICH's mpi.h
_MRAIL = "ch3:mrail"
_FIRST_INTEL_WITH_CUDA = (2021, 11)


@dataclass(frozen=True, slots=True)
class QueryAnswers:
    """Answers of MPI's query functions; None if one is missing or was not called.

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
    """Return whether MPI accepts GPU memory, and the evidence as a clause.

    Args:
        started: Whether MPI_Init has been called. Most libraries must not be queried before it.
            Then the answer is None unless environment and version text settle it.
        environ: The environment of this process.

    Raises:
        CannotRunError: ``SPBENCH_CUDA_AWARE`` is neither 0 nor 1.
    """
    from mpi4py import MPI

    version = MPI.Get_library_version().strip("\0")
    return classify_library(version, _query_library(version, started), environ)


# The name in the probe of older consoles, which run it with the packages of a remote host.
cuda_aware = detect_cuda_awareness


def classify_library(
    version: str, answers: QueryAnswers, environ: Mapping[str, str]
) -> CudaAwareness:
    """Return whether a library accepts GPU memory, and the evidence.

    Args:
        version: The library's complete version text.
        answers: The answers of its query functions.
        environ: The environment of the rank.

    Raises:
        CannotRunError: ``SPBENCH_CUDA_AWARE`` is neither 0 nor 1.
    """
    override = environ.get(OVERRIDE_VARIABLE, "")
    if override not in ("", "0", "1"):
        raise CannotRunError(f"{OVERRIDE_VARIABLE} is {override!r}; give 0 or 1, or unset it")
    if override:
        return override == "1", f"{OVERRIDE_VARIABLE}={override}"
    rule = next((rule for name, rule in _RULES if name in version), None)
    if rule is None:
        return False, f"the library is not known: {version.splitlines()[0] if version else ''!r}"
    return rule(version, answers, environ)


def _classify_open_mpi(
    version: str, answers: QueryAnswers, environ: Mapping[str, str]
) -> CudaAwareness:
    return _classify_by_query("Open MPI", "MPIX_Query_cuda_support", answers.cuda, answers, environ)


def _classify_mpich(
    version: str, answers: QueryAnswers, environ: Mapping[str, str]
) -> CudaAwareness:
    return _classify_by_query("MPICH", "MPIX_GPU_query_support", answers.gpu, answers, environ)


def _classify_cray_mpich(
    version: str, answers: QueryAnswers, environ: Mapping[str, str]
) -> CudaAwareness:
    switch = "MPICH_GPU_SUPPORT_ENABLED"
    if environ.get(switch) != "1":
        return False, f"Cray MPICH: {_describe_variable(environ, switch)}, not 1"
    if answers.gpu is False:
        return False, f"Cray MPICH: MPIX_GPU_query_support says no, with {switch}=1"
    return True, f"Cray MPICH: {switch}=1"


def _classify_intel_mpi(
    version: str, answers: QueryAnswers, environ: Mapping[str, str]
) -> CudaAwareness:
    match = re.search(r"Library (\d{4})\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < _FIRST_INTEL_WITH_CUDA:
        return False, "Intel MPI: before 2021.11 it takes memory of Intel's GPUs alone"
    if environ.get("I_MPI_OFFLOAD", "0") in ("", "0"):
        return False, f"Intel MPI: {_describe_variable(environ, 'I_MPI_OFFLOAD')}, which is off"
    mode = environ.get("I_MPI_OFFLOAD_MODE", "auto")
    if mode not in ("auto", "cuda"):
        return False, f"Intel MPI: I_MPI_OFFLOAD_MODE={mode} is not for CUDA"
    return True, f"Intel MPI: I_MPI_OFFLOAD={environ['I_MPI_OFFLOAD']}"


def _classify_mvapich2(
    version: str, answers: QueryAnswers, environ: Mapping[str, str]
) -> CudaAwareness:
    return _classify_mrail("MVAPICH2", "MV2_USE_CUDA", version, answers, environ)


def _classify_mvapich(
    version: str, answers: QueryAnswers, environ: Mapping[str, str]
) -> CudaAwareness:
    if _channel_device(version) == _MRAIL:
        return _classify_mrail("MVAPICH", "MVP_USE_CUDA", version, answers, environ)
    if environ.get("MVP_ENABLE_GPU") == "0":
        return False, "MVAPICH: MVP_ENABLE_GPU=0"
    return _classify_by_query("MVAPICH", "MPIX_GPU_query_support", answers.gpu, answers, environ)


def _classify_mrail(
    name: str, switch: str, version: str, answers: QueryAnswers, environ: Mapping[str, str]
) -> CudaAwareness:
    """Classify a library that accepts GPU memory only over the channel ch3:mrail."""
    device = _channel_device(version)
    if device != _MRAIL:
        return False, f"{name}: its device is {device or 'not told'}, and {_MRAIL} alone takes it"
    if answers.cuda is False or not (answers.cuda or is_built_with_cuda(version)):
        return False, f"{name}: its {_MRAIL} was configured without CUDA"
    if switch not in environ and not answers.started:
        # Other launchers leave the variable to the user.
        return None, (
            f"{name}: by device pointers under mpirun_rsh, which sets {switch}=1 where it sees a "
            f"GPU; under other launchers by way of pinned host memory"
        )
    if environ.get(switch) != "1":
        return False, f"{name}: {_describe_variable(environ, switch)}, not 1"
    return True, f"{name}: {_MRAIL} configured with CUDA, and {switch}=1"


def _classify_by_query(
    name: str, query: str, answer: bool | None, answers: QueryAnswers, environ: Mapping[str, str]
) -> CudaAwareness:
    """Classify a library by its query function."""
    if answer is None:
        if not answers.started:
            return None, f"{name}: {query} tells after MPI_Init alone"
        return False, f"{name}: it has no {query}"
    if answer and (obstacle := _find_ucx_obstacle(environ)):
        return False, f"{name}: {query} says yes, but {obstacle}"
    return answer, f"{name}: {query} says {'yes' if answer else 'no'}"


def _channel_device(version: str) -> str:
    match = re.search(r"Device\s*:\s*(\S+)", version)
    return match[1] if match else ""


def _find_ucx_obstacle(environ: Mapping[str, str]) -> str:
    """Return the setting that keeps UCX from GPU memory; empty if there is none.

    UCX would crash with it.
    """
    value = environ.get("UCX_TLS", "")
    names = set(value.removeprefix("^").split(","))
    names_cuda = bool(names & {"cuda", "cuda_copy"})
    is_excluded = names_cuda if value.startswith("^") else not names_cuda and "all" not in names
    return f"UCX_TLS={value} leaves cuda_copy out" if value and is_excluded else ""


def _describe_variable(environ: Mapping[str, str], name: str) -> str:
    return f"{name} is {environ[name]!r}" if name in environ else f"{name} is not set"


_RULES: tuple[tuple[str, Callable[[str, QueryAnswers, Mapping[str, str]], CudaAwareness]], ...] = (
    ("Open MPI", _classify_open_mpi),
    ("Intel(R) MPI", _classify_intel_mpi),
    ("MVAPICH2", _classify_mvapich2),
    ("MVAPICH", _classify_mvapich),
    ("CRAY MPICH", _classify_cray_mpich),
    ("MPICH", _classify_mpich),
)
"""The rule of each library, by a name in its version text. Order matters: MVAPICH2 contains
MVAPICH, and CRAY MPICH contains MPICH."""


def _query_library(version: str, started: bool) -> QueryAnswers:
    """Call the query functions that are safe: before MPI_Init only MVAPICH2's."""
    if not (started or "MVAPICH2" in version):
        return QueryAnswers(started=False)
    return QueryAnswers(_query_cuda(), _query_gpu() if started else None, started)


def _query_cuda() -> bool | None:
    query = _find_function("MPIX_Query_cuda_support")
    if query is None:
        return None
    query.argtypes = ()
    query.restype = ctypes.c_int
    return bool(query())


def _query_gpu() -> bool | None:
    query = _find_function("MPIX_GPU_query_support")
    if query is None:
        return None
    supported = ctypes.c_int(0)
    query.argtypes = (ctypes.c_int, ctypes.POINTER(ctypes.c_int))
    query.restype = ctypes.c_int
    return None if query(_MPIX_GPU_SUPPORT_CUDA, ctypes.byref(supported)) else bool(supported.value)


def _find_function(name: str) -> Any:
    """Return a function of the MPI library; None if it has no such function."""
    from mpi4py import MPI

    # The symbol is in the library that mpi4py is linked to, or in any loaded library.
    for path in (MPI.__file__, None):
        try:
            return getattr(ctypes.CDLL(path), name)
        except (OSError, AttributeError):
            continue
    return None
