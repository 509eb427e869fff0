"""spbench: a cluster benchmark console for high-resolution deep learning."""

__version__ = "0.1.0"
