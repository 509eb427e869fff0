"""Names of the algorithms of collectives, by kind. Standard library only.

It is separate from `plan` so that entries of benchmarks do not load the algorithms.
"""

ROOTED = (
    "binomial",
    "muji",
    "muji_2",
    "muji_4",
    "muji_8",
    "muji_fallback",
    "flat",
    "two_level",
    "chain",
)
"""Algorithms with a root that has more work than the others; `rotate_roots` moves it."""
SCHEDULED = ("ring", "bidirectional_ring", "recursive_doubling", "rabenseifner", *ROOTED)
"""spbench's algorithms, over messages between two ranks."""
LIBRARIES = ("native", "gloo", "nccl")
"""Allreduces of a library: MPI, and torch.distributed."""

ITEM_BYTES = {"fp32": 4, "fp64": 8, "fp16": 2, "bf16": 2, "int32": 4, "int64": 8}
"""Bytes of a number, by its format."""
MUJI_SIZES = (2, 4, 8)
"""Numbers of ranks for which muji has a tree."""
FIXED_SIZES = {f"muji_{size}": size for size in MUJI_SIZES}
"""Algorithms for only one number of ranks, with that number."""
