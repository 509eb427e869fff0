"""Interleaved pipelines in the parameters of a model benchmark: several stages a rank."""

from __future__ import annotations

from spbench_core.catalog.benchmark import IdleParamError, ParamError
from spbench_core.catalog.parameters import Params
from spbench_core.schedule.orders import INTERLEAVED
from spbench_workers.benchmarks.model.layout import parse_members

_ROUNDS = 2
_STAGES = 2
"""Of a round, at least: with one, a rank would be its own neighbour."""


def resolve_rounds(params: Params) -> Params:
    """Fill in rounds, and the stages of two ranks where split_size is left out.

    Raises:
        ParamError: The schedule is another, or not for this scheme; or stages or micro-batches do
            not go up in rounds.
    """
    if params["schedule"] != INTERLEAVED:
        if params["rounds"] is not None:
            raise IdleParamError("rounds", "without schedule interleaved")
        return params
    if params["scheme"] != "lp":
        raise ParamError(
            "schedule", f"schedule interleaved is for scheme lp, not for {params['scheme']}"
        )
    rounds = params["rounds"] or _ROUNDS
    params = params | {"rounds": rounds, "split_size": params["split_size"] or _STAGES * rounds}
    _check_stages(params["split_size"], rounds)
    if not params["enable_evaluation"]:
        stages = params["split_size"] // rounds
        words = f"the {stages} stages of a round, as schedule interleaved has it"
        _check_multiple("parts", params["parts"], stages, words)
    return params


def check_round_members(params: Params) -> None:
    """Refuse a complete local_DP that gives the stages of one round other ranks than another's.

    Raises:
        ParamError: A round would have other ranks than another.
    """
    rounds = params["rounds"] or 1
    members = parse_members(params["local_DP"])
    if isinstance(members, int):
        return
    wanted = members[: len(members) // rounds] * rounds
    if members != wanted:
        raise ParamError(
            "local_DP",
            f"local_DP {params['local_DP']} must be the same in each of {rounds} rounds, "
            f"as in {','.join(map(str, wanted))}",
        )


def _check_stages(stages: int, rounds: int) -> None:
    least = _STAGES * rounds
    if stages < least:
        raise ParamError(
            "split_size",
            f"split_size {stages} is too small for {rounds} rounds: take {least} or more",
        )
    _check_multiple("split_size", stages, rounds, f"rounds {rounds}")


def _check_multiple(name: str, number: int, of: int, words: str) -> None:
    if number % of:
        below = number // of * of
        near = f"{below} or {below + of}" if below else str(of)
        raise ParamError(name, f"{name} {number} is no multiple of {words}: take {near}")
