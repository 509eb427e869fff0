"""The catalog: parameters, rank counts, metrics and faults of all benchmarks.

A new benchmark is one folder with an ``entry.py`` in `FAMILIES`, or a plug-in. The entries of a
family are imported on demand, because most commands and all ranks need few of them.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

from spbench_core.catalog import registration
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.planted_fault import FACTOR_FAULT, MAX_FACTOR, parse_fault


class Catalog(MutableMapping[str, Benchmark]):
    """The entries by name: those of spbench by family, then those of plug-ins.

    A name is looked up in its family only. Plug-ins are loaded only if spbench has no entry of that
    name, or if all entries are listed.
    """

    def __init__(self) -> None:
        self._families: dict[str, dict[str, Benchmark]] = {}
        self._plugin_entries: dict[str, Benchmark] | None = None

    def __getitem__(self, name: str) -> Benchmark:
        entries = self._load_family(name)
        return entries[name] if name in entries else self._load_plugins()[name]

    def __setitem__(self, name: str, entry: Benchmark) -> None:
        self._load_family(name)[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._load_family(name)[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._load_own_entries()
        yield from self._load_plugins()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _load_own_entries(self) -> dict[str, Benchmark]:
        families = dict.fromkeys([*registration.list_families(), *self._families])
        return {
            name: entry for family in families for name, entry in self._load_family(family).items()
        }

    def _load_plugins(self) -> dict[str, Benchmark]:
        if self._plugin_entries is None:
            self._plugin_entries = registration.load_plugin_entries(self._load_own_entries())
        return self._plugin_entries

    def _load_family(self, name: str) -> dict[str, Benchmark]:
        """Return the entries of a benchmark's family; empty if spbench has no such family."""
        family = name.partition(".")[0]
        if family not in self._families:
            entries = {}
            if registration.has_family(family):
                entries = registration.load_family_entries(family)
            self._families[family] = entries
        return self._families[family]


BENCHMARKS = Catalog()


def parse_name_and_factor(text: str) -> tuple[str, float | None]:
    """Return the name and the factor of a fault.

    Raises:
        ValueError: As `parse_fault` does.
    """
    fault = parse_fault(text)
    return fault.name, fault.factor


# Plug-ins made for API version 1 use these names.
FACTOR = FACTOR_FAULT
MOST = MAX_FACTOR
fault_of = parse_name_and_factor
