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
"""The ``$id`` of the schema: a URN, because the project has no address."""
SCHEMA_FILE = Path(__file__).parents[1] / "schemas" / "suite.schema.json"
"""The file of the schema, at a fixed path for editors."""
_NP = {"type": "integer", "minimum": 1, "description": "ranks"}


def build_suite_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12), with the parameters of each benchmark."""
    schema = build_json_schema(SuiteFile)
    definitions = schema["$defs"]
    for name in ("LaunchSettings", "SuiteLaunch"):
        env = definitions[name]["properties"]["env"]
        for value in env.get("patternProperties", {}).values():
            value["type"] = ["string", "number", "boolean"]  # read as its text in the file
        env["additionalProperties"] = False
    definitions["Bound"]["properties"]["systems"]["additionalProperties"] = False
    entry = definitions["CaseEntry"]
    entry["properties"]["benchmark"]["oneOf"] = [
        {"const": name, "description": benchmark.summary} for name, benchmark in BENCHMARKS.items()
    ]
    entry["allOf"] = [
        {
            "if": {"properties": {"benchmark": {"const": name}}, "required": ["benchmark"]},
            "then": {"properties": _build_sections(benchmark)},
        }
        for name, benchmark in BENCHMARKS.items()
    ]
    for benchmark in BENCHMARKS.values():
        definitions |= _build_definitions(benchmark)
    definitions["CaseDefaults"]["properties"]["params"] |= _build_default_params(definitions)
    return {"$schema": schema.pop("$schema"), "$id": SCHEMA_ID, **schema, "title": SCHEMA}


def _build_sections(benchmark: Benchmark) -> dict[str, Any]:
    def refer_to(shape: str) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{benchmark.name}.{shape}"}

    metrics = "|".join(map(re.escape, list_metric_names(benchmark)))
    if benchmark.has_chosen_metrics:  # any name, because metrics depend on parameters
        metrics = "[A-Za-z][A-Za-z0-9_]*"
    return {
        "params": refer_to("params"),
        "matrix": refer_to("lists"),
        "zip": refer_to("lists"),
        "exclude": {"items": refer_to("points")},
        "expect": {"propertyNames": {"pattern": rf"^({metrics})(\.({'|'.join(STATISTICS)}))?$"}},
    }


def _build_definitions(benchmark: Benchmark) -> dict[str, Any]:
    """Return the schemas of a benchmark's ``params``, sweeps and exclusions.

    Sweeps and exclusions refer to ``params``, so that each parameter is described once.
    """
    params = {param.name: param.json_schema() for param in benchmark.params}
    params |= {alias: params[name] for alias, name in benchmark.aliases.items()}
    with_np = {name: _refer_to_param(benchmark, name) for name in params} | {"np": _NP}
    unswept = {param.name for param in benchmark.params if param.kind in UNSWEPT_KINDS}
    lists = {
        name: _build_list(schema["description"], with_np[name])
        for name, schema in (params | {"np": _NP}).items()
        if name not in unswept
    }
    return {
        f"{benchmark.name}.params": _build_object(params),
        f"{benchmark.name}.lists": _build_object(lists),
        f"{benchmark.name}.points": _build_object(with_np) | {"minProperties": 1},
    }


def _refer_to_param(benchmark: Benchmark, name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{benchmark.name}.params/properties/{name}"}


def _build_default_params(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of ``defaults.params``, with the parameters of all benchmarks."""
    schemas_by_name: dict[str, list[dict[str, Any]]] = {}
    references_by_name: dict[str, list[dict[str, str]]] = {}
    for benchmark in BENCHMARKS.values():
        for name, schema in definitions[f"{benchmark.name}.params"]["properties"].items():
            if schema in schemas_by_name.setdefault(name, []):
                continue
            schemas_by_name[name].append(schema)
            references_by_name.setdefault(name, []).append(_refer_to_param(benchmark, name))
    return _build_object(
        {
            name: references[0] if len(references) == 1 else {"anyOf": references}
            for name, references in references_by_name.items()
        }
    )


def _build_list(description: str, items: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "type": "array", "items": items, "minItems": 1}


def _build_object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}
