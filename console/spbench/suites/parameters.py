"""Reads the parameters of a case entry one by one: names, values, sweeps, exclusions.

Works on the data as it stands in the file, so that every error is told even where other parts of
the file have a wrong shape (which the model's check tells).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spbench.errors import did_you_mean
from spbench.suites.expand import Sweep, SweptValue, format_label
from spbench.suites.findings import Findings
from spbench.suites.model import CaseEntry
from spbench.suites.wording import format_value
from spbench.suites.yaml_nodes import KeyPath
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.parameters import UNSWEPT_KINDS, Param


class ParameterReader:
    """Reads the parameters of the case entry at ``path``."""

    def __init__(
        self, benchmark: Benchmark, entry: dict[str, Any], path: KeyPath, findings: Findings
    ) -> None:
        self._benchmark = benchmark
        self._entry = entry
        self._path = path
        self._findings = findings
        self._given: dict[str, KeyPath] = {}  # parameter -> where it was given first
        if entry.get("np") is not None:
            self._given["np"] = (*path, "np")

    def read_fixed(self) -> dict[str, Any]:
        """Return the values of ``params``."""
        read: dict[str, Any] = {}
        for key, value, path in self._items("params"):
            param = self._param(key, path)
            if param is not None and (item := self._item(param, value, path)):
                read[param.name] = item.value
        return read

    def read_sweep(self) -> Sweep:
        """Return the lists of ``matrix`` and ``zip``."""
        matrix = self._swept("matrix")
        zipped = self._swept("zip")
        lengths = {key: len(items) for key, items in zipped.items()}
        if len(set(lengths.values())) > 1:
            each = ", ".join(f"{key} has {length}" for key, length in lengths.items())
            self._findings.add_at_key(
                (*self._path, "zip"), f"zip needs lists of equal length: {each}"
            )
            zipped = {key: items[: min(lengths.values())] for key, items in zipped.items()}
        return Sweep(matrix, zipped)

    def read_exclude(self, sweep: Sweep) -> list[dict[str, Any]]:
        """Return the excluded values of swept keys."""
        rules = self._entry.get("exclude")
        path = (*self._path, "exclude")
        rules = rules if isinstance(rules, list) else []
        read = []
        for index, rule in enumerate(rules):
            if rule == {}:
                self._findings.add_at_value(
                    (*path, index), "this exclude is empty: name swept keys"
                )
            elif isinstance(rule, dict):
                read.append(self._rule(rule, (*path, index), sweep))
        return read

    def _rule(self, rule: dict[str, Any], path: KeyPath, sweep: Sweep) -> dict[str, Any]:
        read: dict[str, Any] = {}
        for key, value in rule.items():
            param = self._benchmark.find_param(key)
            name = param.name if param else key
            if name not in sweep.keys:
                near = did_you_mean(key, sweep.keys)
                message = f"exclude names {key!r}, which is not swept here{near}"
                self._findings.add_at_key((*path, key), message)
            elif item := self._item(param, value, (*path, key)):
                read[name] = item.value
        return read

    def _items(self, section: str) -> Iterator[tuple[str, Any, KeyPath]]:
        given = self._entry.get(section)
        for key, value in given.items() if isinstance(given, dict) else ():
            yield key, value, (*self._path, section, key)

    def _swept(self, section: str) -> dict[str, list[SweptValue]]:
        swept: dict[str, list[SweptValue]] = {}
        for key, values, path in self._items(section):
            param = None if key == "np" else self._param(key, path)
            name = param.name if param else key
            if param is None and (key != "np" or not self._first("np", path)):
                continue
            if param is not None and param.kind in UNSWEPT_KINDS:
                self._findings.add_at_key(path, f"{name} cannot be swept; give it in params")
                continue
            values = values if isinstance(values, list) else []
            read = [self._item(param, value, (*path, at)) for at, value in enumerate(values)]
            swept[name] = [item for item in read if item]
            if section == "matrix":
                self._refuse_repeated(name, swept[name])
        return swept

    def _refuse_repeated(self, name: str, items: list[SweptValue]) -> None:
        seen: set[str] = set()
        for item in items:
            if item.label in seen:
                self._findings.add_at_value(item.path, f"{name}: {item.label} is listed twice")
            seen.add(item.label)

    def _param(self, key: str, path: KeyPath) -> Param | None:
        """Return the parameter of a name; None where there is none, or it is given already."""
        param = self._benchmark.find_param(key)
        if param is not None:
            return param if self._first(param.name, path) else None
        names = [param.name for param in self._benchmark.params]
        known = [*names, *self._benchmark.aliases, *(["np"] if "params" not in path else [])]
        message = f"{self._benchmark.name} has no parameter {key!r}{did_you_mean(key, known)}"
        if key in CaseEntry.model_fields:
            message = f"{key!r} is no parameter but a key of the case: move it out of {path[2]}"
        self._findings.add_at_key(path, message)
        return None

    def _first(self, name: str, path: KeyPath) -> bool:
        before = self._given.setdefault(name, path)
        here = path[-2]
        there = before[-2]
        if before is path or (there == "params" and here in ("matrix", "zip")):
            # A sweep takes the place of the value in params.
            self._given[name] = path
            return True
        where = f"in {there} too" if here != there and name != "np" else "twice"
        self._findings.add_at_key(path, f"{name} is given {where}; give it once")
        return False

    def _item(self, param: Param | None, value: Any, path: KeyPath) -> SweptValue | None:
        """Return a value as read, None after telling why it is wrong; no parameter means np."""
        try:
            return read_value(param, value, path)
        except ValueError as error:
            self._findings.add_at_value(path, str(error))
            return None


def read_value(param: Param | None, value: Any, path: KeyPath = ()) -> SweptValue:
    """Return a value as its parameter reads it; no parameter means np.

    Raises:
        ValueError: It is wrong; the text names the parameter and says why.
    """
    name = param.name if param else "np"
    if value is None:
        raise ValueError(f"{name} is empty: give it a value or leave it out")
    if param is None:
        if type(value) is int and value >= 1:
            return SweptValue(value, format_label(value), path)
        raise ValueError(f"np must be a whole number from 1, not {format_value(value)}")
    try:
        read = param.read(value)
    except ValueError as error:
        near = (
            did_you_mean(str(value), param.choices) if param.kind in ("choice", "choices") else ""
        )
        raise ValueError(f"{name}: {error}{near}") from None
    as_given = param.kind in ("bytes", "bytes_list")  # 64KiB says more than 65536
    return SweptValue(read, format_label(value if as_given else read), path)
