"""Build options of an MPI library, read from the words of its configure."""

from __future__ import annotations

import re

# --with-cuda alone says where CUDA is, and does not ask for it
_WITH_CUDA = re.compile(r"--enable-cuda(?!=no)\b|\bgdr\b", re.IGNORECASE)
_WITHOUT_CUDA = re.compile(r"--(disable|without)-cuda\b|--(enable|with)-cuda=no\b")


def built_with_cuda(text: str) -> bool:
    """Whether a version text of MVAPICH's holds words of configure that ask for CUDA."""
    return _WITH_CUDA.search(text) is not None and _WITHOUT_CUDA.search(text) is None
