"""Short forms of case ids, for tables without room for whole ids."""

from __future__ import annotations

import re
from collections.abc import Sequence

ELLIPSIS = "…"
_PARAMETER_NAME = re.compile(r"(?<=[\[,])[^=,\[\]]+=")


def without_parameter_names(case_id: str) -> str:
    """Return ``exchange[square,3]`` for ``exchange[slice_method=square,halo_len=3]``."""
    return _PARAMETER_NAME.sub("", case_id)


def cut_middle(text: str, width: int) -> str:
    """Return a text in at most ``width`` characters; its middle is replaced where it is longer."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + ELLIPSIS + text[len(text) - tail :]


def shorten_ids(ids: Sequence[str], width: int) -> list[str]:
    """Return case ids in at most ``width`` characters each.

    If one is longer, all lose the names of their parameters, unless two would become equal. Ids
    that are still longer lose their middle.
    """
    if max(map(len, ids), default=0) <= width:
        return list(ids)
    short = [without_parameter_names(case_id) for case_id in ids]
    if len(set(short)) < len(set(ids)):
        short = list(ids)
    return [cut_middle(case_id, width) for case_id in short]
