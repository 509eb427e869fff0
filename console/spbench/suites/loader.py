"""Loads a suite file: YAML, its shape, its parameters, its cases; all errors in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO

from spbench.errors import Diagnostic, SuiteError, UsageError, did_you_mean
from spbench.suites.case import MAX_HOSTS_AT_ONCE, Case, RepeatPolicy, Suite
from spbench.suites.expand import ParsedEntry, Sweep, expand_entry
from spbench.suites.expectations import parse_expectations
from spbench.suites.findings import Findings
from spbench.suites.given_files import read_start
from spbench.suites.inject import inject_fault
from spbench.suites.model import ScaleEntry, SuiteFile, merge_settings
from spbench.suites.overrides import apply_overrides, read_as_text
from spbench.suites.parameters import ParameterReader
from spbench.suites.references import ExpandedEntry, resolve_references
from spbench.suites.scaling import RankCounts
from spbench.suites.settings import LaunchSettings
from spbench.suites.shipped import find_suite_file
from spbench.suites.wording import validate_suite
from spbench.suites.yaml_nodes import Document, KeyPath, YamlError, parse_yaml
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark

_TOGETHER = "until repeats a case in launches of its own: it takes order: interleaved"
MAX_BYTES = 4 << 20


def load_suite_file(path: Path, overrides: Sequence[str] = (), inject: str | None = None) -> Suite:
    """Return the suite of a file, with ``--set`` overrides and ``--inject`` applied.

    Raises:
        UsageError: The file cannot be read, or an override or the fault is wrong.
        SuiteError: The file has errors; it holds them all.
    """
    return load_suite_text(read_suite_file(path), path, overrides, inject)


def load_suite_text(
    text: str, path: Path, overrides: Sequence[str] = (), inject: str | None = None
) -> Suite:
    """Return the suite of a text as `load` does; ``path`` is what the errors name.

    Raises:
        UsageError: An override or the fault is wrong.
        SuiteError: The text has errors; it holds them all.
    """
    try:
        document = parse_yaml(text)
    except YamlError as error:
        mark = error.mark
        raise SuiteError([Diagnostic(str(path), mark.line, mark.column, str(error))]) from None
    findings = Findings(str(path), document)
    data = document.root.data
    if not isinstance(data, dict):
        what = "the file is empty" if data is None else "this is not a mapping"
        begin = "a suite begins with 'schema: spbench.suite/1'"
        findings.add(document.root.mark, f"{what}; {begin}")
        findings.raise_if_any()
    _keep_env_text(data, document)
    unknown = apply_overrides(data, overrides, findings)
    file = validate_suite(data, findings)
    cases = _Entries(data, file, findings).cases()
    findings.raise_if_any()
    if unknown:
        raise UsageError(unknown[0])
    assert file is not None  # else there were findings
    planted = inject_fault(cases, inject) if inject is not None else tuple(cases)
    return Suite(path, text, file.name, file.description, file.launch, planted, file.order)


def read_suite_file(path: Path, open_: Callable[[Path], BinaryIO] | None = None) -> str:
    """Return the text of a suite file, or of ``shipped:NAME``.

    Args:
        path: The file.
        open_: Opens the file; None: `read_start` does.

    Raises:
        UsageError: It cannot be read, or is no text.
    """
    try:
        if open_ is None:
            raw = read_start(find_suite_file(path), MAX_BYTES + 1)
        else:
            with open_(path) as file:
                raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        folders = (path.parent, path.parent / "suites")
        names = {near.name: near for folder in folders for near in sorted(folder.glob("*.y*ml"))}
        near = get_close_matches(path.name, names, n=1)
        advice = f" (did you mean {names[near[0]].relative_to(path.parent)}?)" if near else ""
        raise UsageError(f"cannot read {path}: there is no such file{advice}") from None
    except IsADirectoryError:
        raise UsageError(f"cannot read {path}: it is a folder, name a suite file in it") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {why}") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"cannot read {path}: a suite file has at most {MAX_BYTES >> 20} MiB")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"byte {error.start} is 0x{raw[error.start]:02x}"
        raise UsageError(f"cannot read {path}: it is not UTF-8 text ({place})") from None
    if "\0" in text:
        raise UsageError(f"cannot read {path}: it is a binary file, not YAML text")
    return text


def _keep_env_text(data: dict[str, Any], document: Document) -> None:
    """Put back the text of the values of every ``env``: ``1`` is ``"1"`` there, not a number."""
    cases = data.get("cases")
    indices = range(len(cases)) if isinstance(cases, list) else ()
    of_cases: list[KeyPath] = [("cases", index, "launch") for index in indices]
    for path in [("launch",), *of_cases]:
        node = document.root.find_node((*path, "env"))
        if node is not None:
            launch = data["launch"] if len(path) == 1 else data["cases"][path[1]]["launch"]
            launch["env"] = read_as_text(node)


class _Entries:
    """The entries of ``cases:``; ``file`` is None where their shape already has errors."""

    def __init__(self, data: dict[str, Any], file: SuiteFile | None, findings: Findings) -> None:
        entries = data.get("cases")
        self._entries = entries if isinstance(entries, list) else []
        self._file = file
        self._findings = findings

    def cases(self) -> list[Case]:
        expanded: list[ExpandedEntry] = []
        names: dict[str, int] = {}
        for index, raw in enumerate(self._entries):
            if not isinstance(raw, dict):
                continue
            self._check_name(raw.get("name"), index, names)
            benchmark = self._benchmark(raw.get("benchmark"), index)
            if benchmark is not None and (entry := self._entry(benchmark, raw, index)):
                cases = expand_entry(entry, self._findings)
                expanded.append(ExpandedEntry(entry.path, cases))
        return resolve_references(expanded, [*names], self._findings)

    def _check_name(self, name: Any, index: int, names: dict[str, int]) -> None:
        if not isinstance(name, str):
            return
        line = self._findings.find_line(("cases", index, "name"))
        if name in names:
            message = f"duplicate case name {name!r} (first on line {names[name]})"
            self._findings.add_at_value(("cases", index, "name"), message)
        names.setdefault(name, line)

    def _benchmark(self, name: Any, index: int) -> Benchmark | None:
        if not isinstance(name, str) or name in BENCHMARKS:
            return BENCHMARKS.get(name) if isinstance(name, str) else None
        near = did_you_mean(name, BENCHMARKS) or "; `spbench benchmarks` lists them"
        message = f"unknown benchmark {name!r}{near}"
        self._findings.add_at_value(("cases", index, "benchmark"), message)
        return None

    def _entry(self, benchmark: Benchmark, raw: dict[str, Any], index: int) -> ParsedEntry | None:
        """Return an entry to expand; None where its parameters have errors one by one."""
        path: KeyPath = ("cases", index)
        findings = self._findings
        before = findings.count
        reader = ParameterReader(benchmark, raw, path, findings)
        fixed = reader.read_fixed()
        sweep = reader.read_sweep()
        exclude = reader.read_exclude(sweep)
        wrong = findings.count > before
        first = {
            key: item.value for key, item in next(sweep.iterate_points(), {}).items() if key != "np"
        }
        given = (fixed | first, raw.get("expect"))
        expect = parse_expectations(benchmark, *given, (*path, "expect"), findings)
        if wrong:
            return None
        np = raw.get("np")
        name = raw.get("name")
        file = self._file
        own = file.cases[index] if file else None
        if file and file.order == "together" and own and own.until:
            findings.add_at_key((*path, "until"), _TOGETHER)
        if own and own.scale:
            self._check_scale(own.scale, sweep, path)
        return ParsedEntry(
            path=path,
            name=name if isinstance(name, str) else "this case",
            benchmark=benchmark,
            fixed=fixed,
            sweep=sweep,
            exclude=exclude,
            np=np if type(np) is int and np >= 1 else None,
            repeat=own.repeat if own else 1,
            at_once=_at_once(own.per_host) if own else 0,
            counts=_counts(own.scale) if own and own.scale else None,
            until=RepeatPolicy(**own.until.model_dump()) if own and own.until else None,
            expect=expect,
            launch=merge_settings(file.launch, own.launch) if file and own else LaunchSettings(),
            collapse=bool(findings.list_options(path)),
        )

    def _check_scale(self, scale: ScaleEntry, sweep: Sweep, path: KeyPath) -> None:
        if sorted(set(scale.np)) != scale.np:
            self._findings.add_at_value((*path, "scale", "np"), "np of scale must rise")
        if "np" in sweep.keys:
            message = "np is swept, and scale has numbers of ranks too: leave out one of them"
            self._findings.add_at_key((*path, "scale"), message)


def _counts(scale: ScaleEntry) -> RankCounts:
    return RankCounts(tuple(scale.np), scale.work, scale.by)


def _at_once(per_host: bool | int) -> int:
    """Return on how many hosts a case runs at once; 0: it is one job over all of them."""
    if isinstance(per_host, bool):
        return MAX_HOSTS_AT_ONCE if per_host else 0
    return per_host
