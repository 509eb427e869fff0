"""The effects of the faults of benchmarks, for people who choose one."""

from __future__ import annotations

FULL_SIZE_PREFIX = "full:"
FAULT_EFFECTS = {
    "corrupt-copy": "one byte of the copy is flipped",
    "corrupt-exit": "the exit code of the program is changed",
    "corrupt-halo": "one value of a received halo is flipped",
    "corrupt-message": "one byte of a message is flipped",
    "corrupt-result": "one value of the result is changed",
    "double-push": "one pushed value is added twice",
    "drop-gradient": "one gradient is lost",
    "drop-halo": "one piece of a halo is never received",
    "drop-output": "the output of the program is lost",
    "drop-tile": "one tile is left out of the sum of a convolution's gradients",
    "forge-line": "a line of the program's output is changed",
    "leave-early": "the last rank does not wait for the others",
    "lost-halo-gradient": "gradients that other tiles return for halos are dropped",
    "lost-push": "one pushed value is lost",
    "lost-tile-sum": "gradients of values that all tiles share are dropped",
    "mean-instead-of-sum": "gradients are averaged instead of summed",
    "other-draws": "dropout draws other random numbers than one process",
    "scale-input-gradient": "the input gradient of a convolution is 1 % too large",
    "scale-weight-gradient": "the weight gradient of a convolution is 1 % too large",
    "skipped-microbatch": "the gradients of a step's first micro-batch are dropped",
    "stale-halo": "the halo of the first exchange is used again",
    "stale-state": "saved weights are those from before the training",
    "tile-batchnorm": "each tile is normalised by its own statistics",
    "tile-dice": "the Dice loss is that of a tile, not of the image",
    "uncounted-wait": "latencies leave out the time that a request waits",
    "wrong-element": "one element of the result is changed",
    "wrong-layer": "the last layer has other weights",
    "wrong-neighbour": "inputs or halos of two neighbours are swapped",
    "zero-input-gradient": "the input gradient of a convolution is zero",
    "zero-weight-gradient": "the weight gradient of a convolution is zero",
}


def describe_fault(name: str) -> str:
    """Return the effect of a fault, or an empty string for one of a plug-in."""
    effect = FAULT_EFFECTS.get(name.removeprefix(FULL_SIZE_PREFIX), "")
    if effect and name.startswith(FULL_SIZE_PREFIX):
        return f"{effect}, only at full size"
    return effect
