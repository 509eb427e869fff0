"""Hosts and their slots: hostfiles in four dialects, and ``--hosts`` lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spbench.errors import UsageError, did_you_mean, format_error_list
from spbench.launch.hosts.names import expand, fold
from spbench.suites.given_files import read_start

MOST_HOSTS = 100_000
MOST_BYTES = 16 << 20
"""Bytes of the largest hostfile."""
ACCEPTED = "a line is HOST, HOST:COUNT[:HCA[:PORT]], HOST slots=COUNT, or node[01-04]:COUNT"

_COUNT = re.compile(r"0*[1-9][0-9]{0,8}")
_NUMBER = re.compile(r"[+-]?[0-9]+")
_HCA = re.compile(r"[A-Za-z]+[A-Za-z0-9]*_[0-9]+")
_IPV6 = re.compile(r"\[([0-9A-Fa-f:.]+:[0-9A-Fa-f:.]*)\](?::(.*))?|([0-9A-Fa-f]*::[0-9A-Fa-f:.]*)")
_SLOTS = ("slots",)
_MAX_SLOTS = ("max_slots", "max-slots")


@dataclass(frozen=True, slots=True)
class Host:
    """One host. ``slots`` None: not stated. ``hca`` is ``NAME`` or ``NAME:PORT``."""

    name: str
    slots: int | None = None
    hca: str | None = None


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts in the order in which ranks fill them, and where they were read from."""

    entries: tuple[Host, ...]
    source: str = field(default="--hosts", compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, each once."""
        return tuple(dict.fromkeys(host.name for host in self.entries))

    @property
    def slots(self) -> int:
        """All slots; a host that states none has one."""
        return sum(host.slots or 1 for host in self.entries)

    def fold(self) -> str:
        """Return the names in short, ``node[01-04]``."""
        return fold(self.names)

    def only(self, name: str) -> Hosts:
        """Return one of the hosts alone."""
        return Hosts(tuple(host for host in self.entries if host.name == name), self.source)

    def excluding(self, text: str) -> Hosts:
        """Return the hosts without those of a list such as ``node[02-03],other``.

        Raises:
            UsageError: A name is none of the hosts, has a count, or no host is left.
        """
        gone = parse_hosts(text, "--exclude-hosts")
        if any(host.slots or host.hca for host in gone.entries):
            raise UsageError(f"--exclude-hosts: {text!r} has a count; give names only")
        unknown = [name for name in gone.names if name not in set(self.names)]
        if unknown:
            near = did_you_mean(unknown[0], self.names) if len(unknown) == 1 else ""
            raise UsageError(
                f"--exclude-hosts: {fold(unknown)} is not among the hosts of {self.source}, "
                f"{self.fold()}{near}"
            )
        left = tuple(host for host in self.entries if host.name not in set(gone.names))
        if not left:
            raise UsageError(f"--exclude-hosts: {text!r} leaves no host of {self.source}")
        return Hosts(left, self.source)


def read_hostfile(path: Path) -> Hosts:
    """Return the hosts of a file in any of the four dialects; repeated lines add up.

    Raises:
        UsageError: The file cannot be read, is empty, or has bad lines: all of them, one a line.
    """
    try:
        data = read_start(path, MOST_BYTES + 1)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{path}: error: cannot read the hostfile: {why}") from None
    if len(data) > MOST_BYTES:
        most = MOST_BYTES >> 20
        raise UsageError(f"{path}: error: the hostfile has more than {most} MiB")
    found: list[Host] = []
    errors: list[str] = []
    # not splitlines(): a form feed or a Unicode separator is no end of a line
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        try:
            found += _line_hosts(line.partition("#")[0])
            _guard(found)
        except ValueError as error:
            errors.append(f"{path}:{number}: error: {error}")
        if len(found) > MOST_HOSTS:
            break
    if not errors and not found:
        errors.append(f"{path}:1: error: the hostfile names no host; {ACCEPTED}")
    if errors:
        raise UsageError(format_error_list(errors))
    return Hosts(_added_up(found), str(path))


def parse_hosts(text: str, source: str = "--hosts") -> Hosts:
    """Return the hosts of a list such as ``node[01-08],other:4``.

    Raises:
        UsageError: The list is empty or has a bad item.
    """
    try:
        found = _list_hosts(text.strip())
        _guard(found)
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from None
    return Hosts(_added_up(found), source)


def _guard(found: Sequence[Host]) -> None:
    if len(found) > MOST_HOSTS:
        raise ValueError(f"more than {MOST_HOSTS} hosts; check the ranges")


def _added_up(found: Iterable[Host]) -> tuple[Host, ...]:
    merged: dict[tuple[str, str | None], Host] = {}
    for host in found:
        key = (host.name, host.hca)
        before = merged.get(key)
        if before is not None:
            host = Host(host.name, (before.slots or 1) + (host.slots or 1), host.hca)
        merged[key] = host
    return tuple(merged.values())


def _line_hosts(line: str) -> list[Host]:
    line = re.sub(r"\s*,\s*", ",", line)
    line = re.sub(r"\s*=\s*", "=", line)
    words = line.split()
    if not words:
        return []
    stated = _stated_slots(words[1:])
    hosts = _list_hosts(words[0])
    if stated is None:
        return hosts
    if any(host.slots is not None for host in hosts):
        raise ValueError(f"{words[0]!r} has a count and slots={stated}; give one of the two")
    return [Host(host.name, stated, host.hca) for host in hosts]


def _stated_slots(words: Sequence[str]) -> int | None:
    slots = None
    most = None
    for word in words:
        key, equals, value = word.partition("=")
        if key in _SLOTS and equals:
            slots = _count(value, word)
        elif key in _MAX_SLOTS and equals:
            most = _count(value, word)
        elif not (key == "binding" and value):
            raise ValueError(f"unknown word {word!r}; {ACCEPTED}")
    if slots is not None and most is not None and most < slots:
        raise ValueError(f"max_slots={most} is below slots={slots}")
    return slots


def _count(text: str, where: str) -> int:
    if not _COUNT.fullmatch(text):
        raise ValueError(f"bad count {text!r} in {where!r}; a count is a whole number from 1 up")
    return int(text)


def _list_hosts(text: str) -> list[Host]:
    found: list[Host] = []
    for item in re.split(r",(?![^\[]*\])", text):
        found += _item_hosts(item, text)
        _guard(found)
    return found


def _item_hosts(item: str, whole: str) -> list[Host]:
    if not item or (item.startswith(":") and not _IPV6.fullmatch(item)):
        raise ValueError(f"a host name is missing in {whole!r}" if whole else "no host is given")
    address = _IPV6.fullmatch(item)
    if address:
        name, *fields = [address[3]] if address[3] else [address[1], *_fields(address[2])]
        names: Sequence[str] = [name]
    else:
        expression, *fields = re.split(r":(?![^\[]*\])", item)
        names = expand(expression, MOST_HOSTS)
    slots, hca = _slots_and_hca(fields, item)
    return [Host(name, slots, hca) for name in names]


def _fields(text: str | None) -> list[str]:
    return [] if text is None else text.split(":")


def _slots_and_hca(fields: Sequence[str], item: str) -> tuple[int | None, str | None]:
    slots = None
    rest = list(fields)
    if rest and not _HCA.fullmatch(rest[0]):
        if not _NUMBER.fullmatch(rest[0]):
            raise ValueError(f"bad count {rest[0]!r} in {item!r}; {ACCEPTED}")
        slots = _count(rest.pop(0), item)
    if len(rest) > 2:
        raise ValueError(f"too many fields in {item!r}; {ACCEPTED}")
    if not rest:
        return slots, None
    if not _HCA.fullmatch(rest[0]):
        raise ValueError(f"bad HCA {rest[0]!r} in {item!r}; an HCA is written like mlx5_0")
    if len(rest) == 2 and not _COUNT.fullmatch(rest[1]):
        raise ValueError(f"bad HCA port {rest[1]!r} in {item!r}; a port is a number from 1 up")
    return slots, ":".join(rest)
