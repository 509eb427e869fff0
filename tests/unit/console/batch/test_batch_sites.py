"""Tests of site files: contents, errors, precedence and trust."""

import os
import re
from pathlib import Path

import pytest

from spbench.batch import site
from spbench.batch.site import collect_batch_settings, read_site
from spbench.errors import SuiteError, UsageError
from spbench.suites.loader import load_suite_text
from support.paths import DOCS

SUITE = """
schema: spbench.suite/1
name: s
launch: {{batch: {{{batch}}}}}
cases: [{{name: a, benchmark: link.pingpong, np: 2}}]
"""


@pytest.fixture
def site_paths(tmp_path, monkeypatch):
    """Return the paths of the site files of home, user and --site; no file exists."""
    monkeypatch.setattr(site, "find_user_site", lambda: tmp_path / "config" / "site.yaml")
    return {
        "home": tmp_path / "home" / "site.yaml",
        "user": tmp_path / "config" / "site.yaml",
        "site": tmp_path / "given.yaml",
    }


def write(path: Path, batch: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"schema: spbench.site/1\nbatch: {{{batch}}}\n")


def test_command_line_precedes_suite_and_site_files(site_paths):
    keys = ["account", "partition", "qos", "time", "nodes"]
    values = {"user": "u", "home": "h", "suite": "s", "site": "g", "set": "x"}
    layers = {
        name: ", ".join(f"{key}: {value}" for key in keys[: index + 1] if key != "time")
        for index, (name, value) in enumerate(reversed(values.items()))
    }
    for name in ("user", "home", "site"):
        write(site_paths[name], layers[name].replace("nodes: u", "nodes: 7"))
    overrides = ["launch.batch.account=x", "launch.timeout=3"]
    suite = load_suite_text(SUITE.format(batch=layers["suite"]), Path("s.yaml"), overrides)
    settings = collect_batch_settings(
        suite, overrides, site_paths["site"], site_paths["home"].parent, pytest.fail
    )
    assert (settings.account, settings.partition, settings.qos, settings.nodes) == (
        "x",
        "g",
        "s",
        7,
    )


def test_lists_are_not_merged_and_null_removes_a_key(site_paths):
    write(site_paths["home"], "modules: [a, b], qos: low")
    suite = load_suite_text(SUITE.format(batch="modules: [c], qos: null"), Path("s.yaml"))
    settings = collect_batch_settings(suite, [], None, site_paths["home"].parent, pytest.fail)
    assert (settings.modules, settings.qos) == (("c",), None)


def test_site_file_in_the_docs_is_valid(tmp_path):
    (text,) = re.findall(r"^```yaml\n(.*?)^```", (DOCS / "batch.md").read_text(), re.S | re.M)
    path = tmp_path / "site.yaml"
    path.write_text(text)
    assert read_site(path).account == "proj42"


def test_default_settings_are_empty(site_paths):
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    settings = collect_batch_settings(suite, [], None, site_paths["home"].parent, pytest.fail)
    assert settings.model_fields_set == set()


def test_all_errors_are_reported_with_positions(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("schema: spbench.site/1\nbatch:\n  acount: x\n  time: soon\n  nodes: 0\n")
    with pytest.raises(SuiteError) as raised:
        read_site(path)
    assert str(raised.value).splitlines() == [
        f"{path}:3:3: error: unknown key 'acount' in batch (did you mean account?)",
        f"{path}:4:9: error: 'soon' is not a time limit: write it like 45m, 2h or 1:30:00",
        f"{path}:5:10: error: batch.nodes must be at least 1, not 0",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "{path}:1:1: error: the site begins with 'schema: spbench.site/1'"),
        ("batch: {}\n", "{path}:1:1: error: the site lacks the key 'schema'"),
        ("a: [", "{path}:1:4: error: invalid YAML: the bracket [ is not closed"),
    ],
)
def test_error_for_another_file_shows_the_first_line(tmp_path, text, message):
    path = tmp_path / "site.yaml"
    path.write_text(text)
    with pytest.raises(SuiteError) as raised:
        read_site(path)
    assert str(raised.value).startswith(message.format(path=path))


def test_named_site_file_must_exist(tmp_path, site_paths, messages):
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    with messages.raises(UsageError):
        collect_batch_settings(suite, [], tmp_path / "none.yaml", tmp_path, pytest.fail)


# Files that somebody else may have written

SOMEBODY = 12345
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def change_owner(path, owner=SOMEBODY):
    os.chown(path, owner, owner)


UNTRUSTED = [
    pytest.param(lambda path: path.chmod(0o666), "it is world-writable; run chmod o-w ", id="file"),
    pytest.param(
        lambda path: path.parent.chmod(0o777),
        "its folder {folder} is world-writable; run chmod o-w {folder}",
        id="folder",
    ),
    pytest.param(
        lambda path: path.parent.chmod(0o1777), "its folder .* is world-writable", id="sticky"
    ),
    pytest.param(
        change_owner, f"it belongs to user {SOMEBODY} .expected root", id="own", marks=as_root
    ),
    pytest.param(
        lambda path: change_owner(path, NOBODY),
        f"it belongs to user {NOBODY}",
        id="nobodys",
        marks=as_root,
    ),
    pytest.param(
        lambda path: change_owner(path.parent),
        f"its folder {{folder}} belongs to user {SOMEBODY}",
        id="folder-own",
        marks=as_root,
    ),
]


@pytest.mark.parametrize("source", ["home", "user"])
@pytest.mark.parametrize(("change", "reason"), UNTRUSTED)
def test_untrusted_site_file_is_skipped(site_paths, source, change, reason):
    path = site_paths[source]
    write(path, "account: theirs, lines: [evil]")
    change(path)
    warnings = []
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    settings = collect_batch_settings(suite, [], None, site_paths["home"].parent, warnings.append)
    assert settings.model_fields_set == set()
    [warning] = warnings
    assert re.match(f"{path} was skipped: {reason.format(folder=path.parent)}", warning)
    assert warning.endswith("; to use it as it is, name it with --site")


@pytest.mark.parametrize(("change", "_reason"), UNTRUSTED)
def test_named_site_file_is_read_even_if_untrusted(site_paths, change, _reason):
    write(site_paths["site"], "account: mine")
    path = site_paths["site"].parent / "sites" / "given.yaml"
    path.parent.mkdir()
    site_paths["site"].rename(path)
    change(path)
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    settings = collect_batch_settings(suite, [], path, site_paths["home"].parent, pytest.fail)
    assert settings.account == "mine"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_group_writable_site_file_is_read(site_paths, mode):
    write(site_paths["user"], "account: mine")
    site_paths["user"].chmod(mode)
    site_paths["user"].parent.chmod(0o775)
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    assert (
        collect_batch_settings(suite, [], None, site_paths["home"], pytest.fail).account == "mine"
    )


@as_root
def test_link_is_trusted_like_its_target(site_paths, tmp_path):
    write(tmp_path / "kept.yaml", "account: mine")
    site_paths["user"].parent.mkdir()
    site_paths["user"].symlink_to(tmp_path / "kept.yaml")
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    assert (
        collect_batch_settings(suite, [], None, site_paths["home"], pytest.fail).account == "mine"
    )
    change_owner(tmp_path / "kept.yaml")
    warnings = []
    assert (
        collect_batch_settings(suite, [], None, site_paths["home"], warnings.append).account is None
    )
    assert len(warnings) == 1


@pytest.mark.timeout(10)
def test_pipe_instead_of_a_site_file_does_not_block(site_paths, monkeypatch, messages):
    site_paths["user"].parent.mkdir()
    os.mkfifo(site_paths["user"])
    monkeypatch.setattr(
        "os.path.isfile", lambda path: path == site_paths["user"]
    )  # as if it had been a file before
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    with messages.raises(UsageError):
        collect_batch_settings(suite, [], None, site_paths["home"], pytest.fail)


@as_root
@pytest.mark.parametrize("owner", [0, SOMEBODY, NOBODY])
def test_user_trusts_their_files_and_those_of_root(site_paths, owner, monkeypatch):
    write(site_paths["user"], "account: x")
    change_owner(site_paths["user"].parent, owner)
    change_owner(site_paths["user"], owner)
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    warnings = []
    monkeypatch.setattr("os.geteuid", lambda: owner)
    settings = collect_batch_settings(suite, [], None, site_paths["home"], warnings.append)
    assert (settings.account, len(warnings)) == ((None, 1) if owner == NOBODY else ("x", 0))
