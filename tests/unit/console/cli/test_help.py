"""Help pages: complete at any width, in groups, with metavars, defaults and examples."""

import re
import shlex
from copy import copy

import pytest
from typer.main import get_command

from places import ROOT
from spbench.__main__ import _open_console, _serve_console
from spbench.cli import console
from spbench.cli.app import RENAMED, app
from spbench.cli.examples import EXAMPLES
from spbench.cli.help_pages import COMMAND_GROUPS, MANY_OPTIONS, OPTION_GROUPS

WIDTHS = (80, 100, 120)
PYTHON_TYPE = re.compile(r"<(str|int|float|path|bool|file|list)\b|\w+ range>")


def whole_app():
    """The app with the commands that open screens, which only ``__main__`` adds."""
    whole = copy(app)
    whole.registered_commands = [*app.registered_commands]
    console.register(whole, _open_console, _serve_console)
    return whole


def commands_of(whole):
    """The command of each page, by its words."""
    pages = {}
    below = [("", get_command(whole))]
    for words, command in below:
        pages[words] = command
        for name, subcommand in getattr(command, "commands", {}).items():
            below.append((f"{words} {name}".strip(), subcommand))
    return pages


WHOLE_APP = whole_app()
COMMANDS = commands_of(WHOLE_APP)
PAGES = sorted(COMMANDS)


@pytest.fixture(autouse=True)
def _every_command(monkeypatch):
    monkeypatch.setattr("spbench.cli.app.app", WHOLE_APP)


def shown_params(words, kind):
    """The parameters of a command that its page shows."""
    return [
        param
        for param in COMMANDS[words].params
        if param.param_type_name == kind and not param.hidden
    ]


@pytest.mark.parametrize("words", PAGES)
@pytest.mark.parametrize("width", WIDTHS)
def test_page_fits_the_terminal_and_is_complete(spbench, monkeypatch, width, words):
    monkeypatch.setenv("COLUMNS", str(width))
    done = spbench(*words.split(), "--help")
    assert (done.status, done.err) == (0, "")
    assert [line for line in done.out.splitlines() if len(line) > width] == []
    body = done.out.partition("\n")[2]
    assert "..." not in body.partition("\nExamples:")[0]
    assert not PYTHON_TYPE.search(done.out)
    defaults = [line for line in done.out.splitlines() if "[default:" in line]
    assert [line for line in defaults if line.count("[default:") > 1 or line[-1] != "]"] == []
    names = [param.metavar or param.name.upper() for param in shown_params(words, "argument")]
    names += [name for param in shown_params(words, "option") for name in param.opts]
    assert [name for name in names if name not in done.out] == []


@pytest.mark.parametrize("words", PAGES)
def test_descriptions_are_phrases_without_full_stop(words):
    params = [*shown_params(words, "option"), *shown_params(words, "argument")]
    for param in params:
        assert param.help, param.name
        assert not param.help.endswith("."), param.help
        assert "default" not in param.help.lower(), param.help


@pytest.mark.parametrize("words", PAGES)
def test_options_with_a_value_have_an_upper_case_metavar(words):
    for param in shown_params(words, "option"):
        if not param.is_flag and not param.count:
            assert param.metavar, param.name
            assert re.fullmatch(r"[A-Z][A-Zx=,@\[\]-]*", param.metavar), param.metavar


def test_each_command_is_in_one_group():
    grouped = [name for names in COMMAND_GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS[""].commands)


def test_summaries_fit_on_one_line(spbench, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = spbench("--help").out.partition("Options:")[0].splitlines()
    rows = [line for line in lines if line.startswith("  ")]
    assert [line.split()[0] for line in rows] == [
        name for names in COMMAND_GROUPS.values() for name in names
    ]


@pytest.mark.parametrize("words", PAGES)
def test_options_of_long_pages_are_in_groups(spbench, words):
    out = spbench(*words.split(), "--help").out
    titles = re.findall(r"^(\S.*):$", out, re.MULTILINE)
    options = shown_params(words, "option")
    if len(options) < MANY_OPTIONS - 1:
        assert "Options" in titles
        return
    assert len(set(titles) & set(OPTION_GROUPS)) >= 2
    grouped = {name for names in OPTION_GROUPS.values() for name in names}
    others = [param for param in options if not grouped.intersection(param.opts)]
    assert len(others) <= 4, [param.name for param in others]


def test_an_option_is_in_one_group():
    grouped = [name for names in OPTION_GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))


EXAMPLE_LINES = [
    pytest.param(words, line, id=line) for words in EXAMPLES for _, line in EXAMPLES[words]
]


@pytest.mark.parametrize(("words", "line"), EXAMPLE_LINES)
def test_example_is_a_command_line(words, line):
    program, *rest = shlex.split(line)
    assert program == "spbench"
    command = COMMANDS[""]
    context = None
    name = "spbench"
    while True:
        context = command.make_context(name, list(rest), parent=context)
        if not hasattr(command, "commands"):
            break
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
    for word in shlex.split(line):
        assert not word.startswith("suites/") or (ROOT / word).is_file()


@pytest.mark.parametrize("words", EXAMPLES)
def test_examples_are_on_the_page_of_their_command(spbench, words):
    out = spbench(*words.split(), "--help").out
    assert out.endswith("".join(f"  # {text}\n  {line}\n" for text, line in EXAMPLES[words]))


@pytest.mark.parametrize(
    "words",
    ["run", "scale", "compare", "report", "doctor", "plan", "tui", "results", "baseline"],
)
def test_much_used_commands_have_two_examples_or_more(words):
    assert 2 <= len(EXAMPLES[words]) <= 4


# Names of options


def test_files_to_write_have_one_name():
    for words in PAGES:
        for param in shown_params(words, "option"):
            assert "--out" not in param.opts
            if "--output" in param.opts:
                assert "-o" in param.opts
                assert param.metavar in ("FILE", "FOLDER")


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [(command, old, new) for command, names in RENAMED.items() for old, new in names.items()],
)
def test_an_old_name_is_replaced_and_hidden(spbench, command, old, new):
    options = {name for param in shown_params(command, "option") for name in param.opts}
    assert new in options
    assert old not in options
    done = spbench(*command.split(), old, "x", "--help")
    assert f"warning: {old} is now {new}\n" in done.err
    assert done.err.count("warning") == 1
    assert "unknown option" not in done.err


def test_an_old_name_warns_once(spbench, tmp_path):
    path = str(tmp_path / "no" / "plan.json")
    done = spbench("plan", path, "--out=a", "--out", "b", "--global-batch-size", "1")
    assert done.err.count("warning: --out is now --output") == 1
    assert "--output takes one value, and is given 2 times" in done.err


def test_words_after_two_dashes_are_not_options(spbench):
    assert "warning" not in spbench("doctor", "--", "--ranks").err
