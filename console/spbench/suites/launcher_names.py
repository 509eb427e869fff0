"""The names of launchers: built-in ones and those of plug-ins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from spbench_core.plugins import PluginObject, load_named_plugin_objects

AUTO = "auto"
LAUNCHERS = ("mpirun_rsh", "hydra", "openmpi", "srun")
"""The modules in ``spbench.launch.launchers`` that define ``LAUNCHER``, by name.

A new launcher needs its module there, and its name in this tuple.
"""

GROUP = "spbench.launchers"
ATTRIBUTE = "LAUNCHER"
LAUNCHER_ATTRIBUTES = (
    "name",
    "libraries",
    "shows_binding",
    "resolves_names",
    "helper",
    "candidates",
    "version",
    "hostfile",
    "command",
    "parse_output",
)
"""The attributes that a launcher must have; ``launch.launcher.Launcher`` describes them."""
FIRST_NAMES = {"parse_output": "said"}
"""Attributes with another name in the first plug-ins of API 1, which is accepted, too."""


def load_plugin_launchers() -> Mapping[str, PluginObject]:
    """Return the launchers of plug-ins by their names."""
    return load_named_plugin_objects(GROUP, ATTRIBUTE, (AUTO, *LAUNCHERS), _find_problem)


def list_launcher_names() -> tuple[str, ...]:
    """Return the names of all launchers."""
    return (*LAUNCHERS, *load_plugin_launchers())


def find_attribute(launcher: Any, attribute: str) -> str:
    """Return the name that a plug-in's launcher has for an attribute."""
    if hasattr(launcher, attribute):
        return attribute
    return FIRST_NAMES.get(attribute, attribute)


def _find_problem(plugin_object: PluginObject) -> str | None:
    missing = [
        attribute
        for attribute in LAUNCHER_ATTRIBUTES
        if not hasattr(plugin_object.object, find_attribute(plugin_object.object, attribute))
    ]
    if missing:
        return f"launcher {plugin_object.name} lacks {', '.join(missing)}"
    name = plugin_object.object.name
    if name != plugin_object.name:
        return f"invalid launcher name (expected {plugin_object.name!r}, got {name!r})"
    return None


def _validate_name(name: Any) -> Any:
    """Validate the name of a launcher.

    Raises:
        PydanticCustomError: There is no launcher of that name.
    """
    built_in = (AUTO, *LAUNCHERS)
    if not isinstance(name, str) or (name not in built_in and name not in load_plugin_launchers()):
        *names, last = map(repr, (AUTO, *list_launcher_names()))
        expected = f"{', '.join(names)} or {last}"
        raise PydanticCustomError(
            "literal_error", "Input should be {expected}", {"expected": expected}
        )
    return name


class _NameSchema:
    """The JSON Schema of a launcher's name."""

    @staticmethod
    def __get_pydantic_json_schema__(
        schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"enum": [AUTO, *list_launcher_names()], "type": "string"}


LauncherName = Annotated[str, BeforeValidator(_validate_name), _NameSchema]
