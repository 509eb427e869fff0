"""Keys and values that a suite allows at a position of an invalid text, too.

The position is found by indentation, because a text that is being typed is seldom valid YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from spbench.suites.expectations import list_metric_names
from spbench.suites.model import CaseDefaults, CaseEntry, SuiteFile
from spbench.suites.settings import LaunchSettings, SuiteLaunch
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark

_KEY = re.compile(r"(?P<indent> *(?:- +)?)(?P<key>[\w.]+):(?P<value>.*)")
_TYPED_WORD = re.compile(r"[\w.-]*$")
_TYPED_VALUE = re.compile(r"(?P<key>[\w.]+): +(?P<value>[\w.]*)$")
_FLOW_KEY = re.compile(r"(?P<indent> *(?:- +)?)(?P<key>\w+): *\{(?P<inside>[^}]*)$")
_BENCHMARK = re.compile(r"^[ -]*benchmark: *(\S+)")
_PLACES = {(): "the suite", ("cases",): "a case"}
_PARAM_SECTIONS = ("params", "matrix", "zip", "exclude")


@dataclass(frozen=True, slots=True)
class Completion:
    """The words that are allowed at a position.

    Attributes:
        title: The place, such as ``keys of params``.
        text_by_word: The words, each with its help.
        typed: The part of a word before the position, which the chosen word replaces.
        suffix: The text after the chosen word.
    """

    title: str
    text_by_word: Mapping[str, str]
    typed: str
    suffix: str


@dataclass(frozen=True, slots=True)
class _Section:
    path: tuple[str, ...]
    present_keys: frozenset[str]
    benchmark: Benchmark | None


def complete(lines: Sequence[str], row: int, column: int) -> Completion | None:
    """Return the words allowed at a position, counted from 0; None without any."""
    before = lines[row][:column]
    section = _find_section(lines, row, before)
    value = _TYPED_VALUE.search(before)
    if value is not None:
        text_by_word = _list_values(section, value["key"])
        return _make_completion(f"Values of {value['key']}", text_by_word, value["value"], "")
    typed_match = _TYPED_WORD.search(before)
    typed = typed_match.group() if typed_match else ""
    text_by_word = {
        name: text for name, text in _list_keys(section).items() if name not in section.present_keys
    }
    section_name = _PLACES.get(section.path, section.path[-1] if section.path else "")
    return _make_completion(f"Keys of {section_name}", text_by_word, typed, ": ")


def _make_completion(
    title: str, text_by_word: Mapping[str, str], typed: str, suffix: str
) -> Completion | None:
    return Completion(title, text_by_word, typed, suffix) if text_by_word else None


def _find_section(lines: Sequence[str], row: int, before: str) -> _Section:
    flow = _FLOW_KEY.match(before)
    indent = len(flow["indent"]) if flow else _measure_indent(before)
    path = [flow["key"]] if flow else []
    inside = flow["inside"] if flow else ""
    present_keys = set(re.findall(r"(\w+):", inside))
    if not flow:
        present_keys |= set(_list_siblings(lines, row, indent))
    for line in reversed(lines[:row]):
        match = _KEY.match(line)
        if match is None:
            continue
        if len(match["indent"]) < indent and not match["value"].strip():
            path.insert(0, match["key"])
        # The dash of an item is the indentation of the keys above it.
        dash = match["indent"].find("-")
        if len(match["indent"]) <= indent and dash >= 0:
            indent = dash + 1
        elif len(match["indent"]) < indent:
            indent = len(match["indent"])
    return _Section(tuple(path), frozenset(present_keys), _find_benchmark(lines, row))


def _measure_indent(text: str) -> int:
    """Return the columns before the first key or word, after a dash."""
    return len(text) - len(text.lstrip(" -"))


def _list_siblings(lines: Sequence[str], row: int, indent: int) -> Iterator[str]:
    """Yield the keys of the same section except that of this line."""
    starts_item = "-" in lines[row][:indent]
    before = () if starts_item else reversed(lines[:row])
    for section_lines, is_before in ((before, True), (lines[row + 1 :], False)):
        for line in section_lines:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            width = _measure_indent(line)
            has_dash = "-" in line[:width]
            if width < indent or (has_dash and width == indent and not is_before):
                break
            match = _KEY.match(line)
            if match is not None and width == indent:
                yield match["key"]
                if has_dash:
                    break


def _find_benchmark(lines: Sequence[str], row: int) -> Benchmark | None:
    """Return the benchmark of the case at a line."""
    starts = [
        number
        for number, line in enumerate(lines)
        if line.lstrip().startswith("- ") and _KEY.match(line)
    ]
    start = max((number for number in starts if number <= row), default=None)
    if start is None:
        return None
    end = min((number for number in starts if number > row), default=len(lines))
    names = (match[1] for line in lines[start:end] if (match := _BENCHMARK.match(line)))
    return BENCHMARKS.get(next(names, ""))


def _list_keys(section: _Section) -> Mapping[str, str]:
    benchmark = section.benchmark
    match section.path:
        case ():
            return _list_fields(SuiteFile)
        case ("defaults",):
            return _list_fields(CaseDefaults)
        case ("launch",):
            return _list_fields(SuiteLaunch)
        case ("cases",):
            return _list_fields(CaseEntry)
        case ("cases", "launch"):
            return _list_fields(LaunchSettings)
        case ("defaults", "params"):
            return {
                param.name: param.help
                for benchmark in BENCHMARKS.values()
                for param in benchmark.params
            }
        case ("cases", "expect") if benchmark is not None:
            return dict.fromkeys(list_metric_names(benchmark), "")
        case ("cases", name) if name in _PARAM_SECTIONS and benchmark is not None:
            return {param.name: param.help for param in benchmark.params}
    return {}


def _list_values(section: _Section, key: str) -> Mapping[str, str]:
    if section.path == ("cases",) and key == "benchmark":
        return {benchmark.name: benchmark.summary for benchmark in BENCHMARKS.values()}
    param = section.benchmark.find_param(key) if section.benchmark else None
    if param is None or section.path[-1:] != ("params",):
        return {}
    choices = ("true", "false") if param.kind == "bool" else param.choices
    return dict.fromkeys(choices, "")


def _list_fields(model: type[BaseModel]) -> Mapping[str, str]:
    return {
        field.alias or name: field.description or "" for name, field in model.model_fields.items()
    }
