"""The catalog: every benchmark's name, parameters, rank count, metrics and faults.

A new benchmark is one folder with an ``entry.py`` in `FAMILIES`, or a plug-in. The entries of a
family are imported when one of them is asked for: most commands and all ranks need few of them.
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
    "slow": "each iteration of the last rank takes five times as long, and 2 ms more at least; "
    "with slow=1.1 it takes 1.1 times as long, at work",
}
"""The faults that ``--inject`` can plant in every benchmark, each with its effect."""

FACTOR_FAULT = "slow"
"""The fault that takes a factor."""
MAX_FACTOR = 1000.0


def parse_fault(text: str) -> tuple[str, float | None]:
    """Return a fault's name and its factor: ``slow`` and 1.1 of ``slow=1.1``.

    Raises:
        ValueError: It takes no factor, or none like that.
    """
    name, given, factor = text.partition("=")
    if not given:
        return name, None
    if name != FACTOR_FAULT:
        raise ValueError(f"{name} takes no factor; {FACTOR_FAULT} does, as {FACTOR_FAULT}=1.1")
    try:
        value = float(factor)
    except ValueError:
        value = math.nan
    if not 1.0 < value <= MAX_FACTOR:
        raise ValueError(f"{FACTOR_FAULT}={factor}: give a number above 1, as {FACTOR_FAULT}=1.1")
    return name, value


class Catalog(MutableMapping[str, Benchmark]):
    """The entries by name: spbench's own in the order of the families, then those of plug-ins.

    A name is looked up in its family alone. Plug-ins are looked for only if spbench has no entry of
    a name, or if all entries are asked for.
    """

    def __init__(self) -> None:
        self._families: dict[str, dict[str, Benchmark]] = {}
        self._of_plugins: dict[str, Benchmark] | None = None

    def __getitem__(self, name: str) -> Benchmark:
        own = self._family(name)
        return own[name] if name in own else self._plugins()[name]

    def __setitem__(self, name: str, entry: Benchmark) -> None:
        self._family(name)[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._family(name)[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own()
        yield from self._plugins()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _own(self) -> dict[str, Benchmark]:
        names = dict.fromkeys([*registration.list_families(), *self._families])
        return {name: entry for family in names for name, entry in self._family(family).items()}

    def _plugins(self) -> dict[str, Benchmark]:
        if self._of_plugins is None:
            self._of_plugins = registration.load_plugin_entries(self._own())
        return self._of_plugins

    def _family(self, name: str) -> dict[str, Benchmark]:
        family = name.partition(".")[0]
        if family not in self._families:
            known = registration.has_family(family)
            self._families[family] = registration.load_family_entries(family) if known else {}
        return self._families[family]


BENCHMARKS = Catalog()
