"""The JSON Schema of suite files, for editors."""

from __future__ import annotations

import re
from typing import Any

from spbench.suites.case import SCHEMA, STATISTICS
from spbench.suites.expectations import metric_names
from spbench.suites.model import SuiteFile
from spbench.suites.settings import json_schema
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark

_NP = {"type": "integer", "minimum": 1, "description": "ranks"}


def suite_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12), with each benchmark's own parameters."""
    schema = json_schema(SuiteFile)
    definitions = schema["$defs"]
    for name in ("LaunchSettings", "SuiteLaunch"):
        env = definitions[name]["properties"]["env"]
        for written in env.get("patternProperties", {}).values():
            written["type"] = ["string", "number", "boolean"]  # read as it is written
        env["additionalProperties"] = False
    entry = definitions["CaseEntry"]
    entry["properties"]["benchmark"]["enum"] = list(BENCHMARKS)
    entry["allOf"] = [
        {
            "if": {"properties": {"benchmark": {"const": name}}, "required": ["benchmark"]},
            "then": {"properties": _sections(benchmark)},
        }
        for name, benchmark in BENCHMARKS.items()
    ]
    return schema | {"title": SCHEMA}


def _sections(benchmark: Benchmark) -> dict[str, Any]:
    one = {param.name: param.json_schema() for param in benchmark.params}
    one |= {alias: one[name] for alias, name in benchmark.aliases.items()}
    with_np = one | {"np": _NP}
    lists = {name: _list_of(schema) for name, schema in with_np.items()}
    metrics = "|".join(map(re.escape, metric_names(benchmark)))
    return {
        "params": _closed(one),
        "matrix": _closed(lists),
        "zip": _closed(lists),
        "exclude": {"items": _closed(with_np) | {"minProperties": 1}},
        "expect": {"propertyNames": {"pattern": rf"^({metrics})(\.({'|'.join(STATISTICS)}))?$"}},
    }


def _list_of(schema: dict[str, Any]) -> dict[str, Any]:
    bare = {key: value for key, value in schema.items() if key not in ("default", "description")}
    return {"type": "array", "items": bare, "minItems": 1}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}
