"""Check names, texts, statements and commit subjects against families.toml.

    python .ci/language/check.py [--count] [PATH ...]

Without PATH, the trees that families.toml lists and the commit subjects are checked. In a folder,
these are modules, and scripts without a suffix that start with a line for Python. Each hit is
printed as `file:line: family: text`, and the exit code is 1. --count prints the hits of each family
instead. exceptions.toml lists hits that stay, each with its reason; an exception without a hit is
an error, too.

In addition to the families, four rules:

- The first line of a docstring has at most 80 characters.
- No assignment of a tuple display to a tuple display, `a, b = x, y`, unless a target is read on the
  right side, like in `a, b = b, a`. Write one statement per line.
- No conditional expression inside another one. Write an if statement, or a function.
- A name in single backquotes in a docstring or comment exists in the sources, so that a rename
  changes it everywhere. Other code has double backquotes. Checked only without PATH.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FIRST_CHECKED_COMMIT = "acca5e0a"
TUPLES = "tuple assigned to a tuple"
CONDITIONALS = "nested conditional expression"
SUMMARIES = "first line of a docstring above 80 characters"
REFERENCES = "reference to an unknown name"
LONGEST_SUMMARY = 80
LONGEST_FIRST_LINE = 200
CODE = re.compile(r"`[^`]*`")
REFERENCE = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)")


@dataclass(frozen=True, slots=True)
class Text:
    """A checked piece of a source file: kind is one of `applies` in families.toml."""

    kind: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that a family finds."""

    path: str
    line: int
    family: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.family}: {self.text}"


@dataclass(frozen=True, slots=True)
class Family:
    """Names or phrasings to avoid."""

    name: str
    applies: frozenset[str]
    pattern: re.Pattern[str]

    def find_match(self, text: Text) -> str | None:
        """Return the part of a text that the family finds."""
        if text.kind not in self.applies:
            return None
        match = self.pattern.search(text.text)
        return match[0].strip() if match else None


def load_families(path: Path = HERE / "families.toml") -> list[Family]:
    """Return the families of a file."""
    return [parse_family(table) for table in tomllib.loads(path.read_text())["family"]]


def parse_family(table: dict[str, Any]) -> Family:
    """Return the family that a table of families.toml describes."""
    pattern = table.get("pattern") or f"^(?:{'|'.join(map(re.escape, table['names']))})$"
    return Family(table["name"], frozenset(table["applies"]), re.compile(pattern))


def list_texts(source: str) -> Iterator[Text]:
    """Yield names, docstrings, comments and strings of a module.

    Code in backquotes is left out.
    """
    tree = parse(source)
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield Text("variable", node.lineno, name.strip("_"))
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield Text("variable", node.lineno, name.strip("_"))
            case ast.ExceptHandler(name=str(name)):
                yield Text("variable", node.lineno, name.strip("_"))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not describes_state(node):
                    yield Text("function", node.lineno, name.strip("_"))
            case ast.ClassDef(name=name):
                yield Text("type", node.lineno, name.strip("_"))
            case ast.Constant(value=str(text)):
                kind = "docstring" if id(node) in docstrings else "string"
                yield Text(kind, node.lineno, strip_code(text))
    for token in list_tokens(source):
        if token.type == tokenize.COMMENT:
            yield Text("comment", token.start[0], strip_code(token.string))


@lru_cache(maxsize=1)
def parse(source: str) -> ast.Module:
    """Return the syntax tree of a module; several checks of one module share it."""
    return ast.parse(source)


@lru_cache(maxsize=1)
def list_tokens(source: str) -> list[tokenize.TokenInfo]:
    """Return the tokens of a module; several checks of one module share them."""
    return list(tokenize.generate_tokens(io.StringIO(source).readline))


def describes_state(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a participle suits a function: a property, an override, or a bool."""
    decorators = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
    if decorators & {"property", "cached_property", "setter", "override"}:
        return True
    return isinstance(node.returns, ast.Name) and node.returns.id == "bool"


def strip_code(text: str) -> str:
    """Return a text without code and line breaks."""
    return re.sub(r"\s+", " ", CODE.sub("X", text))


def list_rule_hits(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, rule and text of packed statements and of long summaries."""
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            summary = (ast.get_docstring(node) or "").partition("\n")[0]
            if len(summary) > LONGEST_SUMMARY:
                yield getattr(node, "lineno", 1), SUMMARIES, summary
        if isinstance(node, ast.Assign) and packs_assignments(node):
            yield node.lineno, TUPLES, ast.unparse(node)
        if isinstance(node, ast.IfExp):
            parts = (node.test, node.body, node.orelse)
            if any(isinstance(part, ast.IfExp) for part in parts):
                yield node.lineno, CONDITIONALS, ast.unparse(node)


def packs_assignments(node: ast.Assign) -> bool:
    """Whether a statement assigns values that could be assigned one by one."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            pass
        case _:
            return False
    if any(isinstance(part, ast.Starred) for part in (*targets, *values)):
        return False
    assigned = {ast.unparse(target) for target in targets}
    read = {
        ast.unparse(part)
        for value in values
        for part in ast.walk(value)
        if isinstance(part, ast.Name | ast.Attribute | ast.Subscript)
    }
    return not assigned & read


def list_checked_paths() -> list[Path]:
    """Return the sources in the trees of families.toml, except excluded ones."""
    config = tomllib.loads((HERE / "families.toml").read_text())
    excluded = [ROOT / path for path in config["excluded"]]
    return [
        source
        for path in config["paths"]
        for source in list_sources(ROOT / path)
        if not any(source.is_relative_to(folder) for folder in excluded)
    ]


def list_sources(folder: Path) -> list[Path]:
    """Return the modules in a folder, and the scripts in Python without a suffix."""
    return sorted(path for path in folder.rglob("*") if path.suffix == ".py" or is_script(path))


def is_script(path: Path) -> bool:
    """Whether a file without a suffix starts with a line for Python."""
    if path.suffix or not path.is_file():
        return False
    with path.open("rb") as file:
        first_line = file.readline(LONGEST_FIRST_LINE)
    return first_line.startswith(b"#!") and b"python" in first_line


def check_module(path: Path, families: Sequence[Family]) -> Iterator[Hit]:
    """Yield the hits in a file."""
    source = path.read_text()
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
    for text in list_texts(source):
        for family in families:
            part = family.find_match(text)
            if part is not None:
                yield Hit(name, text.line, family.name, shorten(text.text, part))
    for line, rule, statement in list_rule_hits(source):
        yield Hit(name, line, rule, statement[:100])


class ReferenceCheck:
    """The references of sources to names that none of the sources has."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._references: list[Hit] = []

    def add(self, path: Path) -> None:
        """Add the names and references of a file in the project."""
        source = path.read_text()
        relative_path = path.relative_to(ROOT)
        self._names.update(relative_path.with_suffix("").parts)
        self._names.update(list_names(source))
        for line, name in list_references(source):
            self._references.append(Hit(str(relative_path), line, REFERENCES, name))

    def list_hits(self) -> list[Hit]:
        """Return the references to names that no added file has."""
        return [hit for hit in self._references if not self._names.issuperset(hit.text.split("."))]


def list_names(source: str) -> Iterator[str]:
    """Yield all names and keywords in the code of a module."""
    for token in list_tokens(source):
        if token.type == tokenize.NAME:
            yield token.string


def list_references(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of the references in docstrings and comments."""
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            for match in REFERENCE.finditer(str(node.value.value)):
                yield node.lineno, match[1]
    for token in list_tokens(source):
        if token.type == tokenize.COMMENT:
            for match in REFERENCE.finditer(token.string):
                yield token.start[0], match[1]


def shorten(text: str, part: str) -> str:
    """Return a part of a text with its surroundings."""
    start = text.find(part)
    return text[max(0, start - 40) : start + len(part) + 40]


def check_commits(families: Sequence[Family]) -> Iterator[Hit]:
    """Yield the commits since FIRST_CHECKED_COMMIT with a subject that a family finds."""
    span = f"{FIRST_CHECKED_COMMIT}..HEAD"
    log = subprocess.run(
        ["git", "log", "--no-merges", "--format=%h %s", span],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if log.returncode:
        print(f"commit subjects were not checked: {log.stderr.strip()}", file=sys.stderr)
        return
    for line in log.stdout.splitlines():
        commit, _, subject = line.partition(" ")
        for family in families:
            if family.find_match(Text("commit", 0, subject)) is not None:
                yield Hit(commit, 0, family.name, subject)


def load_exceptions() -> list[dict[str, Any]]:
    """Return tables with path, family, text and reason."""
    document = tomllib.loads((HERE / "exceptions.toml").read_text())
    exceptions: list[dict[str, Any]] = document.get("exception", [])
    return exceptions


def is_excepted(hit: Hit, exception: dict[str, Any]) -> bool:
    """Whether an exception is about a hit: same files or folders, family, and text."""
    return (
        hit.path.startswith(tuple(exception["paths"]))
        and exception["family"] == hit.family
        and exception["text"] in hit.text
    )


def main() -> int:
    """Print hits or counts; return 1 if there are hits, or exceptions without one."""
    parser = argparse.ArgumentParser(description="Check names and texts of the sources.")
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders")
    parser.add_argument("--count", action="store_true", help="print the hits of each family")
    options = parser.parse_args()
    families = load_families()
    paths = [path.resolve() for path in options.paths] or list_checked_paths()
    hits: list[Hit] = []
    references = ReferenceCheck()
    for path in paths:
        for source in list_sources(path) if path.is_dir() else [path]:
            hits.extend(check_module(source, families))
            if not options.paths:
                references.add(source)
    if not options.paths:
        hits.extend(check_commits(families))
        hits.extend(references.list_hits())
    exceptions = load_exceptions()
    unused = [
        exception
        for exception in exceptions
        if not any(is_excepted(hit, exception) for hit in hits)
    ]
    hits = [hit for hit in hits if not any(is_excepted(hit, exception) for exception in exceptions)]
    if options.count:
        for family, count in Counter(hit.family for hit in hits).most_common():
            print(f"{count:6} {family}")
    else:
        for hit in hits:
            print(hit)
    if options.paths:
        return 1 if hits else 0
    for exception in unused:
        print(f"exceptions.toml: no hit for {exception}")
    return 1 if hits or unused else 0


if __name__ == "__main__":
    sys.exit(main())
