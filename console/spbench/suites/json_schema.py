"""The JSON Schema of suite files, for editors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from spbench.suites.case import SCHEMA, STATISTICS
from spbench.suites.expectations import list_metric_names
from spbench.suites.model import SuiteFile
from spbench.suites.settings import build_json_schema
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.parameters import UNSWEPT_KINDS

SCHEMA_ID = "urn:spbench:suite:1"
"""The schema's ``$id``: a name, not an address, as the project has none."""
SCHEMA_FILE = Path(__file__).parents[1] / "schemas" / "suite.schema.json"
"""The schema as a file, at a place that stays, for editors."""
_NP = {"type": "integer", "minimum": 1, "description": "ranks"}


def build_suite_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12), with each benchmark's own parameters."""
    schema = build_json_schema(SuiteFile)
    definitions = schema["$defs"]
    for name in ("LaunchSettings", "SuiteLaunch"):
        env = definitions[name]["properties"]["env"]
        for written in env.get("patternProperties", {}).values():
            written["type"] = ["string", "number", "boolean"]  # read as it is written
        env["additionalProperties"] = False
    definitions["Bound"]["properties"]["systems"]["additionalProperties"] = False
    entry = definitions["CaseEntry"]
    entry["properties"]["benchmark"]["oneOf"] = [
        {"const": name, "description": benchmark.summary} for name, benchmark in BENCHMARKS.items()
    ]
    entry["allOf"] = [
        {
            "if": {"properties": {"benchmark": {"const": name}}, "required": ["benchmark"]},
            "then": {"properties": _sections(benchmark)},
        }
        for name, benchmark in BENCHMARKS.items()
    ]
    for benchmark in BENCHMARKS.values():
        definitions |= _parameters(benchmark)
    return {"$schema": schema.pop("$schema"), "$id": SCHEMA_ID, **schema, "title": SCHEMA}


def _sections(benchmark: Benchmark) -> dict[str, Any]:
    def named(shape: str) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{benchmark.name}.{shape}"}

    metrics = "|".join(map(re.escape, list_metric_names(benchmark)))
    if benchmark.has_chosen_metrics:  # its parameters say which there are
        metrics = "[A-Za-z][A-Za-z0-9_]*"
    return {
        "params": named("params"),
        "matrix": named("lists"),
        "zip": named("lists"),
        "exclude": {"items": named("points")},
        "expect": {"propertyNames": {"pattern": rf"^({metrics})(\.({'|'.join(STATISTICS)}))?$"}},
    }


def _parameters(benchmark: Benchmark) -> dict[str, Any]:
    """Return a benchmark's parameters with one value each, with lists, and as points left out."""
    one = {param.name: param.json_schema() for param in benchmark.params}
    one |= {alias: one[name] for alias, name in benchmark.aliases.items()}
    with_np = one | {"np": _NP}
    unswept = {param.name for param in benchmark.params if param.kind in UNSWEPT_KINDS}
    lists = {name: _list_of(of) for name, of in with_np.items() if name not in unswept}
    return {
        f"{benchmark.name}.params": _closed(one),
        f"{benchmark.name}.lists": _closed(lists),
        f"{benchmark.name}.points": _closed(with_np) | {"minProperties": 1},
    }


def _list_of(schema: dict[str, Any]) -> dict[str, Any]:
    bare = {key: value for key, value in schema.items() if key not in ("default", "description")}
    described = {"description": schema["description"]} if "description" in schema else {}
    return described | {"type": "array", "items": bare, "minItems": 1}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}
