"""Credentials in variables and command lines, and how to hide them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

HIDDEN = "***"
"""The text that is recorded instead of a credential."""

_SECRET_NAME = re.compile(
    r"TOKEN(?!IZ)|KEY|SECRET|PASSW|PASSPHRASE|PASSCODE|COOKIE|CREDENTIAL|JWT|JWKS|BEARER"
    r"|CONNECTION_?STRING|(?<!BY)(?<!COM)PASS(_|$)"
    r"|(^|_)(O?AUTH|AUTHORIZATION|PW|PWD|CREDS?|CERT|PEM|PFX|SAS|DSN|SIGNATURE|NETRC|OTP|WEBHOOK)"
    r"(_|$)",
    re.IGNORECASE,
)
_HARMLESS_NETWORK_KEY = re.compile(
    # Keys of InfiniBand partitions, queues and memory are numbers in these libraries:
    # NCCL_IB_PKEY, MV2_DEFAULT_QKEY, UCX_RKEY_PTR_SEG_SIZE.
    r"(?<=_)[PQRLM]KEY(?=_|$)",
    re.IGNORECASE,
)
_NETWORK_PREFIXES = ("MV2_", "MVP_", "UCX_", "NCCL_", "OMPI_MCA_")
_SECRET_VALUE = re.compile(
    r"(?<=://)[^/\s@:]*:[^/\s@]+(?=@)"  # user and password in an address
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"  # JSON web token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY[^\0]*"
    r"|\bBearer\s+[^\s'\"]+"
    r"|\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}|nvapi-[\w-]{20,}"
    r"|xox[abeprs]-[\w-]{10,}|AKIA[A-Z0-9]{16}\b)"
)
_ASSIGNMENT = re.compile(
    # not an option such as --max-tokens=5
    r"(?<![\w-])(?P<name>[A-Za-z_]\w*)=(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&|'\"]*)"
)
_NAME_AND_VALUE = ("-genv", "--genv", "-env", "--env")
"""Options of Hydra with two arguments, a name and a value."""
_MIN_LENGTH = 4
"""Characters of the shortest value that is searched for; most arguments contain shorter ones."""


class _ArgPart(NamedTuple):
    """A part of an argument.

    ``name`` is the variable with this value, empty if it has none, and None if the part is not a
    credential.
    """

    text: str
    name: str | None = None


def holds_secret(name: str, value: str = "") -> bool:
    """Return whether a variable is probably a credential, by name or value."""
    if name.startswith(_NETWORK_PREFIXES):
        # A partition key or a remote key is a number, and no credential.
        searched_name = _HARMLESS_NETWORK_KEY.sub("", name)
    else:
        searched_name = name
    if _SECRET_NAME.search(searched_name) or _SECRET_VALUE.search(value):
        return True
    # SLURM_EXPORT_ENV and OMPI_MCA_mca_base_env_list are lists of NAME=VALUE.
    return any(holds_secret(match["name"]) for match in _ASSIGNMENT.finditer(value))


def select_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are likely to be credentials."""
    return {name: value for name, value in environ.items() if holds_secret(name, value)}


def hide_credentials(args: Sequence[str], secrets: Mapping[str, str] | None = None) -> list[str]:
    """Return the arguments of a command with `HIDDEN` instead of each credential.

    Args:
        args: The arguments.
        secrets: Variables that are credentials; their values are hidden in all arguments.
    """
    return [
        "".join(part.text if part.name is None else HIDDEN for part in parts)
        for parts in _split_args(args, secrets or {})
    ]


def quote_args(args: Sequence[str], secrets: Mapping[str, str] | None = None) -> str:
    """Return a shell command that reads each credential from the shell's environment.

    ``HF_TOKEN=abc`` becomes ``HF_TOKEN="$HF_TOKEN"``. A credential without a name is `HIDDEN`.
    """
    return " ".join(
        "".join(map(_quote_part, parts)) or "''" for parts in _split_args(args, secrets or {})
    )


def list_secret_names(args: Sequence[str], secrets: Mapping[str, str] | None = None) -> list[str]:
    """Return the variables from which the command of `quote_args` reads credentials."""
    parts = (part for parts in _split_args(args, secrets or {}) for part in parts)
    return list(dict.fromkeys(part.name for part in parts if part.name))


def quote_assignment(name: str, value: str, secrets: Mapping[str, str]) -> str:
    """Return ``NAME=VALUE`` for a shell, without credentials."""
    if holds_secret(name, value):
        return f'{name}="${name}"'
    return f"{name}={quote_args([value], secrets)}"


def _quote_part(part: _ArgPart) -> str:
    if part.name:
        return f'"${part.name}"'
    text = part.text if part.name is None else HIDDEN
    return shlex.quote(text) if text else ""


def _split_args(args: Sequence[str], secrets: Mapping[str, str]) -> Iterator[list[_ArgPart]]:
    for index, arg in enumerate(args):
        name = args[index - 1] if index >= 2 and args[index - 2] in _NAME_AND_VALUE else ""
        if name and holds_secret(name, arg):
            yield [_ArgPart(arg, name)]
        else:
            yield _split_arg(arg, secrets)


def _split_arg(arg: str, secrets: Mapping[str, str]) -> list[_ArgPart]:
    parts = []
    last_stop = 0
    # If credentials overlap, the first one counts, and the longest of those that begin there.
    secret_spans = sorted(
        _find_secrets(arg, secrets), key=lambda secret: (secret.start, -secret.stop)
    )
    for secret_start, secret_stop, name in secret_spans:
        if secret_start < last_stop or secret_start == secret_stop:
            continue
        if secret_start > last_stop:
            parts.append(_ArgPart(arg[last_stop:secret_start]))
        parts.append(_ArgPart(arg[secret_start:secret_stop], name))
        last_stop = secret_stop
    if last_stop < len(arg) or not parts:
        parts.append(_ArgPart(arg[last_stop:]))
    return parts


class _SecretSpan(NamedTuple):
    """The position of a credential in an argument; ``name`` is its variable or empty."""

    start: int
    stop: int
    name: str


def _find_secrets(arg: str, secrets: Mapping[str, str]) -> Iterator[_SecretSpan]:
    """Yield the credentials in an argument, which may overlap."""
    name_by_value = {value: name for name, value in secrets.items() if len(value) >= _MIN_LENGTH}
    for match in _ASSIGNMENT.finditer(arg):
        name = match["name"]
        start, stop = match.span("value")
        if not holds_secret(name):
            continue
        # At the start of an argument, or after a dot as in launch.env.NAME=VALUE, the value extends
        # to the end and may contain blanks and commas.
        if match.start() == 0 or arg[: match.start()].endswith("."):
            stop = len(arg)
        yield _SecretSpan(start, stop, name)
        # A setup line is repeated in its own error message, in other quotes.
        unquoted = match["value"].strip("'\"")
        if len(unquoted) >= _MIN_LENGTH:
            name_by_value.setdefault(unquoted, name)
    for value, name in name_by_value.items():
        start = arg.find(value)
        while start >= 0:
            yield _SecretSpan(start, start + len(value), name)
            start = arg.find(value, start + len(value))
    for match in _SECRET_VALUE.finditer(arg):
        yield _SecretSpan(*match.span(), "")
