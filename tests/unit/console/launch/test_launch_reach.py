"""Tests of finding hosts that ssh reaches, with a stand-in for ssh."""

from __future__ import annotations

import time

import pytest

from spbench.launch.survey import reach
from spbench.launch.survey.reach import (
    find_hosts_lacking,
    find_unreachable,
    find_unresolved,
    read_ssh_names,
)

SSH = """#!/bin/sh
if [ "$1" = -G ]; then
    [ "$2" = mute ] || printf 'user me\\nhostname full-%s\\nport 22\\n' "$2"
    exit
fi
for host do test "$host" != true && last=$host; done
case "$last" in
*"test -d"*) sh -c "$last"; exit;;
good*) echo "$*" > "{folder}/$last"; exit 0;;
slow) exec sleep 30;;
mute) exit 255;;
nowhere|*.invalid) echo "ssh: Could not resolve hostname $last: unknown" >&2; exit 255;;
127.0.0.9) echo "ssh: wrong" >&2; exit 255;;
*) echo "noise" >&2; echo "$last: Permission denied (publickey)." >&2; exit 255;;
esac
"""


@pytest.fixture
def ssh(monkeypatch, tmp_path):
    path = tmp_path / "bin/ssh"
    path.parent.mkdir()
    path.write_text(SSH.format(folder=tmp_path))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")

    async def resolves(host: str) -> bool:
        return host not in ("nowhere", "alias")

    monkeypatch.setattr(reach, "_resolves", resolves)
    return tmp_path


async def test_unreachable_hosts_have_a_reason(ssh):
    # an alias in ssh's configuration counts as resolved, even if its host refuses
    reasons = await find_unreachable(
        ["good1", "locked", "alias", "nowhere", "mute", "good1", "localhost"]
    )
    assert reasons == {
        "locked": "locked: Permission denied (publickey).",
        "alias": "alias: Permission denied (publickey).",
        "nowhere": "its name does not resolve",
        "mute": "ssh ended with status 255",
    }
    assert (ssh / "good1").read_text() == "-o BatchMode=yes -o ConnectTimeout=5 good1 true\n"


@pytest.mark.usefixtures("ssh")
async def test_this_machine_is_not_queried():
    assert await find_unreachable(["127.0.0.9", "localhost", "::1"]) == {}
    assert await find_unreachable([]) == {}


@pytest.mark.usefixtures("ssh")
async def test_hanging_host_times_out():
    start = time.monotonic()
    reasons = await find_unreachable(["slow", "good2"], timeout_seconds=0.3)
    assert reasons == {"slow": "no answer in 0.3 s"}
    assert time.monotonic() - start < 3


@pytest.mark.slow
async def test_queries_many_hosts_at_once(ssh):
    hosts = [f"good{number}" for number in range(100)]
    assert await find_unreachable(hosts) == {}
    assert len(list(ssh.glob("good*"))) == 100


async def test_missing_ssh_is_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    reasons = await find_unreachable(["128.0.0.1"])
    assert reasons == {"128.0.0.1": "ssh is not installed here (No such file or directory)"}


async def test_unknown_name_does_not_resolve(ssh, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("PATH", f"{ssh}/bin:/usr/bin:/bin")
    assert await find_unreachable(["no-such-host.invalid"]) == {
        "no-such-host.invalid": "its name does not resolve"
    }


@pytest.mark.usefixtures("ssh")
async def test_finds_names_that_do_not_resolve():
    assert await find_unresolved(["good1", "nowhere", "localhost", "nowhere"]) == ["nowhere"]


@pytest.mark.usefixtures("ssh")
async def test_reports_hosts_without_folder_or_helper(tmp_path):
    helper = tmp_path / "mpispawn"
    assert await find_hosts_lacking(["node01"], "/no/such", helper) == {
        "node01": "it has no folder /no/such"
    }
    assert await find_hosts_lacking(["node01"], str(tmp_path), helper) == {
        "node01": f"it has no {helper}"
    }
    helper.touch(mode=0o755)
    assert await find_hosts_lacking(["node01", "localhost"], str(tmp_path), helper) == {}


@pytest.mark.usefixtures("ssh")
async def test_reads_host_names_from_ssh_configuration():
    assert await read_ssh_names(["alias", "mute", "alias", "localhost"]) == {"alias": "full-alias"}
