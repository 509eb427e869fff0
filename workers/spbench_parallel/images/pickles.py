"""Safe reading of pickles: only numbers, text, lists, dictionaries and arrays are made."""

from __future__ import annotations

import io
import pickle
from typing import Any

_ALLOWED = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    # How Python 3 writes bytes for Python 2.
    ("_codecs", "encode"),
}
"""What arrays of numbers are made with."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def read_pickle(data: bytes) -> Any:
    """Return the object of a pickle of Python 2 or 3; text of Python 2 comes as bytes.

    Raises:
        pickle.UnpicklingError: The pickle holds other objects than arrays, or is no pickle.
    """
    try:
        return _Reader(io.BytesIO(data), encoding="bytes").load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # A broken pickle raises whatever its broken parts raise.
        raise pickle.UnpicklingError(f"it is no pickle: {error}") from None
