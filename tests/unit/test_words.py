"""The words of screens, messages and pages: those of docs/glossary.md, none that were replaced."""

import ast
import re

import pytest

from places import DOCS, ROOT

INSTEAD = {
    r"\bmend(s|ed)?\b": "fix",
    r"\b(is|the|as|than) usual\b": "median",
    r"\bstands twice\b": "duplicate",
    r"\bstill goes on\b": "still running",
    r"\bwithout a word\b": "without an error message",
    r"\bthis is no (YAML|JSON)\b": "invalid YAML",
    r"\bWrite over\b": "Overwrite",
    r"\bDrop them\b": "Discard",
    r"\bnothing stands out\b": "no problems found",
    r"\bhas said (anything|nothing)\b": "has printed",
    r"\banew\b": "again",
}
FIELDS = {"mend"}
"""Names of fields in formats, which stay."""
PACKAGES = ("console/spbench", "core/spbench_core", "workers/spbench_workers")


def odd_words(text):
    """The patterns of replaced words that a text has, with what stands in their place."""
    return [f"{old}: {new}" for old, new in INSTEAD.items() if re.search(old, text)]


def said(source):
    """Texts of a module that somebody may read: no docstrings, and no names of fields."""
    tree = ast.parse(source)
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) not in docstrings and node.value not in FIELDS:
            yield node.value


@pytest.mark.parametrize("package", PACKAGES)
def test_no_screen_and_no_message_has_a_replaced_word(package):
    odd = [
        f"{path.relative_to(ROOT)}: {text[:60]!r}: {words}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in said(path.read_text())
        if (words := odd_words(text))
    ]
    assert odd == []


def test_no_page_has_a_replaced_word():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
    odd = [f"{page.name}: {words}" for page in pages if (words := odd_words(page.read_text()))]
    assert odd == []


@pytest.mark.parametrize(
    "line",
    ['say("mend it first")', 'f"{size} is usual"', 'raise ValueError(f"the key {a} stands twice")'],
)
def test_a_replaced_word_is_found(line):
    assert any(odd_words(text) for text in said(line))


def test_docstrings_and_fields_are_let_be():
    assert not any(odd_words(text) for text in said('"""Mends it anew."""\nfinding["mend"]'))


def test_the_glossary_has_each_word_once_and_is_linked():
    words = re.findall(r"^\| ([^|]+?) \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)[2:]
    assert len(words) == len(set(words)) > 30
    assert "glossary.md" in (ROOT / "README.md").read_text()
