"""Version and build options of an MPI library, read from its own words."""

from __future__ import annotations

import re

# --with-cuda alone says where CUDA is, and does not ask for it
_WITH_CUDA = re.compile(r"--enable-cuda(?!=no)\b|\bgdr\b", re.IGNORECASE)
_WITHOUT_CUDA = re.compile(r"--(disable|without)-cuda\b|--(enable|with)-cuda=no\b")


def parse_library_name(text: str) -> str:
    """Return the name and version in an MPI library's version text: ``MVAPICH2 2.3.7``.

    The text's own first line may hold tabs, NULs, a colon and the package that it came in.
    """
    first = " ".join(text.strip("\0 \n").splitlines()[0].replace("\0", " ").split())
    return re.sub(r" Version ?:", "", first.split(", package")[0])


def is_built_with_cuda(text: str) -> bool:
    """Whether a version text of MVAPICH's holds words of configure that ask for CUDA."""
    return _WITH_CUDA.search(text) is not None and _WITHOUT_CUDA.search(text) is None
