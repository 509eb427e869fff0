"""Cases for the programs of tests that run benchmarks."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BenchmarkCase:
    """A case of a benchmark, with the fault that is injected into it."""

    benchmark: str
    params: dict[str, Any]
    inject: str | None = None

    def list_arguments(self, hidden: Container[str]) -> list[str]:
        """Return the parameters as ``KEY=VALUE``, without the hidden ones."""
        return [f"{key}={value}" for key, value in self.params.items() if key not in hidden]
