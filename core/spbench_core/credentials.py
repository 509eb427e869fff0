"""Variables and command lines that hold credentials, and the same without the credentials."""

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
_NETWORK_KEY = re.compile(
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
"""Options of Hydra that two words follow, a name and a value."""
_MIN_LENGTH = 4
"""The least length of a value that is searched for in words: shorter ones are in most of them."""


class _Part(NamedTuple):
    """A part of a word; ``name`` is the variable with this value, None if it is no credential."""

    text: str
    name: str | None = None


def holds_secret(name: str, value: str = "") -> bool:
    """Return whether a variable is likely to hold a credential, by its name or its value."""
    if name.startswith(_NETWORK_PREFIXES):
        name = _NETWORK_KEY.sub("", name)
    if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value):
        return True
    # SLURM_EXPORT_ENV and OMPI_MCA_mca_base_env_list are lists of NAME=VALUE.
    return any(holds_secret(match["name"]) for match in _ASSIGNMENT.finditer(value))


def select_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are likely to hold a credential."""
    return {name: value for name, value in environ.items() if holds_secret(name, value)}


def hide_words(words: Sequence[str], secrets: Mapping[str, str] | None = None) -> list[str]:
    """Return the words of a command with `HIDDEN` instead of each credential.

    Args:
        words: The words.
        secrets: Variables with credentials, which are hidden wherever they are in the words.
    """
    return [
        "".join(part.text if part.name is None else HIDDEN for part in parts)
        for parts in _split_words(words, secrets or {})
    ]


def quote_words(words: Sequence[str], secrets: Mapping[str, str] | None = None) -> str:
    """Return a line for a shell, which takes each credential from its own environment.

    ``HF_TOKEN=abc`` becomes ``HF_TOKEN="$HF_TOKEN"``. A credential without a name is `HIDDEN`.
    """
    return " ".join(
        "".join(map(_quote_part, parts)) or "''" for parts in _split_words(words, secrets or {})
    )


def name_secrets(words: Sequence[str], secrets: Mapping[str, str] | None = None) -> list[str]:
    """Return the variables from which the line of `quote_words` takes credentials."""
    parts = (part for parts in _split_words(words, secrets or {}) for part in parts)
    return list(dict.fromkeys(part.name for part in parts if part.name))


def quote_assignment(name: str, value: str, secrets: Mapping[str, str]) -> str:
    """Return ``NAME=VALUE`` for a shell, without the credential as in `quote_words`."""
    if holds_secret(name, value):
        return f'{name}="${name}"'
    return f"{name}={quote_words([value], secrets)}"


def _quote_part(part: _Part) -> str:
    if part.name:
        return f'"${part.name}"'
    text = part.text if part.name is None else HIDDEN
    return shlex.quote(text) if text else ""


def _split_words(words: Sequence[str], secrets: Mapping[str, str]) -> Iterator[list[_Part]]:
    for index, word in enumerate(words):
        name = words[index - 1] if index >= 2 and words[index - 2] in _NAME_AND_VALUE else ""
        yield [_Part(word, name)] if name and holds_secret(name, word) else _split(word, secrets)


def _split(word: str, secrets: Mapping[str, str]) -> list[_Part]:
    parts = []
    end = 0
    for start, stop, name in sorted(_find_secrets(word, secrets), key=lambda s: (s[0], -s[1])):
        if start < end or start == stop:
            continue
        parts += [_Part(word[end:start])] if start > end else []
        parts.append(_Part(word[start:stop], name))
        end = stop
    return [*parts, _Part(word[end:])] if end < len(word) or not parts else parts


def _find_secrets(word: str, secrets: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """Yield where credentials begin and end in a word, each with its variable's name or ''."""
    values = {value: name for name, value in secrets.items() if len(value) >= _MIN_LENGTH}
    for match in _ASSIGNMENT.finditer(word):
        name, start, stop = match["name"], *match.span("value")
        if not holds_secret(name):
            continue
        # NAME=VALUE as a whole word: the value may contain blanks and commas.
        stop = len(word) if match.start() == 0 or word[: match.start()].endswith(".") else stop
        yield start, stop, name
        # A setup line is repeated in its own error message, in other quotes.
        bare = match["value"].strip("'\"")
        if len(bare) >= _MIN_LENGTH:
            values.setdefault(bare, name)
    for value, name in values.items():
        start = word.find(value)
        while start >= 0:
            yield start, start + len(value), name
            start = word.find(value, start + len(value))
    for match in _SECRET_VALUE.finditer(word):
        yield *match.span(), ""
