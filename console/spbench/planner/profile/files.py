"""Profiles from files; the beginning of the text decides the format."""

from __future__ import annotations

import re
from pathlib import Path

from spbench.planner.errors import PlannerError
from spbench.planner.profile.json_file import read_profile_json
from spbench.planner.profile.layers import Profile
from spbench.planner.profile.torchgraph import read_torchgraph
from spbench.suites.pipe_files import read_first_bytes

MAX_BYTES = 64 << 20
# Read as JSON, since torchgraph text cannot consist of such a word.
_JSON_WORDS = ("null", "true", "false")
_SUITE = re.compile(r"^schema\s*:\s*['\"]?spbench\.suite/", re.MULTILINE)


def load_profile(path: Path, batch_size: int | None = None) -> Profile:
    """Return the profile of a file: ``spbench.profile/1`` JSON or torchgraph text.

    Args:
        path: The file.
        batch_size: The batch size at which the layers were measured. Required for torchgraph text,
            which does not contain it. For JSON it must match the file if it is given.

    Raises:
        ProfileError: The file has errors; the exception contains all of them.
        PlannerError: The file cannot be read, or the batch size is missing or does not match.
    """
    text = read_text(path, MAX_BYTES)
    if not text.strip():
        raise PlannerError(f"{path} is empty; write a profile to it with spbench profile")
    if text.lstrip().startswith(("{", "[")) or text.strip() in _JSON_WORDS:
        profile = read_profile_json(text, str(path), path.stem)
        if batch_size not in (None, profile.batch_size):
            sizes = f"batch size {profile.batch_size}, not {batch_size}"
            raise PlannerError(f"{path} was measured at {sizes}; leave it out or correct it")
        return profile
    if _SUITE.search(text):
        raise PlannerError(
            f"{path} is a suite, and plan reads a profile: measure one with spbench profile, "
            f"or run the suite with spbench run {path}"
        )
    if batch_size is None:
        raise PlannerError(
            f"{path} is torchgraph text, which does not say its batch size;"
            " give --profile-batch-size"
        )
    return read_torchgraph(text, str(path), path.stem, batch_size)


def read_text(path: Path, limit: int) -> str:
    """Return the text of a file.

    Raises:
        PlannerError: It cannot be read, is longer than `limit` bytes, or is not UTF-8 text.
    """
    try:
        raw = read_first_bytes(path, limit + 1)
    except (OSError, ValueError) as error:
        raise PlannerError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    if len(raw) > limit:
        raise PlannerError(f"cannot read {path}: it is longer than {limit >> 20} MiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        position = f"byte {error.start} is 0x{raw[error.start]:02x}"
        raise PlannerError(f"cannot read {path}: it is not UTF-8 text ({position})") from None
