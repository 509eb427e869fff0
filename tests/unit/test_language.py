"""The check of names and texts: each family finds its hit, not its near miss."""

from __future__ import annotations

import importlib.util
import sys
import tomllib

import pytest

from support.paths import ROOT

FOLDER = ROOT / ".ci" / "language"
FAMILIES = tomllib.loads((FOLDER / "families.toml").read_text())["family"]
EXCEPTIONS = tomllib.loads((FOLDER / "exceptions.toml").read_text()).get("exception", [])
MAX_EXCEPTIONS = 40
PRONOUN_VARIABLE = "pronoun, preposition or adverb as a variable"


def load_check():
    """Return the module of the command, which is in no package."""
    spec = importlib.util.spec_from_file_location("language_check", FOLDER / "check.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


check = load_check()


@pytest.mark.parametrize("table", FAMILIES, ids=[table["name"] for table in FAMILIES])
def test_family_finds_its_hit_and_not_its_near_miss(table):
    family = check.parse_family(table)
    for kind in table["applies"]:
        assert family.find_match(check.Text(kind, 1, table["hit"])) is not None
        assert family.find_match(check.Text(kind, 1, table["near_miss"])) is None
    assert table["instead"]


@pytest.mark.parametrize(
    ("source", "line", "family"),
    [
        ("found = 1", 1, "participle as a variable"),
        ("for one in range(3):\n    pass", 1, PRONOUN_VARIABLE),
        ("def read(place):\n    pass", 1, "word with several meanings as a variable"),
        ("self._told = 1", 1, "participle as a variable"),
        ("try:\n    pass\nexcept OSError as why:\n    pass", 3, PRONOUN_VARIABLE),
        ("def beside():\n    pass", 1, "function named by a preposition, a pronoun or an adverb"),
        ("class Said:\n    pass", 1, "type named by a participle, a pronoun or an adverb"),
        ('def read():\n    """Return what is left."""', 2, "what as subject or object"),
        ("a = 1  # whose end is near", 1, "whose"),
        (f'"""Return {"x" * 75}."""', 1, check.SUMMARIES),
        ("a, b = 1, 2", 1, check.TUPLES),
        ("self.a, b = f(), 2", 1, check.TUPLES),
        ("a = 1 if b else 2 if c else 3", 1, check.CONDITIONALS),
    ],
)
def test_finds_a_planted_hit_in_a_module(tmp_path, source, line, family):
    path = tmp_path / "module.py"
    path.write_text(source)
    hits = list(check.check_module(path, check.load_families()))
    assert [(hit.line, hit.family) for hit in hits] == [(line, family)]


@pytest.mark.parametrize(
    "source",
    [
        f'"""Return {"x" * 72}."""',
        "a, b = b, a",
        "self.first, self.last = self.last, self.first",
        "a, b = divmod(7, 2)",
        "a, *b = 1, 2",
        "a = (1 if b else 2) + (3 if c else 4)",
        "class Work:\n    @property\n    def finished(self):\n        return True",
        "def is_finished(path) -> bool:\n    return True",
        'def read():\n    """Return `told` and `what`."""',
        "print(told)",
    ],
)
def test_accepts_a_module_without_hits(tmp_path, source):
    path = tmp_path / "module.py"
    path.write_text(source)
    assert list(check.check_module(path, check.load_families())) == []


def test_lists_modules_and_scripts_in_python(tmp_path):
    sources = {
        "module.py": "",
        "script": "#!/usr/bin/env python3\n",
        "shell": "#!/bin/sh\n",
        "text.txt": "#!/usr/bin/env python3\n",
        "plain": "python\n",
    }
    (tmp_path / "folder").mkdir()
    for name, text in sources.items():
        (tmp_path / "folder" / name).write_text(text)
    assert [path.name for path in check.list_sources(tmp_path)] == ["module.py", "script"]


def test_finds_references_to_names_that_no_source_has(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "ROOT", tmp_path)
    present = tmp_path / "present.py"
    present.write_text('def read():\n    """See `Reader.close`, `present` and ``other``."""\n')
    outdated = tmp_path / "outdated.py"
    outdated.write_text("class Reader:\n    close = 1  # like `read`, unlike `former`\n")
    references = check.ReferenceCheck()
    references.add(present)
    references.add(outdated)
    assert references.list_hits() == [check.Hit("outdated.py", 2, check.REFERENCES, "former")]


def test_checked_trees_have_no_excluded_sources():
    names = {str(path.relative_to(ROOT)) for path in check.list_checked_paths()}
    assert {"tests/standins/srun", "tests/unit/test_language.py", ".ci/language/check.py"} <= names
    assert "tests/support/networks/own_networks.py" not in names


def test_exceptions_are_few_and_have_reasons():
    assert len(EXCEPTIONS) <= MAX_EXCEPTIONS
    names = {table["name"] for table in FAMILIES}
    for exception in EXCEPTIONS:
        assert set(exception) == {"paths", "family", "text", "reason"}
        assert exception["family"] in names
        assert all((ROOT / path).exists() for path in exception["paths"])


def test_exception_covers_its_hit_only():
    hit = check.Hit("core/a.py", 3, "whose", "ranks whose end")
    exception = {"paths": ["core"], "family": "whose", "text": "whose end"}
    assert check.is_excepted(hit, exception)
    assert not check.is_excepted(hit, exception | {"text": "other"})
    assert not check.is_excepted(hit, exception | {"paths": ["console"]})
    assert not check.is_excepted(hit, exception | {"family": "what"})


@pytest.mark.parametrize(
    ("subject", "hits"),
    [
        ("planner: bound the search by memory", 0),
        ("cli, report: explain skew", 0),
        ("Name the ranks", 1),
        ("planner: bound the search by the memory of the largest stage of each of the plans", 1),
    ],
)
def test_checks_commit_subjects(subject, hits):
    text = check.Text("commit", 0, subject)
    assert sum(family.find_match(text) is not None for family in check.load_families()) == hits
