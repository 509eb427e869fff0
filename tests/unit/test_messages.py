"""The files of expected messages."""

import ast
from functools import cache

import pytest

from support.messages import Messages, find_message_file, format_messages, parse_messages
from support.paths import TESTS

TEXTS = {
    "test_a.py::test_one": ["error: no such key\nhelp: choose another", "# second"],
    "test_a.py::test_two[x y]": ["rows:\n\n  indented\nlast"],
}


def test_reads_what_it_writes():
    assert parse_messages(format_messages(TEXTS)) == TEXTS


def test_compares_each_message_with_the_next_text():
    messages = Messages("test_a.py::test_one", ["first in TMP", "second"], {"/tmp/abc": "TMP"})
    messages.check("first in /tmp/abc")
    with messages.raises(ValueError) as caught:
        raise ValueError("second")
    assert caught.type is ValueError


def test_rejects_another_text():
    messages = Messages("test_a.py::test_one", ["first"], {})
    with pytest.raises(AssertionError):
        messages.check("other")


def test_rejects_a_message_without_expected_text():
    messages = Messages("test_a.py::test_one", [], {})
    with pytest.raises(pytest.fail.Exception, match="no expected text"):
        messages.check("first")


def test_file_of_a_test_is_in_the_closest_folder_that_has_one():
    test = TESTS / "unit/console/cli/test_cli.py"
    assert find_message_file(test) == TESTS / "unit/console/cli/messages.txt"
    with pytest.raises(FileNotFoundError, match="create an empty one"):
        find_message_file(TESTS / "data/test_x.py")


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=str(p.relative_to(TESTS))) for p in TESTS.rglob("messages.txt")]
)
def test_each_text_belongs_to_a_test(path, collected_names):
    texts = parse_messages(path.read_text())
    assert texts
    assert [test for test in texts if not checks_messages(path, test, collected_names)] == []


def checks_messages(path, test, collected_names):
    """Return whether a test of a file of messages exists and checks messages.

    The parameters of a test are only compared if its file was collected.
    """
    file, _, name = test.partition("::")
    test_path = path.parent / file
    if not test_path.exists() or name not in collected_names.get(test_path, {name}):
        return False
    return name.partition("[")[0] in list_checking_functions(test_path)


@cache
def list_checking_functions(path):
    """Return the names of a file's functions that have the fixture `messages`."""
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and "messages" in [argument.arg for argument in node.args.args]
    }


@pytest.mark.parametrize(
    "test",
    [
        "test_messages.py::test_absent",
        "test_absent.py::test_reads_what_it_writes",
        "test_messages.py::test_reads_what_it_writes",
    ],
)
def test_detects_text_of_no_test(test):
    assert not checks_messages(TESTS / "unit/messages.txt", test, {})


def test_detects_text_of_removed_parameters():
    file = TESTS / "unit/messages.txt"
    name = "test_step_passes_only_with_the_expected_exit_code[0-0-passed]"
    test = f"test_gpu_once.py::{name}"
    assert checks_messages(file, test, {TESTS / "unit/test_gpu_once.py": {name}})
    assert not checks_messages(file, test, {TESTS / "unit/test_gpu_once.py": {"test_other"}})
