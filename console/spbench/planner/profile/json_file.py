"""The planner's own profiles, ``spbench.profile/1``, in JSON.

`json_reader.ProfileFile` defines the keys; ``spbench schema profile`` prints their schema. Times
are milliseconds of one device for the whole batch, sizes are bytes.
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
from spbench.suites.file_errors import FileErrors
from spbench.suites.validation_messages import report_errors
from spbench.suites.yaml_nodes import Document, Mark, Node, YamlError, parse_yaml

# Far above all ranges, and far below the 4301 digits that Python refuses to convert.
_MAX_INT_DIGITS = 100


def read_profile_json(text: str, file: str, name: str) -> Profile:
    """Return the profile of a text.

    Args:
        text: The JSON text.
        file: The file name for errors.
        name: The name of a profile that does not contain one.

    Raises:
        ProfileError: The text has errors; the exception contains all of them.
    """
    try:
        data = json.loads(text, object_pairs_hook=_reject_duplicate_key, parse_int=_parse_int)
    except json.JSONDecodeError as error:
        message = f"invalid JSON: {error.msg}"
        raise ProfileError([Diagnostic(file, error.lineno, error.colno, message)]) from None
    except RecursionError:
        message = "this is no profile: its brackets are nested too deeply"
        raise ProfileError([Diagnostic(file, 1, 1, message)]) from None
    except _DuplicateKeyError as error:
        raise ProfileError([Diagnostic(file, 1, 1, str(error))]) from None
    if not isinstance(data, dict):
        message = f"a profile is an object that begins with 'schema': '{SCHEMA}'"
        raise ProfileError([Diagnostic(file, 1, 1, message)])
    try:
        return ProfileFile.read(data).to_profile(name)
    except ValidationError as error:
        errors = FileErrors(file, _build_document(text))
        report_errors(error, data, errors, ProfileFile)
        raise ProfileError(errors.diagnostics) from None


def write_profile_json(profile: Profile) -> str:
    """Return a profile as JSON text for `read_profile_json`."""
    names = [layer.name for layer in profile.layers]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "name": profile.name,
        "batch_size": profile.batch_size,
        "layers": [_build_layer_fields(layer, NUMBERS) for layer in profile.layers],
        "edges": [[names[source], names[target]] for source, target in profile.edges],
    }
    if profile.further_measurements:
        document["also"] = [
            {
                "batch_size": measurement.batch_size,
                "layers": [_build_layer_fields(layer, PER_BATCH) for layer in measurement.layers],
            }
            for measurement in profile.further_measurements
        ]
    if profile.origin:
        document["origin"] = asdict(profile.origin) | {"params": dict(profile.origin.params)}
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _build_layer_fields(layer: LayerProfile, number_names: tuple[str, ...]) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": layer.name, "description": layer.description}
    fields |= {name: getattr(layer, name) for name in number_names}
    return {field_name: value for field_name, value in fields.items() if value is not None}


class _DuplicateKeyError(Exception):
    """A duplicate key in a JSON object."""


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) < _MAX_INT_DIGITS else float(digits)


def _reject_duplicate_key(members: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(members)
    if len(fields) < len(members):
        member_names = [member_name for member_name, _ in members]
        duplicate = next(
            member_name for member_name in member_names if member_names.count(member_name) > 1
        )
        raise _DuplicateKeyError(f"duplicate key {duplicate!r} in one object")
    return fields


def _build_document(text: str) -> Document:
    """Return a JSON text as YAML, for the positions of its values.

    Errors of YAML are ignored, since the JSON reader reports the same values.
    """
    try:
        return Document(parse_yaml(text).root)
    except YamlError:
        return Document(Node(Mark(1, 1), None))
