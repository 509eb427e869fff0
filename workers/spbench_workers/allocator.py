"""The memory allocator that this process has loaded."""

from __future__ import annotations

import platform
import re
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_ALLOCATORS = r"lib((?:tc|je|mi|tbb)malloc)[\w.-]*\.so[\d.]*"


def find_allocator() -> str:
    """Return the name of the loaded malloc, such as ``tcmalloc``, or the C library's."""
    try:
        maps = _MAPS.read_text()
    except OSError:
        maps = ""
    found = re.search(rf"/{_ALLOCATORS}", maps)
    return found[1] if found else " ".join(platform.libc_ver()) or "system"
