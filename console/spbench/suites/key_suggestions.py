"""Suggestions for unknown keys of a suite, also by meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spbench.errors import did_you_mean
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS

_SYNONYMS_BY_KEY = {
    "np": "n ranks num_ranks nranks rank_count procs nprocs num_procs processes ntasks tasks",
    "repeat": "repeats repetitions reps runs launches times",
    "params": "parameters arguments options",
    "matrix": "sweep sweeps product",
    "expect": "expectations limits bounds thresholds",
    "benchmark": "bench program test type",
    "exclude": "skip",
    "name": "id title",
}
_KEY_BY_SYNONYM: Mapping[str, str] = {
    synonym: key for key, synonyms in _SYNONYMS_BY_KEY.items() for synonym in synonyms.split()
}


def is_synonym(word: str) -> bool:
    """Return whether a word means the same as a key of a case."""
    return word.lower().replace("-", "_") in _KEY_BY_SYNONYM


def is_parameter(word: str) -> bool:
    """Return whether a benchmark has a parameter with a name or alias."""
    return any(benchmark.find_param(word) for benchmark in BENCHMARKS.values())


def suggest_key(word: str, keys: Iterable[str]) -> str:
    """Return `` (did you mean X?)`` for the key that a word means, or an empty text."""
    known_keys = list(keys)
    key = _KEY_BY_SYNONYM.get(word.lower().replace("-", "_"))
    if key in known_keys:
        return f" (did you mean {key}?)"
    return did_you_mean(word, known_keys)


def suggest_launch_key(word: str) -> str:
    """Return `` (did you mean launch.X?)`` for a launch setting, or an empty text."""
    return f" (did you mean launch.{word}?)" if word in LaunchSettings.model_fields else ""
