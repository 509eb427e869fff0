"""``--set key=value``: changes a suite's data before it is checked."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from spbench.errors import UsageError, did_you_mean
from spbench.suites.findings import Findings
from spbench.suites.settings import BatchSettings, LaunchSettings
from spbench.suites.yaml_nodes import KeyPath, Node, YamlError, parse_yaml
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark

_OF_SUITE = ("name", "description", "order")
_OF_CASES = ("np", "repeat", "scale")
_MAX_SHOWN = 80
"""Characters of an override that a message shows; the value can be of any length."""


def apply_overrides(data: dict[str, Any], texts: Sequence[str], findings: Findings) -> list[str]:
    """Change the suite's data, and return a sentence for each key that nothing in it has.

    Raises:
        UsageError: An override is not ``key=value``, its value is no YAML, or a key is set twice.
    """
    unknown = []
    set_by: dict[str, str] = {}
    for text in texts:
        option = f"--set {_shorten(text)}"
        key, equals, written = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{option}: write it as --set key=value")
        if key in set_by:
            both = " (--launcher sets it too)" if key == "launch.launcher" else ""
            raise UsageError(f"{option}: {key} is set twice, by {set_by[key]} as well{both}")
        set_by[key] = option
        node = _read(option, written)
        if not _Override(data, findings, option, key, node).apply():
            near = did_you_mean(key, _known(data))
            unknown.append(f"{option}: no suite key or parameter is called {key!r}{near}")
    return unknown


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _read(option: str, written: str) -> Node:
    try:
        document = parse_yaml(written)
    except YamlError as error:
        raise UsageError(f"{option}: {error} (put the value in YAML's quotes)") from None
    if document.problems:
        raise UsageError(f"{option}: {document.problems[0].message}")
    root = document.root
    if root.text is None and not root.flow:  # "Run: fast" is text here, not a mapping
        return Node(root.mark, written, written)
    return root


def _known(data: dict[str, Any]) -> list[str]:
    names = [*_OF_SUITE, *_OF_CASES, "launch.env.NAME"]
    names += [f"launch.{key}" for key in LaunchSettings.model_fields]
    names += [f"launch.batch.{key}" for key in BatchSettings.model_fields]
    for _, _, benchmark in _cases(data):
        names += [param.name for param in benchmark.params] if benchmark else []
    return names


def _cases(data: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any], Benchmark | None]]:
    cases = data.get("cases")
    for index, case in enumerate(cases if isinstance(cases, list) else ()):
        if isinstance(case, dict):
            name = case.get("benchmark")
            yield index, case, BENCHMARKS.get(name) if isinstance(name, str) else None


class _Override:
    """One ``key=value`` on the data of one suite."""

    def __init__(
        self, data: dict[str, Any], findings: Findings, option: str, key: str, node: Node
    ) -> None:
        self._data = data
        self._findings = findings
        self._option = option
        self._key = key
        self._node = node

    def apply(self) -> bool:
        """Change the data; say whether anything has the key."""
        first, dot, rest = self._key.partition(".")
        if first == "launch" and dot:
            return self._set_launch(rest)
        if self._key in _OF_SUITE:
            self._data[self._key] = self._node.data
            self._findings.mark_option((self._key,), self._option)
            return True
        if self._key in _OF_CASES:
            return self._set_in_cases()
        if first == "scale" and dot:
            return self._set_in_cases(rest)
        return self._set_parameter()

    def _set_launch(self, rest: str) -> bool:
        key, dot, variable = rest.partition(".")
        if key == "batch":
            return self._set_batch(variable)
        if key not in LaunchSettings.model_fields or (dot and (key != "env" or not variable)):
            return False
        for _, case, _ in _cases(self._data):
            _drop(case.get("launch"), key, variable)
        launch = self._data.setdefault("launch", {})
        if not isinstance(launch, dict):
            return True  # its shape is told with the other errors of the file
        if not dot:
            launch[key] = self._node.data if key != "env" else read_as_text(self._node)
            self._findings.mark_option(("launch", key), self._option)
        elif isinstance(env := launch.setdefault("env", {}), dict):
            env[variable] = _text(self._node)
            self._findings.mark_option(("launch", "env", variable), self._option)
        return True

    def _set_batch(self, key: str) -> bool:
        """Set a key of the suite's ``launch.batch``; a wrong shape around it is told later."""
        if key not in BatchSettings.model_fields:
            return False
        launch = self._data.setdefault("launch", {})
        if isinstance(launch, dict) and isinstance(batch := launch.setdefault("batch", {}), dict):
            batch[key] = self._node.data
            self._findings.mark_option(("launch", "batch", key), self._option)
        return True

    def _set_in_cases(self, name: str | None = None) -> bool:
        """Set a key of all cases, or of the one of that name."""
        key = self._key.partition(".")[0]
        named = [one for one in _cases(self._data) if name in (None, one[1].get("name"))]
        for index, case, _ in named:
            case[key] = copy.deepcopy(self._node.data)
            self._findings.mark_option(("cases", index, key), self._option)
            if key in ("np", "scale"):  # either says on how many ranks
                collapse = _Collapse(None, "np", self._node.data)
                collapse.apply(case, ("cases", index), self._findings)
        return bool(named) or name is None

    def _set_parameter(self) -> bool:
        found = False
        for index, case, benchmark in _cases(self._data):
            if benchmark is None or (param := benchmark.find_param(self._key)) is None:
                continue
            found = True
            value = copy.deepcopy(self._node.data)
            collapse = _Collapse(benchmark, param.name, value)
            collapse.apply(case, ("cases", index), self._findings)
            if isinstance(params := case.setdefault("params", {}), dict):
                for name in [n for n in params if _names(benchmark, n, param.name)]:
                    del params[name]
                params[param.name] = value
                self._findings.mark_option(("cases", index, "params", param.name), self._option)
        return found


def read_as_text(node: Node) -> Any:
    """Return the data of a mapping whose scalars stay text as written (``1`` is ``"1"``)."""
    if not isinstance(node.content, dict):
        return node.data
    return {key: _text(value) for key, (_, value) in node.content.items()}


def _text(node: Node) -> Any:
    return node.text if node.text is not None and node.content is not None else node.data


def _drop(launch: Any, key: str, variable: str) -> None:
    if isinstance(launch, dict) and not variable:
        launch.pop(key, None)
    elif isinstance(launch, dict) and isinstance(launch.get("env"), dict):
        launch["env"].pop(variable, None)


def _names(benchmark: Benchmark | None, word: str, name: str) -> bool:
    param = benchmark.find_param(word) if benchmark else None
    return (param.name if param else word) == name


class _Collapse:
    """Takes a key that now has one value out of a case's sweep and excludes."""

    def __init__(self, benchmark: Benchmark | None, name: str, value: Any) -> None:
        self._benchmark = benchmark
        self._name = name
        self._value = value

    def apply(self, case: dict[str, Any], path: KeyPath, findings: Findings) -> None:
        for section in ("matrix", "zip"):
            if isinstance(swept := case.get(section), dict):
                for word in [word for word in swept if self._is_key(word)]:
                    del swept[word]
        rules = case.get("exclude")
        if isinstance(rules, list):
            left = [(at, self._reduced(rule)) for at, rule in enumerate(rules)]
            kept = [(at, rule) for at, rule in left if rule is not None]
            case["exclude"] = [rule for _, rule in kept]
            findings.record_kept_items((*path, "exclude"), [at for at, _ in kept])

    def _is_key(self, word: str) -> bool:
        return _names(self._benchmark, word, self._name)

    def _reduced(self, rule: Any) -> Any:
        """Return an exclude without the key; None where it is about another value, or all."""
        words = [word for word in rule if self._is_key(word)] if isinstance(rule, dict) else []
        if not words:
            return rule
        if any(self._read(rule[word]) != self._read(self._value) for word in words):
            return None
        return {word: value for word, value in rule.items() if word not in words} or None

    def _read(self, value: Any) -> Any:
        param = self._benchmark.find_param(self._name) if self._benchmark else None
        try:
            return param.read(value) if param else value
        except ValueError:
            return value
