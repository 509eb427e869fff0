"""Names of keys: ``x``, ``X``, ``/`` or ``slash``, ``f5``, ``delete``, ``ctrl+x``."""

from __future__ import annotations

from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

from spbench.errors import did_you_mean

_MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "hyper", "meta"})
_NAMED = {
    *(key.value.rpartition("+")[2] for key in Keys if not key.value.startswith("<")),
    *KEY_NAME_REPLACEMENTS.values(),
}
"""Names that are not those of characters; what Textual has in <> is no key."""


def check_key_names(keys: str, name: str) -> None:
    """Refuse keys, with commas between them, of which one has no key's name.

    Raises:
        ValueError: naming it, and the setting ``name`` in which it stands.
    """
    for key in (part.strip() for part in keys.split(",")):
        if not _is_key(key):
            near = did_you_mean(key, sorted(_NAMED)) or "; write keys as x, f5 or ctrl+x"
            raise ValueError(f"{name}: {key!r} is no key{near}")


def _is_key(key: str) -> bool:
    if len(key) == 1:
        return key.isprintable()
    *modifiers, name = key.split("+")
    named = name in _NAMED or key_to_character(name) is not None
    return named and _MODIFIERS.issuperset(modifiers) and " " not in name
