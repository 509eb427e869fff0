"""Types of the arrays of key-value stores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
FloatArray = npt.NDArray[np.floating]
"""An array of any floating-point type."""
