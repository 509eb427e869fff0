"""The catalog: parameters, rank counts, metrics and faults of all benchmarks.

A new benchmark is one folder with an ``entry.py`` in `FAMILIES`, or a plug-in. The entries of a
family are imported on demand, because most commands and all ranks need few of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, MutableMapping

from spbench_core.catalog import registration
from spbench_core.catalog.benchmark import Benchmark

COMMON_FAULTS = {
    "hang": "the last rank sleeps for ever",
    "kill": "the last rank kills itself with SIGKILL",
    "stop": "the last rank stops itself with SIGSTOP",
    "raise": "the last rank raises an exception",
    "exit": "the last rank calls sys.exit(3)",
    "slow": "each iteration of the last rank takes five times as long, at least 2 ms longer; "
    "slow=1.1 makes it 1.1 times as long, by busy waiting",
}
"""The faults that ``--inject`` can plant in every benchmark, each with its effect."""

FACTOR_FAULT = "slow"
"""The fault that takes a factor, by which it makes iterations slower."""
MAX_FACTOR = 1000.0


def parse_fault(text: str) -> tuple[str, float | None]:
    """Return the name and the factor of a fault: ``slow`` and 1.1 for ``slow=1.1``.

    Raises:
        ValueError: The fault takes no factor, or the factor is invalid.
    """
    name, equals, factor = text.partition("=")
    if not equals:
        return name, None
    if name != FACTOR_FAULT:
        raise ValueError(f"{name} takes no factor; {FACTOR_FAULT} does, as {FACTOR_FAULT}=1.1")
    try:
        value = float(factor)
    except ValueError:
        value = math.nan
    if not 1.0 < value <= MAX_FACTOR:
        raise ValueError(
            f"{FACTOR_FAULT}={factor}: give a number above 1 and at most {MAX_FACTOR:g}, such as"
            f" {FACTOR_FAULT}=1.1"
        )
    return name, value


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

# Plug-ins made for API version 1 use these names.
FACTOR = FACTOR_FAULT
MOST = MAX_FACTOR
fault_of = parse_fault
