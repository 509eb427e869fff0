"""Site files: what they may say, where their errors stand, and which word counts."""

import os
import re
from pathlib import Path

import pytest

from places import DOCS
from spbench.batch import site
from spbench.batch.site import batch_settings, read_site
from spbench.errors import SuiteError, UsageError
from spbench.suites.loader import load_suite_text

SUITE = """
schema: spbench.suite/1
name: s
launch: {{batch: {{{batch}}}}}
cases: [{{name: a, benchmark: link.pingpong, np: 2}}]
"""


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A home, a user's configuration and a file for --site, none of them there yet."""
    monkeypatch.setattr(site, "find_user_site", lambda: tmp_path / "config" / "site.yaml")
    return {
        "home": tmp_path / "home" / "site.yaml",
        "user": tmp_path / "config" / "site.yaml",
        "site": tmp_path / "given.yaml",
    }


def write(path: Path, batch: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"schema: spbench.site/1\nbatch: {{{batch}}}\n")


def test_the_command_line_comes_first_then_the_suite_then_the_files_that_were_found(places):
    keys = ["account", "partition", "qos", "time", "nodes"]
    values = {"user": "u", "home": "h", "suite": "s", "site": "g", "set": "x"}
    layers = {
        name: ", ".join(f"{key}: {value}" for key in keys[: index + 1] if key != "time")
        for index, (name, value) in enumerate(reversed(values.items()))
    }
    for name in ("user", "home", "site"):
        write(places[name], layers[name].replace("nodes: u", "nodes: 7"))
    overrides = ["launch.batch.account=x", "launch.timeout=3"]
    suite = load_suite_text(SUITE.format(batch=layers["suite"]), Path("s.yaml"), overrides)
    found = batch_settings(suite, overrides, places["site"], places["home"].parent, pytest.fail)
    assert (found.account, found.partition, found.qos, found.nodes) == ("x", "g", "s", 7)


def test_a_list_is_the_first_ones_alone_and_null_leaves_a_key_out(places):
    write(places["home"], "modules: [a, b], qos: low")
    suite = load_suite_text(SUITE.format(batch="modules: [c], qos: null"), Path("s.yaml"))
    found = batch_settings(suite, [], None, places["home"].parent, pytest.fail)
    assert (found.modules, found.qos) == (("c",), None)


def test_the_site_file_of_the_docs_is_right(tmp_path):
    (text,) = re.findall(r"^```yaml\n(.*?)^```", (DOCS / "batch.md").read_text(), re.S | re.M)
    path = tmp_path / "site.yaml"
    path.write_text(text)
    assert read_site(path).account == "proj42"


def test_without_a_word_nothing_is_asked_for(places):
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    found = batch_settings(suite, [], None, places["home"].parent, pytest.fail)
    assert found.model_fields_set == set()


def test_all_errors_of_a_site_file_come_in_one_pass_at_their_places(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("schema: spbench.site/1\nbatch:\n  acount: x\n  time: soon\n  nodes: 0\n")
    with pytest.raises(SuiteError) as refused:
        read_site(path)
    assert str(refused.value).splitlines() == [
        f"{path}:3:3: error: unknown key 'acount' in batch (did you mean account?)",
        f"{path}:4:9: error: 'soon' is no time limit; write it as 45m, 2h or 1:30:00",
        f"{path}:5:10: error: batch.nodes must be at least 1, not 0",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "{path}:1:1: error: the site begins with 'schema: spbench.site/1'"),
        ("batch: {}\n", "{path}:1:1: error: the site lacks the key 'schema'"),
        ("a: [", "{path}:2:1: error: invalid YAML"),
    ],
)
def test_a_file_that_is_no_site_says_how_one_begins(tmp_path, text, told):
    path = tmp_path / "site.yaml"
    path.write_text(text)
    with pytest.raises(SuiteError) as refused:
        read_site(path)
    assert str(refused.value).startswith(told.format(path=path))


def test_a_site_file_that_is_named_must_be_there(tmp_path, places):
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    with pytest.raises(UsageError, match="there is no such file"):
        batch_settings(suite, [], tmp_path / "none.yaml", tmp_path, pytest.fail)


# Files that somebody else may have written

SOMEBODY = 12345
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def give_away(path, owner=SOMEBODY):
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
        give_away, f"it belongs to user {SOMEBODY} .expected root", id="own", marks=as_root
    ),
    pytest.param(
        lambda path: give_away(path, NOBODY),
        f"it belongs to user {NOBODY}",
        id="nobodys",
        marks=as_root,
    ),
    pytest.param(
        lambda path: give_away(path.parent),
        f"its folder {{folder}} belongs to user {SOMEBODY}",
        id="folder-own",
        marks=as_root,
    ),
]


@pytest.mark.parametrize("place", ["home", "user"])
@pytest.mark.parametrize(("change", "reason"), UNTRUSTED)
def test_a_site_file_that_another_user_may_have_written_is_skipped(places, place, change, reason):
    path = places[place]
    write(path, "account: theirs, lines: [evil]")
    change(path)
    warnings = []
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    found = batch_settings(suite, [], None, places["home"].parent, warnings.append)
    assert found.model_fields_set == set()
    [warning] = warnings
    assert re.match(f"{path} was skipped: {reason.format(folder=path.parent)}", warning)
    assert warning.endswith("; to use it as it is, name it with --site")


@pytest.mark.parametrize(("change", "_reason"), UNTRUSTED)
def test_a_site_file_that_the_user_names_is_read(places, change, _reason):
    write(places["site"], "account: mine")
    path = places["site"].parent / "sites" / "given.yaml"
    path.parent.mkdir()
    places["site"].rename(path)
    change(path)
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    found = batch_settings(suite, [], path, places["home"].parent, pytest.fail)
    assert found.account == "mine"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_a_site_file_that_its_group_may_write_is_read(places, mode):
    write(places["user"], "account: mine")
    places["user"].chmod(mode)
    places["user"].parent.chmod(0o775)
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    assert batch_settings(suite, [], None, places["home"], pytest.fail).account == "mine"


@as_root
def test_a_link_counts_as_the_file_that_it_leads_to(places, tmp_path):
    write(tmp_path / "kept.yaml", "account: mine")
    places["user"].parent.mkdir()
    places["user"].symlink_to(tmp_path / "kept.yaml")
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    assert batch_settings(suite, [], None, places["home"], pytest.fail).account == "mine"
    give_away(tmp_path / "kept.yaml")
    warnings = []
    assert batch_settings(suite, [], None, places["home"], warnings.append).account is None
    assert len(warnings) == 1


@pytest.mark.timeout(10)
def test_a_pipe_that_takes_the_place_of_a_site_file_is_not_waited_for(places, monkeypatch):
    places["user"].parent.mkdir()
    os.mkfifo(places["user"])
    monkeypatch.setattr("os.path.isfile", lambda path: path == places["user"])  # it was
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    with pytest.raises(UsageError, match=r"cannot read .*: it is a pipe"):
        batch_settings(suite, [], None, places["home"], pytest.fail)


@as_root
@pytest.mark.parametrize("owner", [0, SOMEBODY, NOBODY])
def test_a_user_trusts_files_of_root_and_of_their_own(places, owner, monkeypatch):
    write(places["user"], "account: x")
    give_away(places["user"].parent, owner)
    give_away(places["user"], owner)
    suite = load_suite_text(SUITE.format(batch=""), Path("s.yaml"))
    warnings = []
    monkeypatch.setattr("os.geteuid", lambda: owner)
    found = batch_settings(suite, [], None, places["home"], warnings.append)
    assert (found.account, len(warnings)) == ((None, 1) if owner == NOBODY else ("x", 0))
