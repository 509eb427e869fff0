"""Loader of suite files, which reports all errors at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO

from spbench.errors import Diagnostic, SuiteError, UsageError, did_you_mean
from spbench.suites.case import MAX_HOSTS_AT_ONCE, Case, RepeatPolicy, Suite
from spbench.suites.defaults import apply_defaults
from spbench.suites.expand import ParsedEntry, Sweep, expand_entry
from spbench.suites.expectations import parse_expectations
from spbench.suites.expressions.references import ExpandedEntry, resolve_references
from spbench.suites.file_errors import CaseError, FileErrors
from spbench.suites.inject import inject_fault
from spbench.suites.model import ScaleEntry, SuiteFile, merge_settings
from spbench.suites.overrides import apply_overrides, read_as_text
from spbench.suites.parameters import ParameterReader
from spbench.suites.pipe_files import read_first_bytes
from spbench.suites.shipped import require_suite_file
from spbench.suites.validation_messages import validate_suite
from spbench.suites.yaml_nodes import Document, KeyPath, YamlError, parse_yaml
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.scaling import RankScaling

_UNTIL_NEEDS_INTERLEAVED = (
    "until repeats a case in launches of its own: it takes order: interleaved"
)
MAX_BYTES = 4 << 20


def load_suite_file(path: Path, overrides: Sequence[str] = (), inject: str | None = None) -> Suite:
    """Load the suite of a file, with ``--set`` overrides and ``--inject`` applied.

    Raises:
        UsageError: The file cannot be read, or an override or the fault is invalid.
        SuiteError: The file has errors; the exception contains all of them.
    """
    return load_suite_text(read_suite_file(path), path, overrides, inject)


def load_suite_text(
    text: str, path: Path, overrides: Sequence[str] = (), inject: str | None = None
) -> Suite:
    """Load the suite of a text like `load_suite_file`; errors name ``path``.

    Raises:
        UsageError: An override or the fault is invalid.
        SuiteError: The text has errors; the exception contains all of them.
    """
    return _read_text(text, path, overrides).make_suite(inject)


@dataclass(frozen=True, slots=True)
class _ReadText:
    """A text that was read, with its errors.

    Attributes:
        path: The file.
        text: The text.
        file: The keys of the suite; None if their shape has errors.
        cases: The cases of the entries that could be read.
        errors: The errors.
        option_error: An error in the overrides; None without one.
    """

    path: Path
    text: str
    file: SuiteFile | None
    cases: Sequence[Case]
    errors: FileErrors
    option_error: str | None

    def make_suite(self, inject: str | None = None) -> Suite:
        """Return the suite; see `load_suite_text`."""
        self.errors.raise_if_any()
        if self.option_error is not None:
            raise UsageError(self.option_error)
        file = self.file
        assert file is not None  # otherwise errors were raised
        cases = tuple(self.cases)
        if inject is not None:
            cases = inject_fault(cases, inject)
        return Suite(
            self.path, self.text, file.name, file.description, file.launch, cases, file.order
        )


def _read_text(text: str, path: Path, overrides: Sequence[str]) -> _ReadText:
    try:
        document = parse_yaml(text)
    except YamlError as error:
        mark = error.mark
        raise SuiteError([Diagnostic(str(path), mark.line, mark.column, str(error))]) from None
    errors = FileErrors(str(path), document)
    suite_data = document.root.data
    if not isinstance(suite_data, dict):
        problem = "the file is empty" if suite_data is None else "this is not a mapping"
        hint = "a suite begins with 'schema: spbench.suite/1'"
        errors.add(document.root.mark, f"{problem}; {hint}")
        errors.raise_if_any()
    _keep_env_text(suite_data, document)
    unknown_key_messages = apply_overrides(suite_data, overrides, errors)
    apply_defaults(suite_data, errors)
    file = validate_suite(suite_data, errors)
    cases = _EntryLoader(suite_data, file, errors).load_cases()
    return _ReadText(path, text, file, cases, errors, next(iter(unknown_key_messages), None))


def read_suite_file(path: Path, open_: Callable[[Path], BinaryIO] | None = None) -> str:
    """Return the text of a suite file, or of ``shipped:NAME``.

    Args:
        path: The file.
        open_: Opens the file; None: `read_first_bytes` is used.

    Raises:
        UsageError: It cannot be read, or is not a text file.
    """
    try:
        if open_ is None:
            raw_bytes = read_first_bytes(require_suite_file(path), MAX_BYTES + 1)
        else:
            with open_(path) as file:
                raw_bytes = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        hint = _suggest_file(path)
        raise UsageError(f"cannot read {path}: there is no such file{hint}") from None
    except IsADirectoryError:
        raise UsageError(f"cannot read {path}: it is a folder, name a suite file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}") from None
    if len(raw_bytes) > MAX_BYTES:
        raise UsageError(f"cannot read {path}: a suite file has at most {MAX_BYTES >> 20} MiB")
    try:
        text = raw_bytes.decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"byte {error.start} is 0x{raw_bytes[error.start]:02x}"
        raise UsageError(f"cannot read {path}: it is not UTF-8 text ({detail})") from None
    if "\0" in text:
        raise UsageError(f"cannot read {path}: it is a binary file, not YAML text")
    return text


def _suggest_file(path: Path) -> str:
    """Return a hint to a suite file with a similar name, or an empty text."""
    folders = (path.parent, path.parent / "suites")
    path_by_name = {file.name: file for folder in folders for file in sorted(folder.glob("*.y*ml"))}
    similar_names = get_close_matches(path.name, path_by_name, n=1)
    if not similar_names:
        return ""
    return f" (did you mean {path_by_name[similar_names[0]].relative_to(path.parent)}?)"


def _keep_env_text(suite_data: dict[str, Any], document: Document) -> None:
    """Restore the text of the values of every ``env``: ``1`` is ``"1"``."""
    cases = suite_data.get("cases")
    indices = range(len(cases)) if isinstance(cases, list) else ()
    case_paths: list[KeyPath] = [("cases", index, "launch") for index in indices]
    for path in [("launch",), *case_paths]:
        node = document.root.find_node((*path, "env"))
        if node is not None:
            launch = (
                suite_data["launch"] if len(path) == 1 else suite_data["cases"][path[1]]["launch"]
            )
            launch["env"] = read_as_text(node)


class _EntryLoader:
    """A loader of the entries of ``cases:``; ``file`` is None if the shape has errors."""

    def __init__(
        self, suite_data: dict[str, Any], file: SuiteFile | None, errors: FileErrors
    ) -> None:
        entries = suite_data.get("cases")
        self._entries_data = entries if isinstance(entries, list) else []
        self._file = file
        self._errors = errors

    def load_cases(self) -> list[Case]:
        expanded_entries: list[ExpandedEntry] = []
        line_by_name: dict[str, int] = {}
        for index, entry_data in enumerate(self._entries_data):
            if not isinstance(entry_data, dict):
                continue
            self._check_name(entry_data.get("name"), index, line_by_name)
            benchmark = self._find_benchmark(entry_data.get("benchmark"), index)
            if benchmark is not None and (entry := self._parse_entry(benchmark, entry_data, index)):
                cases = expand_entry(entry, self._errors)
                expanded_entries.append(ExpandedEntry(entry.path, cases))
        return resolve_references(expanded_entries, [*line_by_name], self._errors)

    def _check_name(self, name: Any, index: int, line_by_name: dict[str, int]) -> None:
        if not isinstance(name, str):
            return
        line = self._errors.find_line(("cases", index, "name"))
        if name in line_by_name:
            message = f"duplicate case name {name!r} (first on line {line_by_name[name]})"
            self._errors.add_at_value(("cases", index, "name"), message)
        line_by_name.setdefault(name, line)

    def _find_benchmark(self, name: Any, index: int) -> Benchmark | None:
        if not isinstance(name, str):
            return None
        if name in BENCHMARKS:
            return BENCHMARKS[name]
        hint = did_you_mean(name, BENCHMARKS) or "; `spbench benchmarks` lists them"
        message = f"unknown benchmark {name!r}{hint}"
        self._errors.add_at_value(("cases", index, "benchmark"), message)
        return None

    def _parse_entry(
        self, benchmark: Benchmark, entry_data: dict[str, Any], index: int
    ) -> ParsedEntry | None:
        """Return an entry to expand, or None if one of its parameters is invalid."""
        path: KeyPath = ("cases", index)
        errors = self._errors
        errors_before = errors.count
        reader = ParameterReader(benchmark, entry_data, path, errors)
        fixed = reader.read_fixed()
        sweep = reader.read_sweep()
        exclude = reader.read_exclude(sweep)
        has_errors = errors.count > errors_before

        # Metrics may depend on parameters; those of the first point count for all.
        params = fixed | sweep.first_values
        expect = parse_expectations(
            benchmark, params, entry_data.get("expect"), (*path, "expect"), errors
        )
        if has_errors:
            return None

        np = entry_data.get("np")
        name = entry_data.get("name")
        return ParsedEntry(
            path=path,
            name=name if isinstance(name, str) else "this case",
            benchmark=benchmark,
            fixed=fixed,
            sweep=sweep,
            exclude=exclude,
            np=np if type(np) is int and np >= 1 else None,
            expect=expect,
            collapse=bool(errors.list_options(path)),
            **self._read_settings(sweep, path, index),
        )

    def _read_settings(self, sweep: Sweep, path: KeyPath, index: int) -> dict[str, Any]:
        """Return the fields of an entry that need a file without errors, or no fields."""
        if self._file is None:
            return {}
        case = self._file.cases[index]
        if self._file.order == "together" and case.until:
            self._errors.add_at_key((*path, "until"), _UNTIL_NEEDS_INTERLEAVED)
        if case.scale:
            self._check_scale(case.scale, sweep, path)
        return {
            "repeat": case.repeat,
            "at_once": _convert_per_host(case.per_host),
            "counts": _make_rank_counts(case.scale) if case.scale else None,
            "until": RepeatPolicy(**case.until.model_dump()) if case.until else None,
            "launch": merge_settings(self._file.launch, case.launch),
        }

    def _check_scale(self, scale: ScaleEntry, sweep: Sweep, path: KeyPath) -> None:
        if sorted(set(scale.np)) != scale.np:
            self._errors.add_at_value((*path, "scale", "np"), "np of scale must rise")
        if "np" in sweep.keys:
            message = "np is swept, and scale has numbers of ranks too: leave out one of them"
            self._errors.add_at_key((*path, "scale"), message)


def _make_rank_counts(scale: ScaleEntry) -> RankScaling:
    return RankScaling(tuple(scale.np), scale.work, scale.by)


def _convert_per_host(per_host: bool | int) -> int:
    """Return the limit of hosts with a job of a case; 0: one job over all hosts."""
    if isinstance(per_host, bool):
        return MAX_HOSTS_AT_ONCE if per_host else 0
    return per_host


@dataclass(frozen=True, slots=True)
class CheckedText:
    """The suite of a text, or its errors in the order of their positions.

    Attributes:
        suite: The suite; None if there are errors.
        diagnostics: The errors.
        cases: The cases that could be read, also with errors elsewhere.
        case_errors: The errors of entries of ``cases:``.
    """

    suite: Suite | None
    diagnostics: Sequence[Diagnostic] = ()
    cases: Sequence[Case] = ()
    case_errors: Sequence[CaseError] = ()


def check_text(text: str, path: Path, overrides: Sequence[str] = ()) -> CheckedText:
    """Load a text in an editor, and return its suite or its errors without raising.

    Args:
        text: The whole text, which may be incomplete.
        path: The file that the diagnostics name.
        overrides: Options of ``--set``; their errors have the position of line 1.
    """
    cases: Sequence[Case] = ()
    case_errors: Sequence[CaseError] = ()
    try:
        read_text = _read_text(text, path, overrides)
        cases = read_text.cases
        case_errors = read_text.errors.case_errors
        suite = read_text.make_suite()
    except SuiteError as error:
        return CheckedText(None, tuple(error.diagnostics), cases, case_errors)
    except UsageError as error:
        return CheckedText(None, (Diagnostic(str(path), 1, 1, str(error)),), cases, case_errors)
    return CheckedText(suite, (), suite.cases)
