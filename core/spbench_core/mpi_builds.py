"""Version and build options of an MPI library, parsed from its version text."""

from __future__ import annotations

import re

# --with-cuda only gives the path of CUDA; it does not enable it.
_WITH_CUDA = re.compile(r"--enable-cuda(?!=no)\b|\bgdr\b", re.IGNORECASE)
_WITHOUT_CUDA = re.compile(r"--(disable|without)-cuda\b|--(enable|with)-cuda=no\b")


def parse_library_name(text: str) -> str:
    """Return name and version of an MPI library: ``MVAPICH2 2.3.7``.

    The first line of the text may contain tabs, NULs, a colon and a package name.
    """
    first = " ".join(text.strip("\0 \n").splitlines()[0].replace("\0", " ").split())
    return re.sub(r" Version ?:", "", first.split(", package")[0])


def is_built_with_cuda(text: str) -> bool:
    """Return whether MVAPICH's version text has configure options that enable CUDA."""
    return _WITH_CUDA.search(text) is not None and _WITHOUT_CUDA.search(text) is None
