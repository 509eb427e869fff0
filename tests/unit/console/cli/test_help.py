"""Tests of help pages: width, groups, metavars, defaults and examples."""

import re
import shlex
from copy import copy

import pytest
from typer.main import get_command

from spbench.__main__ import _open_tui, _serve_tui
from spbench.cli import tui_commands
from spbench.cli.app import RENAMED, app
from spbench.cli.examples import EXAMPLES
from spbench.cli.help_pages import COMMAND_GROUPS, MANY_OPTIONS, OPTION_GROUPS
from support.paths import ROOT

WIDTHS = (80, 100, 120)
PYTHON_TYPE = re.compile(r"<(str|int|float|path|bool|file|list)\b|\w+ range>")


def build_full_app():
    """Return the app with the TUI commands, which only ``__main__`` adds."""
    full_app = copy(app)
    full_app.registered_commands = [*app.registered_commands]
    tui_commands.register(full_app, _open_tui, _serve_tui)
    return full_app


def list_commands(full_app):
    """Return the command of each page by its path, such as ``results list``."""
    pages = {}
    queue = [("", get_command(full_app))]
    for page, command in queue:
        pages[page] = command
        for name, subcommand in getattr(command, "commands", {}).items():
            queue.append((f"{page} {name}".strip(), subcommand))
    return pages


FULL_APP = build_full_app()
COMMANDS = list_commands(FULL_APP)
PAGES = sorted(COMMANDS)


@pytest.fixture(autouse=True)
def _full_app(monkeypatch):
    monkeypatch.setattr("spbench.cli.app.app", FULL_APP)


def list_shown_params(page, kind):
    """Return the parameters of a command that are not hidden."""
    return [
        param
        for param in COMMANDS[page].params
        if param.param_type_name == kind and not param.hidden
    ]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", WIDTHS)
def test_page_fits_the_terminal_and_is_complete(spbench, monkeypatch, width, page):
    monkeypatch.setenv("COLUMNS", str(width))
    done = spbench(*page.split(), "--help")
    assert (done.status, done.err) == (0, "")
    assert [line for line in done.out.splitlines() if len(line) > width] == []
    body = done.out.partition("\n")[2]
    assert "..." not in body.partition("\nExamples:")[0]
    assert not PYTHON_TYPE.search(done.out)
    defaults = [line for line in done.out.splitlines() if "[default:" in line]
    assert [line for line in defaults if line.count("[default:") > 1 or line[-1] != "]"] == []
    names = [param.metavar or param.name.upper() for param in list_shown_params(page, "argument")]
    names += [name for param in list_shown_params(page, "option") for name in param.opts]
    assert [name for name in names if name not in done.out] == []


@pytest.mark.parametrize("page", PAGES)
def test_descriptions_are_phrases_without_full_stop(page):
    params = [*list_shown_params(page, "option"), *list_shown_params(page, "argument")]
    for param in params:
        assert param.help, param.name
        assert not param.help.endswith("."), param.help
        assert "default" not in param.help.lower(), param.help


@pytest.mark.parametrize("page", PAGES)
def test_options_with_a_value_have_an_upper_case_metavar(page):
    for param in list_shown_params(page, "option"):
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


@pytest.mark.parametrize("page", PAGES)
def test_options_of_long_pages_are_in_groups(spbench, page):
    out = spbench(*page.split(), "--help").out
    titles = re.findall(r"^(\S.*):$", out, re.MULTILINE)
    options = list_shown_params(page, "option")
    if len(options) < MANY_OPTIONS - 1:
        assert "Options" in titles
        return
    assert len(set(titles) & set(OPTION_GROUPS)) >= 2
    grouped = {name for names in OPTION_GROUPS.values() for name in names}
    others = [param for param in options if not grouped.intersection(param.opts)]
    assert len(others) <= 4, [param.name for param in others]


def test_each_option_is_in_one_group():
    grouped = [name for names in OPTION_GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))


EXAMPLE_LINES = [
    pytest.param(page, line, id=line) for page in EXAMPLES for _, line in EXAMPLES[page]
]


@pytest.mark.parametrize(("page", "line"), EXAMPLE_LINES)
def test_example_is_a_command_line(page, line):
    program, *arguments = shlex.split(line)
    assert program == "spbench"
    command = COMMANDS[""]
    context = None
    name = "spbench"
    while True:
        context = command.make_context(name, list(arguments), parent=context)
        if not hasattr(command, "commands"):
            break
        name, command, arguments = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
    for word in shlex.split(line):
        assert not word.startswith("suites/") or (ROOT / word).is_file()


@pytest.mark.parametrize("page", EXAMPLES)
def test_examples_are_on_the_page_of_their_command(spbench, page):
    out = spbench(*page.split(), "--help").out
    assert out.endswith("".join(f"  # {text}\n  {line}\n" for text, line in EXAMPLES[page]))


@pytest.mark.parametrize(
    "page",
    ["run", "scale", "compare", "report", "doctor", "plan", "tui", "results", "baseline"],
)
def test_much_used_commands_have_two_examples_or_more(page):
    assert 2 <= len(EXAMPLES[page]) <= 4


# Names of options


def test_output_files_have_one_option_name():
    for page in PAGES:
        for param in list_shown_params(page, "option"):
            assert "--out" not in param.opts
            if "--output" in param.opts:
                assert "-o" in param.opts
                assert param.metavar in ("FILE", "FOLDER")


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [(command, old, new) for command, names in RENAMED.items() for old, new in names.items()],
)
def test_old_option_name_is_replaced_and_hidden(spbench, command, old, new):
    options = {name for param in list_shown_params(command, "option") for name in param.opts}
    assert new in options
    assert old not in options
    done = spbench(*command.split(), old, "x", "--help")
    assert f"warning: {old} is now {new}\n" in done.err
    assert done.err.count("warning") == 1
    assert "unknown option" not in done.err


def test_old_option_name_warns_once(spbench, tmp_path, messages):
    path = str(tmp_path / "no" / "plan.json")
    done = spbench("plan", path, "--out=a", "--out", "b", "--global-batch-size", "1")
    assert done.err.count("warning: --out is now --output") == 1
    messages.check(done.err)


def test_arguments_after_two_dashes_are_not_options(spbench):
    assert "warning" not in spbench("doctor", "--", "--ranks").err
