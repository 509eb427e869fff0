"""Settings of the console in a YAML file: theme, keys and refresh rate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

from spbench.config_files import UntrustedFileError, check_folder, open_trusted
from spbench.errors import UsageError, did_you_mean
from spbench.suites.pipe_files import read_first_bytes
from spbench.tui.themes import DEFAULT_THEME

ENV_CONFIG = "SPBENCH_CONFIG"
MIN_REFRESH_HZ = 0.5
MAX_REFRESH_HZ = 10.0
MAX_BYTES = 1 << 20
"""Largest size of the file, in bytes; a file with all settings has some kB."""
_MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "hyper", "meta"})
# Names of keys that have no character. Textual uses <> for values that are not keys.
_KEY_NAMES = {
    *(key.value.rpartition("+")[2] for key in Keys if not key.value.startswith("<")),
    *KEY_NAME_REPLACEMENTS.values(),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The keys of ``console.yaml``.

    Attributes:
        theme: The name of a theme, as listed in the palette.
        refresh_hz: Largest refresh rate, 0.5 to 10 Hz.
        keys: Keys by the id of an action, which replace its keys: ``run.cancel: x,delete``.
    """

    theme: str = DEFAULT_THEME
    refresh_hz: float = MAX_REFRESH_HZ
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The valid settings of a file, and an error message for each of the others."""

    settings: Settings
    errors: tuple[str, ...] = ()


def find_settings_path(environ: Mapping[str, str]) -> Path:
    """Return the file of the settings, SPBENCH_CONFIG or one in the user's folder."""
    explicit_path = environ.get(ENV_CONFIG)
    if explicit_path:
        return Path(explicit_path)
    from platformdirs import user_config_path

    return user_config_path("spbench") / "console.yaml"


def has_explicit_path(environ: Mapping[str, str]) -> bool:
    """Return whether the user names the file; then its owner is not checked."""
    return bool(environ.get(ENV_CONFIG))


def load_settings(path: Path, themes: Collection[str], *, explicit: bool = True) -> LoadedSettings:
    """Return the settings of a file, with defaults for those that are missing.

    Args:
        path: The file; it need not exist.
        themes: The names of all themes.
        explicit: Whether the user named the file. Otherwise it is skipped if another user may have
            written it.
    """
    try:
        content = _parse_yaml(_read_text(path, explicit=explicit), path)
    except UsageError as error:
        return LoadedSettings(Settings(), (str(error),))
    settings, errors = _parse_settings(content)
    if settings.theme not in themes:
        hint = did_you_mean(settings.theme, themes) or "; the palette (Ctrl+P) lists them"
        errors.append(f"theme: there is no theme {settings.theme!r}{hint}")
        settings = replace(settings, theme=Settings().theme)
    return LoadedSettings(settings, _add_path(path, errors))


def check_action_ids(path: Path, settings: Settings, ids: Collection[str]) -> tuple[str, ...]:
    """Return an error message for each unknown action id in the setting ``keys``."""
    errors = []
    for action in settings.keys:
        if action not in ids:
            hint = did_you_mean(action, ids) or "; F1 shows the ids"
            errors.append(f"keys: there is no action {action!r}{hint}")
    return _add_path(path, errors)


def _read_text(path: Path, *, explicit: bool) -> str:
    try:
        if explicit:
            content = read_first_bytes(path, MAX_BYTES + 1)
        else:
            with open_trusted(path) as file:
                content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UsageError(f"cannot read {path}: it has more than {MAX_BYTES >> 20} MiB")
        return content.decode("utf-8-sig")
    except UntrustedFileError as error:
        raise _make_untrusted_error(error) from None
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise _make_yaml_error(path) from None


def _check_folder(path: Path) -> None:
    # Another owner could put a link there, so that the theme is written into another file.
    try:
        check_folder(path)
    except UntrustedFileError as error:
        raise _make_untrusted_error(error) from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def _make_untrusted_error(error: UntrustedFileError) -> UsageError:
    return UsageError(f"{error}; to use it as it is, name it in {ENV_CONFIG}")


def _parse_yaml(text: str, path: Path) -> Any:
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        raise _make_yaml_error(path) from None
    return {} if content is None else content


def _make_yaml_error(path: Path) -> UsageError:
    return UsageError(f"{path}: error: this file is invalid YAML; fix or remove it")


def _add_path(path: Path, errors: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{path}: error: {error}" for error in errors)


def _parse_settings(content: Any) -> tuple[Settings, list[str]]:
    """Return the valid settings, and an error message for each of the others."""
    if not isinstance(content, dict):
        return Settings(), ["the file holds no mapping of settings"]
    settings = Settings()
    errors = list[str]()
    names = [setting.name for setting in fields(Settings)]
    for name, value in content.items():
        if name not in names:
            hint = did_you_mean(str(name), names) or f" (there are {', '.join(names)})"
            errors.append(f"there is no setting {name!r}{hint}")
            continue
        try:
            settings = replace(settings, **{name: _PARSERS[name](name, value, errors)})
        except ValueError as error:
            errors.append(str(error))
    return settings, errors


def _parse_text(name: str, value: Any, _: list[str]) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: {value!r} is not a text")
    return value


def parse_refresh_rate(text: str) -> float:
    """Return the refresh rate in a text, in Hz.

    Raises:
        UsageError: It is not a number in the allowed range.
    """
    try:
        return _parse_rate("refresh_hz", yaml.safe_load(text), [])
    except (ValueError, yaml.YAMLError):
        limits = f"{MIN_REFRESH_HZ:g} to {MAX_REFRESH_HZ:g}"
        raise UsageError(f"{text!r} is not a number from {limits}") from None


def _parse_rate(name: str, value: Any, _: list[str]) -> float:
    if type(value) not in (int, float) or not MIN_REFRESH_HZ <= value <= MAX_REFRESH_HZ:
        raise ValueError(
            f"{name}: {value!r} is not a number from {MIN_REFRESH_HZ:g} to {MAX_REFRESH_HZ:g}"
        )
    return float(value)


def _parse_keys(name: str, value: Any, errors: list[str]) -> dict[str, str]:
    """Return the valid entries, and add an error message for each of the others."""
    if not isinstance(value, dict):
        raise ValueError(f"{name}: {value!r} is no mapping of actions' ids to keys")
    keymap = {}
    for action, keys in value.items():
        try:
            action = _parse_text(name, action, errors)
            check_key_names(_parse_text(f"{name}.{action}", keys, errors), f"{name}.{action}")
            keymap[action] = keys
        except ValueError as error:
            errors.append(str(error))
    return keymap


_PARSERS: dict[str, Callable[[str, Any, list[str]], Any]] = {
    "theme": _parse_text,
    "refresh_hz": _parse_rate,
    "keys": _parse_keys,
}
"""The parser of each setting, which raises ValueError or adds messages on omitted parts."""


def check_key_names(keys: str, setting: str) -> None:
    """Check the names of keys, such as ``x``, ``slash``, ``f5`` or ``ctrl+x``.

    Args:
        keys: Names of keys, separated by commas.
        setting: The setting with these keys, for the error message.

    Raises:
        ValueError: A name is unknown.
    """
    for key in (part.strip() for part in keys.split(",")):
        if not _is_key(key):
            hint = did_you_mean(key, sorted(_KEY_NAMES)) or "; write keys as x, f5 or ctrl+x"
            raise ValueError(f"{setting}: {key!r} is no key{hint}")


def _is_key(key: str) -> bool:
    if len(key) == 1:
        return key.isprintable()
    *modifiers, name = key.split("+")
    exists = name in _KEY_NAMES or key_to_character(name) is not None
    return exists and _MODIFIERS.issuperset(modifiers) and " " not in name


def save_setting(path: Path, name: str, value: str | float, *, explicit: bool = True) -> None:
    """Write a setting into the file of settings, and keep the other text as it is.

    Args:
        path: The file; it is created if it does not exist.
        name: The name of a setting.
        value: Its value.
        explicit: See `load_settings`.

    Raises:
        SpbenchError: The file cannot be read, changed or written.
    """
    from spbench.record.runs.files import write_file

    text = _read_text(path, explicit=explicit)
    if not explicit:
        _check_folder(path)
    content = _parse_yaml(text, path)
    shown_value = value if isinstance(value, str) else f"{value:g}"
    changed = _replace_value(text, name, shown_value)
    if not isinstance(content, dict) or _parse_yaml(changed, path) != {**content, name: value}:
        raise UsageError(f"cannot change {path}; write `{name}: {shown_value}` into it yourself")
    write_file(path.resolve(), changed)


def _replace_value(text: str, name: str, value: str) -> str:
    """Return the YAML text with another value of a setting, or with the setting added."""
    root = yaml.compose(text, yaml.SafeLoader)
    entries = root.value if isinstance(root, yaml.MappingNode) else []
    for key, node in entries:
        if key.value == name:
            return text[: node.start_mark.index] + value + text[node.end_mark.index :]
    if isinstance(root, yaml.MappingNode) and root.flow_style:
        insert_at = root.start_mark.index + 1
        return f"{text[:insert_at]}{name}: {value}{', ' if entries else ''}{text[insert_at:]}"
    newline = "\r\n" if "\r\n" in text else "\n"
    if text and not text.endswith("\n"):
        text += newline
    indent = " " * (root.start_mark.column if root else 0)
    return f"{text}{indent}{name}: {value}{newline}"
