"""Reader of the parameters of a case entry, with sweeps and exclusions.

It works on the data of the file, so that every error is reported even if other parts of the file
have a wrong shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spbench.errors import did_you_mean
from spbench.suites.expand import Sweep, SweptValue, format_label
from spbench.suites.file_errors import FileErrors
from spbench.suites.key_suggestions import suggest_key
from spbench.suites.model import CaseEntry
from spbench.suites.validation_messages import format_value
from spbench.suites.yaml_nodes import KeyPath
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.parameters import UNSWEPT_KINDS, Param


class ParameterReader:
    """A reader of the parameters of the case entry at ``path``."""

    def __init__(
        self, benchmark: Benchmark, entry: dict[str, Any], path: KeyPath, errors: FileErrors
    ) -> None:
        self._benchmark = benchmark
        self._entry = entry
        self._path = path
        self._errors = errors
        self._first_path_by_param: dict[str, KeyPath] = {}
        if entry.get("np") is not None:
            self._first_path_by_param["np"] = (*path, "np")

    def read_fixed(self) -> dict[str, Any]:
        """Return the values of ``params``."""
        value_by_param: dict[str, Any] = {}
        for key, value, path in self._list_items("params"):
            param = self._find_param(key, path)
            if param is not None and (swept_value := self._read_value(param, value, path)):
                value_by_param[param.name] = swept_value.value
        return value_by_param

    def read_sweep(self) -> Sweep:
        """Return the lists of ``matrix`` and ``zip``."""
        matrix = self._read_lists("matrix")
        zipped = self._read_lists("zip")
        lengths = {key: len(swept_values) for key, swept_values in zipped.items()}
        if len(set(lengths.values())) > 1:
            detail = ", ".join(f"{key} has {length}" for key, length in lengths.items())
            message = f"zip needs lists of equal length: {detail}"
            self._errors.add_at_key((*self._path, "zip"), message)
            zipped = {
                key: swept_values[: min(lengths.values())] for key, swept_values in zipped.items()
            }
        return Sweep(matrix, zipped)

    def read_exclude(self, sweep: Sweep) -> list[dict[str, Any]]:
        """Return the excluded values of swept keys."""
        rules = self._entry.get("exclude")
        path = (*self._path, "exclude")
        excluded_points = []
        for index, rule in enumerate(rules if isinstance(rules, list) else []):
            if rule == {}:
                message = "this exclude is empty: name swept keys"
                self._errors.add_at_value((*path, index), message)
            elif isinstance(rule, dict):
                excluded_points.append(self._read_rule(rule, (*path, index), sweep))
        return excluded_points

    def _read_rule(self, rule: dict[str, Any], path: KeyPath, sweep: Sweep) -> dict[str, Any]:
        value_by_key: dict[str, Any] = {}
        for key, value in rule.items():
            param = self._benchmark.find_param(key)
            name = param.name if param else key
            if name not in sweep.keys:
                hint = did_you_mean(key, sweep.keys)
                message = f"exclude names {key!r}, which is not swept here{hint}"
                self._errors.add_at_key((*path, key), message)
            elif swept_value := self._read_value(param, value, (*path, key)):
                value_by_key[name] = swept_value.value
        return value_by_key

    def _list_items(self, section: str) -> Iterator[tuple[str, Any, KeyPath]]:
        data = self._entry.get(section)
        for key, value in data.items() if isinstance(data, dict) else ():
            yield key, value, (*self._path, section, key)

    def _read_lists(self, section: str) -> dict[str, list[SweptValue]]:
        swept_values_by_key: dict[str, list[SweptValue]] = {}
        for key, values, path in self._list_items(section):
            param = None if key == "np" else self._find_param(key, path)
            name = param.name if param else key
            if param is None and (key != "np" or not self._claim_name("np", path)):
                continue
            if param is not None and param.kind in UNSWEPT_KINDS:
                self._errors.add_at_key(path, f"{name} cannot be swept; give it in params")
                continue
            values = values if isinstance(values, list) else []
            swept_values = [
                self._read_value(param, value, (*path, index)) for index, value in enumerate(values)
            ]
            swept_values_by_key[name] = [swept_value for swept_value in swept_values if swept_value]
            if section == "matrix":
                self._report_duplicates(name, swept_values_by_key[name])
        return swept_values_by_key

    def _report_duplicates(self, name: str, swept_values: list[SweptValue]) -> None:
        seen_labels: set[str] = set()
        for swept_value in swept_values:
            if swept_value.label in seen_labels:
                self._errors.add_at_value(
                    swept_value.path, f"{name}: {swept_value.label} is listed twice"
                )
            seen_labels.add(swept_value.label)

    def _find_param(self, key: str, path: KeyPath) -> Param | None:
        """Return the parameter of a name; None if it is unknown or set already."""
        param = self._benchmark.find_param(key)
        if param is not None:
            return param if self._claim_name(param.name, path) else None
        names = [param.name for param in self._benchmark.params]
        names += self._benchmark.aliases
        if "params" not in path:
            names.append("np")
        message = f"{self._benchmark.name} has no parameter {key!r}{suggest_key(key, names)}"
        if key in CaseEntry.model_fields:
            message = f"{key!r} is a key of the case, not a parameter: move it out of {path[2]}"
        self._errors.add_at_key(path, message)
        return None

    def _claim_name(self, name: str, path: KeyPath) -> bool:
        """Record the path of a name; report and return False if it is set already."""
        first_path = self._first_path_by_param.setdefault(name, path)
        section = path[-2]
        first_section = first_path[-2]
        if first_path is path or (first_section == "params" and section in ("matrix", "zip")):
            # A sweep replaces the value in params, so both may name the parameter.
            self._first_path_by_param[name] = path
            return True
        in_both = section != first_section and name != "np"
        detail = f"in {first_section} too" if in_both else "twice"
        self._errors.add_at_key(path, f"{name} is given {detail}; give it once")
        return False

    def _read_value(self, param: Param | None, value: Any, path: KeyPath) -> SweptValue | None:
        """Return a parsed value, or None after reporting an error; without parameter np."""
        try:
            return read_value(param, value, path)
        except ValueError as error:
            self._errors.add_at_value(path, str(error))
            return None


def read_value(param: Param | None, value: Any, path: KeyPath = ()) -> SweptValue:
    """Parse a value of a parameter; no parameter means np.

    Raises:
        ValueError: It is invalid; the message names the parameter and the reason.
    """
    name = param.name if param else "np"
    if value is None:
        raise ValueError(f"{name} is empty: give it a value or leave it out")
    if param is None:
        if type(value) is int and value >= 1:
            return SweptValue(value, format_label(value), path)
        raise ValueError(f"np must be a whole number from 1, not {format_value(value)}")
    try:
        parsed = param.read(value)
    except ValueError as error:
        has_choices = param.kind in ("choice", "choices")
        hint = did_you_mean(str(value), param.choices) if has_choices else ""
        raise ValueError(f"{name}: {error}{hint}") from None
    # The label of 64KiB is clearer than 65536.
    label = value if param.kind in ("bytes", "bytes_list") else parsed
    return SweptValue(parsed, format_label(label), path)
