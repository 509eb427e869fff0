"""The planner's own profiles, ``spbench.profile/1``, in JSON.

`json_reader.ProfileFile` has the keys; ``spbench schema profile`` prints their schema.

Times are milliseconds of one device for the whole batch, sizes are bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from spbench.errors import Diagnostic
from spbench.planner.errors import ProfileError
from spbench.planner.profile.json_reader import SCHEMA, ProfileFile
from spbench.planner.profile.layers import NUMBERS, PER_BATCH, LayerProfile, Profile
from spbench.suites.findings import Findings
from spbench.suites.wording import report_errors
from spbench.suites.yaml_nodes import Document, Mark, Node, YamlError, parse_yaml

_MANY_DIGITS = 100


def read_profile_json(text: str, file: str, name: str) -> Profile:
    """Return the profile of a text; ``name`` stands for one that it does not give.

    Raises:
        ProfileError: The text has errors; it holds them all.
    """
    try:
        data = json.loads(text, object_pairs_hook=_no_key_twice, parse_int=_whole)
    except json.JSONDecodeError as error:
        told = f"invalid JSON: {error.msg}"
        raise ProfileError([Diagnostic(file, error.lineno, error.colno, told)]) from None
    except RecursionError:
        told = "this is no profile: its brackets are nested too deeply"
        raise ProfileError([Diagnostic(file, 1, 1, told)]) from None
    except _TwiceError as error:
        raise ProfileError([Diagnostic(file, 1, 1, str(error))]) from None
    if not isinstance(data, dict):
        told = f"a profile is an object that begins with 'schema': '{SCHEMA}'"
        raise ProfileError([Diagnostic(file, 1, 1, told)])
    try:
        return ProfileFile.read(data).profile(name)
    except ValidationError as error:
        findings = Findings(file, _document(text))
        report_errors(error, data, findings, ProfileFile)
        raise ProfileError(findings.diagnostics) from None


def write_profile_json(profile: Profile) -> str:
    """Return a profile as JSON text that `read_profile_json` reads back to the same."""
    names = [layer.name for layer in profile.layers]
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "name": profile.name,
        "batch_size": profile.batch_size,
        "layers": [_written(layer, NUMBERS) for layer in profile.layers],
        "edges": [[names[source], names[target]] for source, target in profile.edges],
    }
    if profile.also:
        content["also"] = [
            {
                "batch_size": point.batch_size,
                "layers": [_written(layer, PER_BATCH) for layer in point.layers],
            }
            for point in profile.also
        ]
    if profile.origin:
        content["origin"] = asdict(profile.origin) | {"params": dict(profile.origin.params)}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _written(layer: LayerProfile, numbers: tuple[str, ...]) -> dict[str, Any]:
    values = {name: getattr(layer, name) for name in numbers}
    told = {"name": layer.name, "description": layer.description, **values}
    return {key: value for key, value in told.items() if value is not None}


class _TwiceError(Exception):
    """A key that stands twice in one object."""


def _whole(digits: str) -> int | float:
    """Return a whole number; past all ranges as a float, since Python refuses 4301 digits."""
    return int(digits) if len(digits) < _MANY_DIGITS else float(digits)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _TwiceError(f"duplicate key {twice!r} in one object")
    return found


def _document(text: str) -> Document:
    """Return a JSON text with the places of its values: JSON is YAML.

    What is wrong in it as YAML is left out: the JSON reader reports the same values.
    """
    try:
        return Document(parse_yaml(text).root)
    except YamlError:
        return Document(Node(Mark(1, 1), None))
