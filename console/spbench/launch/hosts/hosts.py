"""Hosts and their slots: hostfiles in four dialects, and ``--hosts`` lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spbench.errors import UsageError, did_you_mean, format_error_list
from spbench.launch.hosts.names import expand_host_list, fold
from spbench.suites.pipe_files import read_first_bytes

MAX_HOSTS = 100_000
MAX_HOSTFILE_BYTES = 16 << 20
ACCEPTED = "a line is HOST, HOST:COUNT[:HCA[:PORT]], HOST slots=COUNT, or node[01-04]:COUNT"

_COUNT = re.compile(r"0*[1-9][0-9]{0,8}")
_NUMBER = re.compile(r"[+-]?[0-9]+")
_HCA = re.compile(r"[A-Za-z]+[A-Za-z0-9]*_[0-9]+")
_IPV6 = re.compile(r"\[([0-9A-Fa-f:.]+:[0-9A-Fa-f:.]*)\](?::(.*))?|([0-9A-Fa-f]*::[0-9A-Fa-f:.]*)")
_SLOTS = ("slots",)
_MAX_SLOTS = ("max_slots", "max-slots")


@dataclass(frozen=True, slots=True)
class Host:
    """One host.

    Attributes:
        slots: The number of ranks that it takes; None if it is not stated.
        hca: Its adapter, ``NAME`` or ``NAME:PORT``.
    """

    name: str
    slots: int | None = None
    hca: str | None = None


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts in the order in which ranks fill them, and their source for messages."""

    entries: tuple[Host, ...]
    source: str = field(default="--hosts", compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names without repetitions."""
        return tuple(dict.fromkeys(host.name for host in self.entries))

    @property
    def slots(self) -> int:
        """The total of slots; a host without a number counts as one."""
        return sum(host.slots or 1 for host in self.entries)

    def fold(self) -> str:
        """Return the names in short form, such as ``node[01-04]``."""
        return fold(self.names)

    def select(self, name: str) -> Hosts:
        """Return only the host of this name."""
        return Hosts(tuple(host for host in self.entries if host.name == name), self.source)

    def exclude(self, text: str) -> Hosts:
        """Return the hosts without those of a list such as ``node[02-03],other``.

        Raises:
            UsageError: A name is unknown or has a count, or no host is left.
        """
        excluded = parse_hosts(text, "--exclude-hosts")
        if any(host.slots or host.hca for host in excluded.entries):
            raise UsageError(f"--exclude-hosts: {text!r} has a count; give names only")
        unknown = [name for name in excluded.names if name not in set(self.names)]
        if unknown:
            suggestion = did_you_mean(unknown[0], self.names) if len(unknown) == 1 else ""
            raise UsageError(
                f"--exclude-hosts: {fold(unknown)} is not among the hosts of {self.source}, "
                f"{self.fold()}{suggestion}"
            )
        excluded_names = set(excluded.names)
        remaining = tuple(host for host in self.entries if host.name not in excluded_names)
        if not remaining:
            raise UsageError(f"--exclude-hosts: {text!r} leaves no host of {self.source}")
        return Hosts(remaining, self.source)


def read_hostfile(path: Path) -> Hosts:
    """Return the hosts of a file in any of the four dialects; repeated lines add up.

    Raises:
        UsageError: The file cannot be read, is empty, or has bad lines. The message lists all bad
            lines, one per line.
    """
    try:
        data = read_first_bytes(path, MAX_HOSTFILE_BYTES + 1)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{path}: error: cannot read the hostfile: {reason}") from None
    if len(data) > MAX_HOSTFILE_BYTES:
        limit = MAX_HOSTFILE_BYTES >> 20
        raise UsageError(f"{path}: error: the hostfile has more than {limit} MiB")
    hosts: list[Host] = []
    errors: list[str] = []
    # not splitlines(), which also splits at a form feed or a Unicode separator
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        try:
            hosts += _parse_line(line.partition("#")[0])
            _check_count(hosts)
        except ValueError as error:
            errors.append(f"{path}:{number}: error: {error}")
        if len(hosts) > MAX_HOSTS:
            break
    if not errors and not hosts:
        errors.append(f"{path}:1: error: the hostfile names no host; {ACCEPTED}")
    if errors:
        raise UsageError(format_error_list(errors))
    return Hosts(_merge_repeated(hosts), str(path))


def parse_hosts(text: str, source: str = "--hosts") -> Hosts:
    """Return the hosts of a list such as ``node[01-08],other:4``.

    Raises:
        UsageError: The list is empty or has a bad item.
    """
    try:
        hosts = _parse_list(text.strip())
        _check_count(hosts)
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from None
    return Hosts(_merge_repeated(hosts), source)


def _check_count(hosts: Sequence[Host]) -> None:
    if len(hosts) > MAX_HOSTS:
        raise ValueError(f"more than {MAX_HOSTS} hosts; check the ranges")


def _merge_repeated(hosts: Iterable[Host]) -> tuple[Host, ...]:
    host_by_name_and_hca: dict[tuple[str, str | None], Host] = {}
    for host in hosts:
        name_and_hca = (host.name, host.hca)
        earlier = host_by_name_and_hca.get(name_and_hca)
        if earlier is not None:
            host = Host(host.name, (earlier.slots or 1) + (host.slots or 1), host.hca)
        host_by_name_and_hca[name_and_hca] = host
    return tuple(host_by_name_and_hca.values())


def _parse_line(line: str) -> list[Host]:
    line = re.sub(r"\s*,\s*", ",", line)
    line = re.sub(r"\s*=\s*", "=", line)
    fields = line.split()
    if not fields:
        return []
    slots = _parse_slots(fields[1:])
    hosts = _parse_list(fields[0])
    if slots is None:
        return hosts
    if any(host.slots is not None for host in hosts):
        raise ValueError(f"{fields[0]!r} has a count and slots={slots}; give one of the two")
    return [Host(host.name, slots, host.hca) for host in hosts]


def _parse_slots(options: Sequence[str]) -> int | None:
    slots = None
    max_slots = None
    for option in options:
        option_name, equals_sign, count_text = option.partition("=")
        if option_name in _SLOTS and equals_sign:
            slots = _parse_count(count_text, option)
        elif option_name in _MAX_SLOTS and equals_sign:
            max_slots = _parse_count(count_text, option)
        elif not (option_name == "binding" and count_text):
            raise ValueError(f"unknown word {option!r}; {ACCEPTED}")
    if slots is not None and max_slots is not None and max_slots < slots:
        raise ValueError(f"max_slots={max_slots} is below slots={slots}")
    return slots


def _parse_count(text: str, context: str) -> int:
    if not _COUNT.fullmatch(text):
        raise ValueError(f"bad count {text!r} in {context!r}; a count is a whole number from 1 up")
    return int(text)


def _parse_list(text: str) -> list[Host]:
    hosts: list[Host] = []
    for host_text in re.split(r",(?![^\[]*\])", text):
        hosts += _parse_host_text(host_text, text)
        _check_count(hosts)
    return hosts


def _parse_host_text(host_text: str, text: str) -> list[Host]:
    if not host_text or (host_text.startswith(":") and not _IPV6.fullmatch(host_text)):
        raise ValueError(f"a host name is missing in {text!r}" if text else "no host is given")
    ipv6_match = _IPV6.fullmatch(host_text)
    if ipv6_match:
        name, *fields = (
            [ipv6_match[3]]
            if ipv6_match[3]
            else [ipv6_match[1], *_split_port_fields(ipv6_match[2])]
        )
        names: Sequence[str] = [name]
    else:
        expression, *fields = re.split(r":(?![^\[]*\])", host_text)
        names = expand_host_list(expression, MAX_HOSTS)
    slots, hca = _parse_slots_and_hca(fields, host_text)
    return [Host(name, slots, hca) for name in names]


def _split_port_fields(text: str | None) -> list[str]:
    return [] if text is None else text.split(":")


def _parse_slots_and_hca(fields: Sequence[str], host_text: str) -> tuple[int | None, str | None]:
    slots = None
    unparsed_fields = list(fields)
    if unparsed_fields and not _HCA.fullmatch(unparsed_fields[0]):
        if not _NUMBER.fullmatch(unparsed_fields[0]):
            raise ValueError(f"bad count {unparsed_fields[0]!r} in {host_text!r}; {ACCEPTED}")
        slots = _parse_count(unparsed_fields.pop(0), host_text)
    if len(unparsed_fields) > 2:
        raise ValueError(f"too many fields in {host_text!r}; {ACCEPTED}")
    if not unparsed_fields:
        return slots, None
    if not _HCA.fullmatch(unparsed_fields[0]):
        raise ValueError(
            f"bad HCA {unparsed_fields[0]!r} in {host_text!r}; an HCA is written like mlx5_0"
        )
    if len(unparsed_fields) == 2 and not _COUNT.fullmatch(unparsed_fields[1]):
        raise ValueError(
            f"bad HCA port {unparsed_fields[1]!r} in {host_text!r}; a port is a number from 1 up"
        )
    return slots, ":".join(unparsed_fields)
