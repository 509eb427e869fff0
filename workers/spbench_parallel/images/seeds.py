"""Seeds that follow from words alone, so that ranks agree without a message."""

from __future__ import annotations

import hashlib

import torch


def hash_words(*words: str | int) -> int:
    """Return a number below 2**63 that follows from the words, and from nothing else."""
    digest = hashlib.blake2b(repr(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def make_generator(*words: str | int) -> torch.Generator:
    """Return a generator of random numbers, of the CPU, that starts from the words."""
    return torch.Generator().manual_seed(hash_words(*words))
