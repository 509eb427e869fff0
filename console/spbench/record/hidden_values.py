"""Records without credentials, and restored values when a run is repeated.

Only values of environment variables are hidden: ``launch.env``, and ``env`` of programs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import yaml

from spbench.errors import UsageError
from spbench.suites.case import Case, Suite
from spbench.suites.settings import LaunchSettings
from spbench_core.credentials import HIDDEN, hide_credentials, holds_secret

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SET = "--set"
_PROPERTIES = re.compile(r"([&!]\S*\s+)*")
"""The anchor and the tag before a value, which are kept because aliases may refer to them."""
_ENV_OVERRIDE = re.compile(r"(?P<key>(launch\.)?env)(\.(?P<name>\w+))?=(?P<value>.*)", re.DOTALL)
Settings = TypeVar("Settings", bound=LaunchSettings)


def hide_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables with `HIDDEN` instead of each credential."""
    return {
        name: HIDDEN if holds_secret(name, value) else value for name, value in environment.items()
    }


def hide_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case's parameters without the credentials in a program's environment."""
    env = params.get("env")
    return {**params, "env": hide_environment(env)} if isinstance(env, dict) else dict(params)


def hide_arguments(args: Sequence[str]) -> list[str]:
    """Return the arguments of a spbench command without credentials in ``--set``."""
    hidden = hide_credentials(args)
    for index, arg in enumerate(args):
        if index > 0 and args[index - 1] == _SET:
            hidden[index] = hide_override(arg)
        elif arg.startswith(f"{_SET}="):
            hidden[index] = f"{_SET}={hide_override(arg.removeprefix(f'{_SET}='))}"
    return hidden


def hide_override(text: str) -> str:
    """Return a ``KEY=VALUE`` of ``--set`` without the credentials in it."""
    match = _ENV_OVERRIDE.fullmatch(text)
    if match is None:
        return text
    name = match["name"]
    value = match["value"]
    if name is None:
        return f"{match['key']}={_hide_yaml(value, in_env=True)}"
    return f"{match['key']}.{name}='{HIDDEN}'" if holds_secret(name, value) else text


def hide_suite(text: str) -> str:
    """Return a suite's text without the credentials in its ``env``.

    Line numbers are kept.
    """
    return _hide_yaml(text, in_env=False) if "env" in text else text


def restore_suite(suite: Suite, environ: Mapping[str, str]) -> Suite:
    """Return a suite with values of ``environ`` instead of hidden ones.

    Raises:
        UsageError: A variable is missing in ``environ``.
    """
    cases = tuple(_restore_case(case, environ) for case in suite.cases)
    return replace(suite, cases=cases, launch=_restore_launch(suite.launch, environ))


def _restore_case(case: Case, environ: Mapping[str, str]) -> Case:
    case = replace(case, launch=_restore_launch(case.launch, environ))
    env = case.params.get("env")
    if not isinstance(env, dict) or HIDDEN not in env.values():
        return case
    return replace(case, params={**case.params, "env": _restore_env(env, environ)})


def _restore_launch(launch: Settings, environ: Mapping[str, str]) -> Settings:
    if HIDDEN not in launch.env.values():
        return launch
    return launch.model_copy(update={"env": _restore_env(launch.env, environ)})


def _restore_env(env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    restored = dict(env)
    for name in (name for name, value in env.items() if value == HIDDEN):
        if name not in environ:
            raise UsageError(
                f"the value of {name} is not recorded with a run; set {name} in the environment"
            )
        restored[name] = environ[name]
    return restored


def _hide_yaml(text: str, *, in_env: bool) -> str:
    try:
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError:
        # The suite's reader reports the error. Nothing of such a text is recorded.
        return "" if in_env else text
    secret_nodes: list[yaml.Node] = []
    _report_secrets(root, in_env, secret_nodes.append, set())
    spans = {(node.start_mark.index, node.end_mark.index) for node in secret_nodes}
    for start, end in sorted(spans, reverse=True):
        properties = _PROPERTIES.match(text, start, end)
        start = start if properties is None else properties.end()
        if start < end:
            line_ends = "\n" * text.count("\n", start, end)
            text = f"{text[:start]}{json.dumps(HIDDEN)}{line_ends}{text[end:]}"
    return text


def _report_secrets(
    node: yaml.Node | None, in_env: bool, report: Callable[[yaml.Node], None], visited: set[object]
) -> None:
    """Report the scalars below ``env`` that hold a credential, each node once."""
    if (id(node), in_env) in visited:
        return
    visited.add((id(node), in_env))
    for name, child in _iterate_children(node):
        if in_env and isinstance(child, yaml.ScalarNode) and holds_secret(name, child.value):
            report(child)
        _report_secrets(child, in_env or name == "env", report, visited)


def _iterate_children(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key.value if isinstance(key, yaml.ScalarNode) else "", value
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield "", value
