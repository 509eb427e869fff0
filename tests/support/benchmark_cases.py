"""Cases that tests give to the programs that run benchmarks."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BenchmarkCase:
    """A case of a benchmark, and the fault that is planted in it."""

    benchmark: str
    params: dict[str, Any]
    inject: str | None = None

    def list_arguments(self, hidden: Container[str]) -> list[str]:
        """Return its parameters as words, without those hidden."""
        return [f"{key}={value}" for key, value in self.params.items() if key not in hidden]
