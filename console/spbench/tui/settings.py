"""Settings of the console in a YAML file: theme, keys, drawings a second."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from spbench.config_files import UntrustedFileError, check_folder, open_trusted
from spbench.errors import UsageError, did_you_mean
from spbench.suites.given_files import read_start

ENV_CONFIG = "SPBENCH_CONFIG"
MIN_REFRESH_HZ = 0.5
MAX_REFRESH_HZ = 10.0
MAX_BYTES = 1 << 20
"""Bytes of the file; all its settings take some kB."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The keys of ``console.yaml``.

    Attributes:
        theme: A theme's name, as the palette lists them.
        refresh_hz: Drawings a second, at most: 0.5 to 10.
        keys: An action's id and the keys that start it instead: ``run.cancel: x,delete``.
    """

    theme: str = "spbench-dark"
    refresh_hz: float = MAX_REFRESH_HZ
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The valid settings of a file, and a sentence for each of the others, which are left out."""

    settings: Settings
    errors: tuple[str, ...] = ()


def settings_path(environ: Mapping[str, str]) -> Path:
    """Return where the settings are kept: SPBENCH_CONFIG, or the user's config folder."""
    given = environ.get(ENV_CONFIG)
    if given:
        return Path(given)
    from platformdirs import user_config_path

    return user_config_path("spbench") / "console.yaml"


def has_explicit_path(environ: Mapping[str, str]) -> bool:
    """Whether the user names the file of settings: then its owner is not checked."""
    return bool(environ.get(ENV_CONFIG))


def load_settings(path: Path, themes: Collection[str], *, explicit: bool = True) -> LoadedSettings:
    """Return the settings of a file, for what it lacks the defaults.

    Args:
        path: The file; there may be none.
        themes: The names of the themes there are.
        explicit: Whether the user named the file; otherwise it is skipped if somebody else may have
            written it.
    """
    try:
        content = _content(_text_of(path, named=explicit), path)
    except UsageError as error:
        return LoadedSettings(Settings(), (str(error),))
    settings, told = _read(content)
    if settings.theme not in themes:
        near = did_you_mean(settings.theme, themes) or "; the palette (ctrl+p) lists them"
        told.append(f"theme: there is no theme {settings.theme!r}{near}")
        settings = replace(settings, theme=Settings().theme)
    return LoadedSettings(settings, _placed(path, told))


def check_action_ids(path: Path, settings: Settings, ids: Collection[str]) -> tuple[str, ...]:
    """Return a sentence for each id in the file's ``keys`` that no action has."""
    told = []
    for action in settings.keys:
        if action not in ids:
            near = did_you_mean(action, ids) or "; F1 shows the ids"
            told.append(f"keys: there is no action {action!r}{near}")
    return _placed(path, told)


def _text_of(path: Path, *, named: bool) -> str:
    try:
        if named:
            content = read_start(path, MAX_BYTES + 1)
        else:
            with open_trusted(path) as file:
                content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UsageError(f"cannot read {path}: it has more than {MAX_BYTES >> 20} MiB")
        return content.decode("utf-8-sig")
    except UntrustedFileError as error:
        raise _untrusted(error) from None
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise _no_yaml(path) from None


def _check_folder(path: Path) -> None:
    # Its owner could put a link there, through which the theme is written into another file.
    try:
        check_folder(path)
    except UntrustedFileError as error:
        raise _untrusted(error) from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def _untrusted(error: UntrustedFileError) -> UsageError:
    return UsageError(f"{error}; to use it as it is, name it in {ENV_CONFIG}")


def _content(text: str, path: Path) -> Any:
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        raise _no_yaml(path) from None
    return {} if content is None else content


def _no_yaml(path: Path) -> UsageError:
    return UsageError(f"{path}: error: this file is invalid YAML; fix or remove it")


def _placed(path: Path, told: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{path}: error: {why}" for why in told)


def _read(content: Any) -> tuple[Settings, list[str]]:
    if not isinstance(content, dict):
        return Settings(), ["the file holds no mapping of settings"]
    settings = Settings()
    told = list[str]()
    names = [one.name for one in fields(Settings)]
    for name, value in content.items():
        if name not in names:
            near = did_you_mean(str(name), names) or f" (there are {', '.join(names)})"
            told.append(f"there is no setting {name!r}{near}")
            continue
        try:
            settings = replace(settings, **{name: _CHECKS[name](name, value, told)})
        except ValueError as error:
            told.append(str(error))
    return settings, told


def _text(name: str, value: Any, _: list[str]) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: {value!r} is not a text")
    return value


def _rate(name: str, value: Any, _: list[str]) -> float:
    if type(value) not in (int, float) or not MIN_REFRESH_HZ <= value <= MAX_REFRESH_HZ:
        raise ValueError(
            f"{name}: {value!r} is not a number from {MIN_REFRESH_HZ:g} to {MAX_REFRESH_HZ:g}"
        )
    return float(value)


def _keys(name: str, value: Any, told: list[str]) -> dict[str, str]:
    """Take the right entries, and tell of the others."""
    if not isinstance(value, dict):
        raise ValueError(f"{name}: {value!r} is no mapping of actions' ids to keys")
    from spbench.tui.key_names import check_key_names

    taken = {}
    for action, keys in value.items():
        try:
            action = _text(name, action, told)
            check_key_names(_text(f"{name}.{action}", keys, told), f"{name}.{action}")
            taken[action] = keys
        except ValueError as error:
            told.append(str(error))
    return taken


_CHECKS: dict[str, Callable[[str, Any, list[str]], Any]] = {
    "theme": _text,
    "refresh_hz": _rate,
    "keys": _keys,
}
"""What checks a setting: it raises ValueError, or tells what it leaves out."""


def save_theme(path: Path, theme: str, *, explicit: bool = True) -> None:
    """Write a theme into the file of settings, in which all else stays as it is written.

    Args:
        path: The file; it is made if it is missing.
        theme: The theme's name.
        explicit: As for `load_settings`.

    Raises:
        SpbenchError: The file cannot be read, changed or written.
    """
    from spbench.record.runs.folder import write_whole

    text = _text_of(path, named=explicit)
    if not explicit:
        _check_folder(path)
    content = _content(text, path)
    changed = _with_theme(text, theme)
    if not isinstance(content, dict) or _content(changed, path) != {**content, "theme": theme}:
        raise UsageError(f"cannot change {path}; write `theme: {theme}` into it yourself")
    write_whole(path.resolve(), changed)


def _with_theme(text: str, theme: str) -> str:
    root = yaml.compose(text, yaml.SafeLoader)
    entries = root.value if isinstance(root, yaml.MappingNode) else []
    for key, value in entries:
        if key.value == "theme":
            return text[: value.start_mark.index] + theme + text[value.end_mark.index :]
    if isinstance(root, yaml.MappingNode) and root.flow_style:
        at = root.start_mark.index + 1
        return f"{text[:at]}theme: {theme}{', ' if entries else ''}{text[at:]}"
    newline = "\r\n" if "\r\n" in text else "\n"
    ended = text if not text or text.endswith("\n") else text + newline
    return f"{ended}{' ' * (root.start_mark.column if root else 0)}theme: {theme}{newline}"
