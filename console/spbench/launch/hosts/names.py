"""Names of hosts: bracket lists, and names of this machine."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from functools import lru_cache

_RANGE = r"[0-9]{1,9}(?:-[0-9]{1,9}(?:/[0-9]{1,9})?)?"
_BRACKET = re.compile(rf"\[({_RANGE}(?:,{_RANGE})*)\]")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")


def expand_host_list(expression: str, max_count: int) -> list[str]:
    """Return the names of ``node[01-04]``, in the order of their numbers.

    Raises:
        ValueError: It is not a host name or list, or it has more than ``max_count`` names.
    """
    if _PLAIN.fullmatch(expression):
        return [expression]
    if not _PLAIN.fullmatch(_BRACKET.sub("0", expression)):
        raise ValueError(f"{expression!r} is neither a host name nor a list such as node[01-04,07]")
    host_count = 1
    for bracket in _BRACKET.findall(expression):
        host_count *= sum(
            _count_range(number_range, expression) for number_range in bracket.split(",")
        )
        if host_count > max_count:
            raise ValueError(f"{expression!r} has more than {max_count} hosts; check the ranges")
    # imported here: ClusterShell takes 28 ms to import, and most commands read no host list
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        return list(NodeSet(expression, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, AssertionError) as error:  # it asserts the width of ranges
        raise ValueError(f"{expression!r} is no list of hosts: {error}") from None


def _count_range(number_range: str, expression: str) -> int:
    first_number, _, last_and_step = number_range.partition("-")
    last_number, _, step = last_and_step.partition("/")
    if not last_number:
        return 1
    if int(last_number) < int(first_number):
        raise ValueError(f"the range {number_range} of {expression!r} runs backwards")
    if step and int(step) == 0:
        raise ValueError(f"the range {number_range} of {expression!r} has a step of 0")
    return (int(last_number) - int(first_number)) // int(step or 1) + 1


def fold(names: Iterable[str]) -> str:
    """Return names in short form for a message: ``node[01-04],other``."""
    unique = list(dict.fromkeys(names))
    if len(unique) < 2 or any(":" in name for name in unique):
        return ", ".join(unique)
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return str(NodeSet.fromlist(unique, resolver=RESOLVER_NOGROUP))


def is_local(host: str) -> bool:
    """Whether a name is this machine's: localhost, 127.*, ::1 or its host name."""
    if host in ("localhost", "::1") or re.fullmatch(r"127(\.[0-9]{1,3}){3}", host):
        return True
    hostname = socket.gethostname()
    if host in (hostname, hostname.partition(".")[0]):
        return True
    # only a longer form of the host name needs the resolver, which may be slow
    return host.startswith(hostname.partition(".")[0] + ".") and host == _full_name()


@lru_cache(maxsize=1)
def _full_name() -> str:
    return socket.getfqdn()
