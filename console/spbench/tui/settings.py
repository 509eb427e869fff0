"""What the console remembers in a YAML file: theme, keys, how often it draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from spbench.errors import UsageError, did_you_mean

ENV_CONFIG = "SPBENCH_CONFIG"
LEAST_HZ, MOST_HZ = 0.5, 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The keys of ``console.yaml``.

    Attributes:
        theme: A theme's name, as the palette lists them.
        refresh_hz: Drawings a second, at most: 0.5 to 10.
        keys: An action's id and the keys that start it instead: ``run.cancel: x,delete``.
    """

    theme: str = "spbench-dark"
    refresh_hz: float = MOST_HZ
    keys: Mapping[str, str] = field(default_factory=dict)


def settings_path(environ: Mapping[str, str]) -> Path:
    """Return where the settings are kept: SPBENCH_CONFIG, or the user's config folder."""
    given = environ.get(ENV_CONFIG)
    if given:
        return Path(given)
    from platformdirs import user_config_path

    return user_config_path("spbench") / "console.yaml"


def load_settings(path: Path) -> Settings:
    """Return the settings of a file; the defaults where there is none.

    Raises:
        UsageError: The file cannot be read or has something wrong in it.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _read({} if content is None else content)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise UsageError(f"{path}: error: this is no YAML file; mend or remove it") from None
    except ValueError as error:
        raise UsageError(f"{path}: error: {error}") from None


def _read(content: Any) -> Settings:
    if not isinstance(content, dict):
        raise ValueError("the file holds no mapping of settings")
    settings = Settings()
    names = [one.name for one in fields(Settings)]
    for name, value in content.items():
        if name not in names:
            near = did_you_mean(str(name), names) or f" (there are {', '.join(names)})"
            raise ValueError(f"there is no setting {name!r}{near}")
        settings = replace(settings, **{name: _CHECKS[name](name, value)})
    return settings


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: {value!r} is not a text")
    return value


def _rate(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not LEAST_HZ <= value <= MOST_HZ:
        raise ValueError(f"{name}: {value!r} is not a number from {LEAST_HZ:g} to {MOST_HZ:g}")
    return float(value)


def _keys(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"{name}: {value!r} is no mapping of actions' ids to keys")
    return {_text(name, action): _text(f"{name}.{action}", keys) for action, keys in value.items()}


_CHECKS: dict[str, Callable[[str, Any], Any]] = {"theme": _text, "refresh_hz": _rate, "keys": _keys}


def save_settings(path: Path, settings: Settings) -> None:
    """Write what differs from the defaults.

    Raises:
        SpbenchError: The file cannot be written.
    """
    from spbench.record.folder import write_whole

    usual = asdict(Settings())
    changed = {name: value for name, value in asdict(settings).items() if value != usual[name]}
    write_whole(path, yaml.safe_dump(changed, sort_keys=True) if changed else "{}\n")
