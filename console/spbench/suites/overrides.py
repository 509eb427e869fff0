"""Overrides, ``--set key=value``: changes of a suite's data before it is checked."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from spbench.errors import UsageError
from spbench.suites.file_errors import FileErrors
from spbench.suites.key_suggestions import suggest_key
from spbench.suites.settings import BatchSettings, LaunchSettings
from spbench.suites.yaml_nodes import KeyPath, Node, YamlError, parse_yaml
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark

_SUITE_KEYS = ("name", "description", "order")
_CASE_KEYS = ("np", "repeat", "scale")
_MAX_SHOWN = 80
"""Characters of an override in messages; its value can be of any length."""


def apply_overrides(data: dict[str, Any], texts: Sequence[str], errors: FileErrors) -> list[str]:
    """Change the suite's data, and return a message for each unknown key.

    Raises:
        UsageError: An override is not ``key=value``, its value is not YAML, or a key is set twice.
    """
    unknown_messages = []
    option_by_key: dict[str, str] = {}
    for text in texts:
        option = f"--set {_shorten(text)}"
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{option}: write it as --set key=value")
        if key in option_by_key:
            hint = " (--launcher sets it too)" if key == "launch.launcher" else ""
            raise UsageError(f"{option}: {key} is set twice, by {option_by_key[key]} as well{hint}")
        option_by_key[key] = option
        node = _parse_value(option, value)
        if not _Override(data, errors, option, key, node).apply():
            hint = suggest_key(key, _list_keys(data))
            unknown_messages.append(f"{option}: no suite key or parameter is called {key!r}{hint}")
    return unknown_messages


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _parse_value(option: str, text: str) -> Node:
    try:
        document = parse_yaml(text)
    except YamlError as error:
        raise UsageError(f"{option}: {error} (put the value in YAML's quotes)") from None
    if document.problems:
        raise UsageError(f"{option}: {document.problems[0].message}")
    root = document.root
    if root.text is None and not root.flow:  # "Run: fast" is a text here, not a mapping
        return Node(root.mark, text, text)
    return root


def _list_keys(data: dict[str, Any]) -> list[str]:
    """Return the keys that can be set in a suite."""
    settable_keys = [*_SUITE_KEYS, *_CASE_KEYS, "launch.env.NAME"]
    settable_keys += [f"launch.{key}" for key in LaunchSettings.model_fields]
    settable_keys += [f"launch.batch.{key}" for key in BatchSettings.model_fields]
    for _, _, benchmark in _list_cases(data):
        settable_keys += [param.name for param in benchmark.params] if benchmark else []
    return settable_keys


def _list_cases(data: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any], Benchmark | None]]:
    """Yield index, data and benchmark (None if unknown) of each case entry."""
    cases = data.get("cases")
    for index, case in enumerate(cases if isinstance(cases, list) else ()):
        if isinstance(case, dict):
            name = case.get("benchmark")
            yield index, case, BENCHMARKS.get(name) if isinstance(name, str) else None


class _Override:
    """An override ``key=value`` of the data of a suite."""

    def __init__(
        self, data: dict[str, Any], errors: FileErrors, option: str, key: str, node: Node
    ) -> None:
        self._data = data
        self._errors = errors
        self._option = option
        self._key = key
        self._node = node

    def apply(self) -> bool:
        """Change the data; return whether the key exists."""
        section, dot, subkey = self._key.partition(".")
        if section == "launch" and dot:
            return self._set_launch(subkey)
        if self._key in _SUITE_KEYS:
            self._data[self._key] = self._node.data
            self._errors.mark_option((self._key,), self._option)
            return True
        if self._key in _CASE_KEYS:
            return self._set_in_cases()
        if section == "scale" and dot:
            return self._set_in_cases(subkey)
        return self._set_parameter()

    def _set_launch(self, subkey: str) -> bool:
        key, dot, variable = subkey.partition(".")
        if key == "batch":
            return self._set_batch(variable)
        if key not in LaunchSettings.model_fields or (dot and (key != "env" or not variable)):
            return False
        for _, case, _ in _list_cases(self._data):
            _remove_setting(case.get("launch"), key, variable)
        launch = self._data.setdefault("launch", {})
        if not isinstance(launch, dict):
            return True  # its shape is reported with the other errors of the file
        if not dot:
            launch[key] = self._node.data if key != "env" else read_as_text(self._node)
            self._errors.mark_option(("launch", key), self._option)
        elif isinstance(env := launch.setdefault("env", {}), dict):
            env[variable] = _get_text(self._node)
            self._errors.mark_option(("launch", "env", variable), self._option)
        return True

    def _set_batch(self, key: str) -> bool:
        """Set a key of ``launch.batch``; errors of its shape are reported later."""
        if key not in BatchSettings.model_fields:
            return False
        launch = self._data.setdefault("launch", {})
        if isinstance(launch, dict) and isinstance(batch := launch.setdefault("batch", {}), dict):
            batch[key] = self._node.data
            self._errors.mark_option(("launch", "batch", key), self._option)
        return True

    def _set_in_cases(self, name: str | None = None) -> bool:
        """Set a key of all cases, or of the case with a name."""
        key = self._key.partition(".")[0]
        cases = [
            (index, case)
            for index, case, _ in _list_cases(self._data)
            if name in (None, case.get("name"))
        ]
        for index, case in cases:
            case[key] = copy.deepcopy(self._node.data)
            self._errors.mark_option(("cases", index, key), self._option)
            if key in ("np", "scale"):  # both set the number of ranks
                collapse = _SweepCollapse(None, "np", self._node.data)
                collapse.apply(case, ("cases", index), self._errors)
        return bool(cases) or name is None

    def _set_parameter(self) -> bool:
        """Set a parameter in all cases that have it."""
        is_known = False
        for index, case, benchmark in _list_cases(self._data):
            if benchmark is None or (param := benchmark.find_param(self._key)) is None:
                continue
            is_known = True
            value = copy.deepcopy(self._node.data)
            collapse = _SweepCollapse(benchmark, param.name, value)
            collapse.apply(case, ("cases", index), self._errors)
            if isinstance(params := case.setdefault("params", {}), dict):
                for key in [key for key in params if _is_alias(benchmark, key, param.name)]:
                    del params[key]
                params[param.name] = value
                self._errors.mark_option(("cases", index, "params", param.name), self._option)
        return is_known


def read_as_text(node: Node) -> Any:
    """Return the data of a mapping with its scalars as text (``1`` is ``"1"``)."""
    if not isinstance(node.content, dict):
        return node.data
    return {key: _get_text(value) for key, (_, value) in node.content.items()}


def _get_text(node: Node) -> Any:
    return node.text if node.text is not None and node.content is not None else node.data


def _remove_setting(launch: Any, key: str, variable: str) -> None:
    if isinstance(launch, dict) and not variable:
        launch.pop(key, None)
    elif isinstance(launch, dict) and isinstance(launch.get("env"), dict):
        launch["env"].pop(variable, None)


def _is_alias(benchmark: Benchmark | None, key: str, name: str) -> bool:
    """Return whether a key is the name or an alias of a parameter."""
    param = benchmark.find_param(key) if benchmark else None
    return (param.name if param else key) == name


class _SweepCollapse:
    """The removal of a key that now has one value from a case's sweep and excludes."""

    def __init__(self, benchmark: Benchmark | None, name: str, value: Any) -> None:
        self._benchmark = benchmark
        self._name = name
        self._value = value

    def apply(self, case: dict[str, Any], path: KeyPath, errors: FileErrors) -> None:
        for section in ("matrix", "zip"):
            if isinstance(swept := case.get(section), dict):
                for key in [key for key in swept if self._is_key(key)]:
                    del swept[key]
        rules = case.get("exclude")
        if isinstance(rules, list):
            reduced = [(index, self._reduce_rule(rule)) for index, rule in enumerate(rules)]
            remaining = [(index, rule) for index, rule in reduced if rule is not None]
            case["exclude"] = [rule for _, rule in remaining]
            errors.record_kept_items((*path, "exclude"), [index for index, _ in remaining])

    def _is_key(self, key: str) -> bool:
        return _is_alias(self._benchmark, key, self._name)

    def _reduce_rule(self, rule: Any) -> Any:
        """Return an exclude without the key; None if it no longer applies."""
        keys = [key for key in rule if self._is_key(key)] if isinstance(rule, dict) else []
        if not keys:
            return rule
        if any(self._read(rule[key]) != self._read(self._value) for key in keys):
            return None
        return {key: value for key, value in rule.items() if key not in keys} or None

    def _read(self, value: Any) -> Any:
        param = self._benchmark.find_param(self._name) if self._benchmark else None
        try:
            return param.read(value) if param else value
        except ValueError:
            return value
