"""A pytest plugin: the expected texts of messages, in one file per area.

A test passes a message to `messages.check`, or expects an error by `messages.raises`. The expected
text is in the ``messages.txt`` of the closest folder that has one, under the name of the test. To
accept a change of messages, write these files again and look at their difference:

    SPBENCH_MESSAGES=write python -m pytest tests/unit/console/suites
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from support.paths import ROOT, TESTS

FILE_NAME = "messages.txt"
Error = TypeVar("Error", bound=BaseException)
WRITES = os.environ.get("SPBENCH_MESSAGES") == "write"

_new_texts: dict[Path, dict[str, list[str]]] = {}
"""Texts of this process's tests by file and test, in write mode."""
_HAS_PASSED = pytest.StashKey[bool]()
_collected: dict[Path, set[str]] = {}
"""Names of tests by file, with their parameters and before any is deselected."""


def parse_messages(file_text: str) -> dict[str, list[str]]:
    """Return the texts of a file of messages by test, in the order of its checks.

    A line that starts in the first column names a test. The lines below, indented, are one text.
    """
    texts: dict[str, list[str]] = {}
    for line in file_text.splitlines():
        if line.startswith("#"):
            continue
        if line and not line.startswith("  "):
            test_texts = texts.setdefault(line, [])
            test_texts.append("")
        elif texts:
            test_texts[-1] += line[2:] + "\n"
    return {test: [text.strip("\n") for text in test_texts] for test, test_texts in texts.items()}


def format_messages(texts: dict[str, list[str]]) -> str:
    """Return the text of a file of messages for `parse_messages`; tests are sorted."""
    blocks = ["# Expected messages; to write them again: tests/support/messages.py\n"]
    for test, test_texts in sorted(texts.items()):
        for text in test_texts:
            lines = [f"  {line}".rstrip() for line in text.split("\n")]
            blocks.append("\n".join([test, *lines]) + "\n")
    return "\n".join(blocks)


def find_message_file(test_path: Path) -> Path:
    """Return the file of messages of the closest folder above a test that has one."""
    for folder in test_path.parents:
        if (path := folder / FILE_NAME).exists():
            return path
        if folder == TESTS:
            break
    raise FileNotFoundError(f"no {FILE_NAME} above {test_path}: create an empty one")


class Messages:
    """The messages that one test expects.

    Args:
        test: The test's path below the folder of its file of messages, and its name.
        expected: The expected texts, in the order of the checks.
        folders: Names for paths that differ between machines, by path.
    """

    def __init__(self, test: str, expected: Sequence[str], folders: dict[str, str]) -> None:
        self._test = test
        self._expected = expected
        self._folders = folders
        self.texts: list[str] = []

    def check(self, message: str | Sequence[str]) -> None:
        """Compare a message, or the lines of one, with the next expected text."""
        text = self._normalise(message if isinstance(message, str) else "\n".join(message))
        position = len(self.texts)
        self.texts.append(text)
        if WRITES:
            return
        if position == len(self._expected):
            pytest.fail(f"{self._test} has no expected text for message {position}: {text}")
        assert text == self._expected[position]

    @contextmanager
    def raises(self, kind: type[Error]) -> Iterator[pytest.ExceptionInfo[Error]]:
        """Expect an error of a kind with the next expected text."""
        with pytest.raises(kind) as caught:
            yield caught
        self.check(str(caught.value))

    def _normalise(self, text: str) -> str:
        for folder, name in self._folders.items():
            text = text.replace(folder, name)
        return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")


@pytest.fixture
def messages(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Messages]:
    """The messages that this test expects; each expected text has to be checked."""
    path = find_message_file(request.path)
    test = f"{request.path.relative_to(path.parent)}::{request.node.name}"
    expected = parse_messages(path.read_text()).get(test, [])
    folders = {str(tmp_path): "TMP", sys.executable: "PYTHON", str(ROOT): "ROOT"}
    checked = Messages(test, expected, folders)
    yield checked
    has_passed = request.node.stash.get(_HAS_PASSED, False)
    if WRITES:
        _new_texts.setdefault(path, {})[test] = checked.texts if has_passed else expected
    elif has_passed:
        assert len(checked.texts) == len(expected), f"{test} checks fewer messages than {path} has"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Store whether a test has passed; one that is skipped checks no messages."""
    report = yield
    if call.when == "call":
        item.stash[_HAS_PASSED] = report.passed
    return report


def pytest_itemcollected(item: pytest.Item) -> None:
    """Store the name of a test."""
    _collected.setdefault(item.path, set()).add(item.name)


@pytest.fixture
def collected_names(pytestconfig: pytest.Config) -> dict[Path, set[str]]:
    """Names of all tests by file; no file if only some of its tests may be collected."""
    selects_tests = any("::" in argument for argument in pytestconfig.args)
    if selects_tests or pytestconfig.getoption("lf", default=False):
        return {}
    return _collected


def pytest_sessionfinish() -> None:
    """Write the files of messages, in write mode; other processes write the same ones."""
    for path, texts in _new_texts.items():
        with path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            merged = parse_messages(file.read()) | texts
            file.seek(0)
            file.write(format_messages({test: merged[test] for test in merged if merged[test]}))
            file.truncate()
